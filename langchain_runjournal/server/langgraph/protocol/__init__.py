"""The newer protocol of LangGraph's SDKs: commands, and one stream of events for a whole thread.

`@langchain/react` and `threads.stream` of the Python SDK speak it. It is a second fold of the same journal.
"""
