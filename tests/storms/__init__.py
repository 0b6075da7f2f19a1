"""Storms: processes that are killed or forked, lose files, or have failing system calls, by the hundred and at random.

The storm, the number of the case and the seed decide what a case does, as far as the machine allows; the scheduler decides
when it happens. `python -m tests.storms --help` says how to run all cases, and how to repeat one.
"""
