"""Append never waits; barriers do.

`append` numbers and spools, `writer` commits, `follow` reads back, `ownership` decides who may write.

Rule: knows nothing of callbacks or graphs. Imports `stores` and `messages`."""
