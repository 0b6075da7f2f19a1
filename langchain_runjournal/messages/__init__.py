"""Everything we know about LangChain's messages and about what providers accept. Pure.

Rule: no clock, thread, socket, database or event loop. Imports `errors`, `common` and `events`."""
