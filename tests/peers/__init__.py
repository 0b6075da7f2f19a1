"""`make peers`: the test suites of LangGraph and LangChain, bare and with the journal."""
