"""The real client packages of eight providers, over a real socket that is cut, against the rules of the real servers.

`python -m tests.providers` runs every cell and prints a table; `make providers` does that.
"""
