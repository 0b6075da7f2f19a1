"""Helpers that know nothing of runs: arguments, clocks, text, JSON, synchronous and asynchronous twins.

Rule: a module of this room imports `errors` and nothing else of this package. A helper that needs an `Event` lives
elsewhere.
"""
