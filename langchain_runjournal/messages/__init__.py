"""Everything we know about LangChain's messages and about what providers accept. Pure.

Rule: no module of this room uses a clock, thread, socket, database or event loop, or imports another room than `errors`,
`common` and `events`. `loading` alone writes to a log.
"""
