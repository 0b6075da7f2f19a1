"""The modes of a stream, as the clients of LangGraph Server read them. Pure: events and stored steps in, payloads out."""
