"""One fold of a run for a page, without any markup. Pure.

`timeline` folds the events, `calls` has the model and tool calls, `conversation` the messages, `time_axis` the positions.
Imports `messages` and `events`.
"""
