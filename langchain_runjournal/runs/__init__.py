"""Runs a graph in a task that outlives its caller: `admission`, `task`, `chunk_pipe`, `readers`; `cancellation` ends it.

Imports `settle`, `capture` and `journal`."""
