"""Makes a thread agree with its journal after an abnormal end of a run.

`schedule` decides when to settle, `plan` (pure) decides what to write, `settler` carries it out, and `graph_thread` alone
writes threads. This room imports `capture`, `guard`, `journal` and `messages`.
"""
