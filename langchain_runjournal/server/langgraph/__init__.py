"""The part of LangGraph Server's API that existing clients use, served from the journal.

Written from what the clients send and need. It works with the clients of LangGraph Server, and is not LangGraph Server.
"""
