"""Helpers that know nothing of runs: arguments, clocks, text, JSON, synchronous and asynchronous twins.

Rule: imports `errors` and nothing else of this package. What needs an `Event` lives elsewhere."""
