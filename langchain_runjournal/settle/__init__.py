"""Makes a thread agree with its journal after an abnormal end.

`schedule` says when, `plan` (pure) says what, `settler` does it, `graph_thread` alone writes. Imports `capture`, `guard`,
`journal` and `messages`."""
