"""Pure: why a run or an answer ended early, in words for a model. This is the only table of them.

Rule: a text never changes, because the cache of a provider only holds a history whose words stay the same.
"""

from __future__ import annotations

from typing import Final

_SAME: Final = {
    "disconnect": "the connection to the user was lost",
    "timeout": "a time limit was reached",
    "shutdown": "the program was shut down",
    "crash": "the program ended unexpectedly",
}
CAUSES_OF_TURN: Final = {
    **_SAME,
    "stop": "the user stopped the turn",
    "superseded": "a newer message took the place of this turn",
    "error": "the turn ended with an error",
}
"""Clauses about a turn, which stand in tool results."""
CAUSES_OF_ANSWER: Final = {
    **_SAME,
    "stop": "the user stopped it",
    "superseded": "a newer message took its place",
    "error": "an error occurred",
}
"""Clauses about an answer, which stand in notes."""
