"""Ends, in the tracers of a program, the calls that were cut off and that LangChain leaves open there.

`open_calls` knows which calls have not ended and what they had said, `handler` ends them. This room imports `capture`,
`journal` and `messages`.
"""
