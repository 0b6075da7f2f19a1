"""Turns LangChain's callbacks into events. The only room that knows their arguments and stack frames.

Rule: never raises, never waits. Imports `journal`, `messages` and, to refuse a tool call, `guard`."""
