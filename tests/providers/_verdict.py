"""What becomes of a cell: whole, excused for a reason that is named here, or broken.

An excuse is strict: where it applies and nothing is wrong, the cell counts as broken, so that the table stays true.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from tests.providers._cells import NOT, Cell, readable

Verdict: TypeAlias = Literal["whole", "excused", "broken"]


class Problem(NamedTuple):
    """What is not as it should be: which kind of thing, and the thing."""

    kind: str
    text: str


@dataclass
class Outcome:
    """What was seen of a cell."""

    problems: list[Problem] = field(default_factory=list)
    ended: bool = False
    """The first turn came to its end without an error: the client took what it had for a whole answer."""
    roles: list[str] = field(default_factory=list)
    """The types of the messages of the thread after the first turn."""
    hollow: bool = False
    """The client made an answer without a word and without a call, and the graph stored it."""
    beside_calls: bool = False
    """What the answer that was cut has shown stands in a message with calls."""
    unfinished: bool = False
    """The client took an answer that had no end for a whole one."""


@dataclass(frozen=True)
class Excuse:
    """Why some cells cannot be whole."""

    reason: str
    applies: Callable[[Cell, Outcome], bool]
    covers: Callable[[Problem], bool]
    strict: bool = True


def guarded(cell: Cell) -> bool:
    return cell.mode not in ("agent", "graph")


def _heir(cell: Cell) -> str:
    return cell.then or cell.client


EXCUSES = (
    Excuse(
        "without the guard, nothing can bridge `tool, user`: Mistral refuses it",
        lambda cell, seen: not guarded(cell) and _heir(cell) == "mistral" and seen.roles[-1:] == ["tool"],
        lambda problem: "Unexpected role 'user' after role 'tool'" in problem.text,
    ),
    Excuse(
        "without the guard, nothing can bridge `user, user` and `tool, user`: strict templates refuse it",
        lambda cell, seen: not guarded(cell) and _heir(cell) == "strict-template" and seen.roles[-1:] != ["ai"],
        lambda problem: "must alternate" in problem.text or "Unexpected role 'user'" in problem.text,
    ),
    Excuse(
        "the other provider's client cannot send on such an answer of this one",
        lambda cell, seen: cell.cut == NOT and not readable(cell),
        lambda problem: problem.kind in ("refused", "later"),
    ),
    Excuse(
        "the other provider's client cannot send on such an answer of this one, and nothing was cut away of it",
        lambda cell, seen: cell.cut != NOT and not readable(cell),
        lambda problem: problem.kind in ("refused", "later"),
        strict=False,  # a cut answer has less in it that could be refused
    ),
    Excuse(
        "langchain-mistralai sends no text that stands beside calls",
        lambda cell, seen: _heir(cell) == "mistral" and seen.beside_calls,
        lambda problem: problem.kind == "not sent",
    ),
    Excuse(
        "LangChain takes an early but clean end for a whole answer without a word, and the graph stores it",
        lambda cell, seen: seen.hollow,
        lambda problem: problem.kind == "empty answer",
    ),
    Excuse(
        "without the guard, what the client took for a whole answer is sent as it is, and the provider refuses it",
        lambda cell, seen: not guarded(cell) and seen.unfinished,
        lambda problem: problem.kind in ("refused", "refused at once"),
        strict=False,  # some providers take it
    ),
)


def judge(cell: Cell, seen: Outcome) -> tuple[Verdict, list[str]]:
    """The verdict, and why: the reasons of the excuses, or what is wrong."""
    excuses = [one for one in EXCUSES if one.applies(cell, seen)]
    idle = [one.reason for one in excuses if one.strict and not any(one.covers(problem) for problem in seen.problems)]
    if idle:
        return "broken", [f"is whole, and was not thought to be: {reason}" for reason in idle]
    refused = any(one.covers(problem) for one in excuses for problem in seen.problems)
    left = [
        problem
        for problem in seen.problems
        # A turn that was refused has not run its tool either.
        if not any(one.covers(problem) for one in excuses) and not (refused and problem.kind == "later")
    ]
    if left:
        return "broken", [f"{one.kind}: {one.text}" for one in left]
    return ("excused", [one.reason for one in excuses]) if seen.problems else ("whole", [])
