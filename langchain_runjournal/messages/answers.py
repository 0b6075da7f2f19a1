"""Pure: which model calls answer the user, and which only serve the program.

Rule: the end of a task of a graph decides (`task_messages`). For a call whose task was cut off, the first of these that says
anything decides: the user (`answers=`), what the node was seen to do before, structured output, tags. A call of which
nothing is known is an answer, so that nothing the user saw is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from ..errors import InvalidArgument
from .message_data import Data

Role: TypeAlias = Literal["answer", "helper", "subagent"]
Reason: TypeAlias = Literal["said", "seen", "structured", "tagged", "unknown"]

_EXPECTED: Final = "the name of a node, a collection of names, or a function from a ModelCall to a bool"
_MOST_COUNTED: Final = 8
"""How many calls of one task are distinguished by their number: a loop in a node may make any number of them."""
_MOST: Final = 1_000
"""How many facts are kept of one graph: a program may invent names of nodes as it runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCall:
    """A model call at its start, which a function given as `answers=` decides on.

    `node` is the innermost node of a graph that makes the call, and `path` the names of all nodes around it and its own, the
    outermost first. Outside of a graph they are None and empty. `tags`, `metadata` and `model` are those that LangChain
    reports.
    """

    node: str | None
    path: tuple[str, ...]
    tags: tuple[str, ...]
    metadata: Mapping[str, Any]
    model: str


Answers: TypeAlias = str | Collection[str] | Callable[[ModelCall], bool]
"""The calls that answer the user."""


@dataclass(slots=True)
class Spoken:
    """A model call below a task, until the task has returned its answer or kept it."""

    path: tuple[str, ...]
    structured: bool
    tagged: bool
    role: Role
    reason: Reason
    nth: int = 0
    """The number of the call in its task, counted from 1; a retried call counts once."""
    spot: tuple[int | None, str] = (None, "")
    """See `Node.spot`."""
    fingerprint: Data | None = None
    """What identifies its answer (see `task_messages.fingerprint`); None while it has none."""

    @property
    def is_settled_helper(self) -> bool:
        """Whether better evidence than the call itself says that it is a helper."""
        return self.role == "helper" and self.reason in ("said", "seen")


def is_structured(options: object) -> bool:
    """Return whether a call was made through `with_structured_output`, by any of its methods.

    LangChain says so in the options of the callback. It does not for `create_agent(response_format=...)`, whose answers go
    into `messages`.
    """
    return isinstance(options, Mapping) and bool(options.get("ls_structured_output_format"))


def names_in(answers: Answers | None) -> tuple[str, ...]:
    """Return the names of nodes among `answers`. Raise `InvalidArgument` for what is neither names nor a function."""
    if answers is None or callable(answers):
        return ()
    names = (answers,) if isinstance(answers, str) else answers
    if not isinstance(names, Collection) or not all(isinstance(name, str) and name for name in names):
        raise InvalidArgument(name="answers", expected=_EXPECTED, value=answers)
    return tuple(names)


def says(answers: Answers | None, call: ModelCall) -> bool | None:
    """Return what the user says of a call; None if nothing. A name means a node, and covers everything inside of it."""
    if answers is None:
        return None
    if callable(answers):
        return bool(answers(call))
    return any(name in call.path for name in names_in(answers)) if call.path else None


class Learned:
    """What the nodes of graphs were seen to do with answers. Facts are only ever added, in any order."""

    def __init__(self) -> None:
        self._facts: dict[str, set[str]] = {}

    def add(self, graph: str, facts: Iterable[str]) -> set[str]:
        """Remember facts about a graph. Return those that are new."""
        known = self._facts.setdefault(graph, set())
        new = set(facts) - known
        if len(known) + len(new) > _MOST:
            return set()
        known |= new
        return new

    def gives(self, graph: str, path: tuple[str, ...], structured: bool, asks: bool, nth: int = 0) -> bool | None:
        """Return whether a node has ever returned such an answer.

        False means that it has only kept them, None that it was never seen. What is known of its `nth` call counts first: a
        node may ask one model for itself, and then another one for the user.
        """
        known = self._facts.get(graph, ())
        for place in (nth, 0) if nth else (0,):
            if fact(path, structured, asks, nth=place, gave=True) in known:
                return True
            if fact(path, structured, asks, nth=place, gave=False) in known:
                return False
        return None


def fact(path: tuple[str, ...], structured: bool, asks: bool, *, gave: bool, nth: int = 0) -> str:
    """Return one fact as text, as a store keeps it. `nth`: the fact is about that call of the node only."""
    kind = "structured" if structured else "free"
    which = f"#{nth} " if nth else ""
    return f"{'gave' if gave else 'kept'} {kind} {'asks' if asks else 'words'} {which}{'|'.join(path)}"


def facts_of(spoken: Spoken, *, gave: bool) -> list[str]:
    """Return what the end of its task teaches about a call: facts about that call of the node, and about the node."""
    asks = bool(spoken.fingerprint and spoken.fingerprint["asks"])
    places = (spoken.nth, 0) if 0 < spoken.nth <= _MOST_COUNTED else (0,)
    return [fact(spoken.path, spoken.structured, asks, nth=nth, gave=gave) for nth in places]


def role_at_start(said: bool | None, seen: bool | None, *, structured: bool, tagged: bool) -> tuple[Role, Reason]:
    """Return the role of a call at its start, and the reason for it."""
    if said is not None:
        return ("answer" if said else "helper"), "said"
    if seen is not None:
        return ("answer" if seen else "helper"), "seen"
    if structured or tagged:
        return "helper", "structured" if structured else "tagged"
    return "answer", "unknown"


def seen_at_start(learned: Learned, graph: str, path: tuple[str, ...], structured: bool, nth: int = 0) -> bool | None:
    """Return what was seen of a call at its start.

    Answers without a request decide first, because a call that is cut off can leave nothing else.
    """
    words = learned.gives(graph, path, structured, False, nth)
    return learned.gives(graph, path, structured, True, nth) if words is None else words


def role_at_end(spoken: Spoken, learned: Learned, graph: str, asks: bool) -> tuple[Role, Reason]:
    """Return the role of a call that is complete: now its answer shows whether it asks for tools."""
    if spoken.role == "subagent" or spoken.reason == "said":
        return spoken.role, spoken.reason
    seen = learned.gives(graph, spoken.path, spoken.structured, asks, spoken.nth)
    if seen is not None:
        return ("answer" if seen else "helper"), "seen"
    if spoken.reason == "seen":
        # Only answers of the other kind were seen.
        return role_at_start(None, None, structured=spoken.structured, tagged=spoken.tagged)
    return spoken.role, spoken.reason
