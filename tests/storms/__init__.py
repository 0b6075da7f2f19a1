"""Storms: processes that are killed, forked, robbed of their files and of their system calls, by the hundred and at random.

Each case is a function of its storm, its number and the seed, as far as the machine lets it be: what is done is drawn from
them, when it happens in between is the scheduler's. `python -m tests.storms --help` says how to run them, and one again.
"""
