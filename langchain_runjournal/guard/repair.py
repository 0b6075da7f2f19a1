"""The function `repair_tool_pairs`: the guard for graphs that do not use LangChain's agents."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from ..common.arguments import one_of
from ..errors import InvalidArgument
from ..messages.tool_requests import Request
from ..messages.tool_results import CallKnowledge
from . import bridge as _bridge
from .projection import DANGLING, ORPHANS, project, wanted

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage, ToolMessage

    Evidence = Mapping[str, ToolMessage] | Mapping[tuple[str | None, str], ToolMessage] | Callable[[str], ToolMessage | None]


def repair_tool_pairs(
    messages: list[BaseMessage],
    *,
    evidence: Evidence | None = None,
    dangling: Literal["synthesize", "strip", "hold", "raise"] = "synthesize",
    orphans: Literal["drop", "keep", "raise"] = "drop",
    bridge: bool = False,
) -> list[BaseMessage]:
    """Return the history as a model may receive it: every tool request with its results right behind it.

    Results come in the order of the calls. This is for the request to the model, and not for storage: the function changes
    no message that it is given. It returns a history without problems as it is, the same list object. The same history gives
    the same messages each time.

    `evidence` has real results that the history lacks: by tool call id, or by (id of the AI message, tool call id) where ids
    come again; a plain id then means the last such call. It can also be a function of the tool call id.

    `dangling` is for requests that have no result and for which the evidence has none: "synthesize" makes a result with
    ``status="error"`` that says what is known (see `is_synthetic`), "strip" removes the request from a copy of its message,
    "hold" leaves it open, and "raise" raises `ToolPairBroken`. Requests that no tool can run (invalid, cut off, nameless)
    are stripped instead of being answered. `orphans` is for results that answer no request in this list, for example because
    it was trimmed: providers refuse them. A second result of one call is always left out.

    `bridge` is for models that refuse a message of the user behind a tool's result, or behind another message of the user:
    Mistral's, and those whose chat template wants the roles to alternate (docs/limits.md names them). The function puts a
    short answer of the model between the two. It says that no answer was given, and `is_synthetic` returns True for it.
    """
    check_policies(dangling, orphans)
    if not isinstance(bridge, bool):
        raise InvalidArgument(name="bridge", expected="True or False", value=bridge)
    _check_messages(messages)
    ask = _nothing if evidence is None else _Given(messages, evidence)
    behind = _bridge.BOTH if bridge else _bridge.NOTHING
    return project(messages, ask, dangling=dangling, orphans=orphans, notes=False, bridge=behind).messages


def check_policies(dangling: str, orphans: str) -> None:
    """Raise `UnknownOption` for a policy that does not exist."""
    for name, value, allowed in (("dangling", dangling, DANGLING), ("orphans", orphans, ORPHANS)):
        one_of(name, value, allowed)


def _check_messages(messages: Any) -> None:
    from langchain_core.messages import BaseMessage

    expected = "a list of LangChain messages (see langchain_core.messages.convert_to_messages)"
    if not isinstance(messages, list):
        raise InvalidArgument(name="messages", expected=expected, value=messages)
    for place, message in enumerate(messages):
        if not isinstance(message, BaseMessage):
            raise InvalidArgument(name=f"messages[{place}]", expected=f"a message, in {expected}", value=message)


def _nothing(message: Any, request: Request) -> CallKnowledge:
    return CallKnowledge()


class _Given:
    """The evidence of the caller, as a function that is asked for one call after the other."""

    def __init__(self, messages: list[BaseMessage], evidence: Any) -> None:
        if not isinstance(evidence, Mapping) and not callable(evidence):
            expected = "a mapping of tool call ids to ToolMessages, or a function of a tool call id"
            raise InvalidArgument(name="evidence", expected=expected, value=evidence)
        self.messages = messages
        self.evidence = evidence
        self.newest: dict[str | None, tuple[int, int]] | None = None

    def __call__(self, message: Any, request: Request) -> CallKnowledge:
        found = None
        if isinstance(self.evidence, Mapping):
            found = self.evidence.get((message.id, request.id))
        if found is None and self._is_newest(message, request):
            found = self.evidence.get(request.id) if isinstance(self.evidence, Mapping) else self.evidence(request.id)
        return CallKnowledge(result=_checked(request.id, found))

    def _is_newest(self, message: Any, request: Request) -> bool:
        """Return whether a plain id means this call.

        One result must not answer two calls: for one of them it would be false.
        """
        if self.newest is None:
            self.newest = {one.id: (id(asking), one.index) for asking, one in wanted(self.messages)}
        return self.newest.get(request.id) == (id(message), request.index)


def _checked(call: str | None, found: Any) -> ToolMessage | None:
    from langchain_core.messages import ToolMessage

    if found is not None and not isinstance(found, ToolMessage):
        raise InvalidArgument(name=f"evidence[{call!r}]", expected="a ToolMessage or None", value=found)
    return found
