"""The part of LangGraph Server's API that existing clients use, served from the journal. Written from what the clients send and
need; it works with the clients of LangGraph Server, and is none."""
