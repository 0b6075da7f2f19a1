"""The policy of `ToolPairGuard` for an answer that was cut off inside of its tool calls."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias

from langchain.agents.middleware.types import ModelRequest, ModelResponse

from ..common.arguments import choice, count
from ..errors import AnswerCut, InvalidArgument
from ..messages.cut_answers import answerable, cut_message, cut_results
from ..messages.cut_calls import Cut
from .heard_calls import Heard, listening

logger = logging.getLogger("langchain_runjournal")

Choice: TypeAlias = Literal["answer", "retry", "raise"]
_MOST: Final = 3
"""How many answers in a row may be cut off before an error says so: a model whose limit is too low never gets further."""

_Request: TypeAlias = ModelRequest[Any]
_Response: TypeAlias = ModelResponse[Any]


@dataclass(slots=True)
class _AgentCall:
    """One call of the agent's model, with the results of its answers so far."""

    request: _Request
    retries: int
    cut_messages: list[Any] = field(default_factory=list)
    """The answers that were cut off, each with its results."""
    times: int = 0


class OnCut:
    """The policy of one guard."""

    def __init__(self, on_cut: Choice, *, retries: int, run_whole: bool) -> None:
        choice("on_cut", on_cut, Choice)
        if not isinstance(run_whole, bool):
            raise InvalidArgument(name="run_whole_calls", expected="True or False", value=run_whole)
        self._choice = on_cut
        self._retries = (count("cut_retries", retries) or 0) if on_cut == "retry" else 0
        self._run_whole = run_whole

    def call(self, request: _Request, handler: Callable[[_Request], _Response]) -> _Response:
        """Call the model until an answer has arrived whole, or until the policy decides what the agent gets."""
        call = _AgentCall(request, self._retries)
        while True:
            with listening(again=call.retries > 0) as heard:
                response = handler(call.request)
            if (done := self._judge(call, response, heard)) is not None:
                return done

    async def acall(self, request: _Request, handler: Callable[[_Request], Awaitable[_Response]]) -> _Response:
        """Do the same as :meth:`call`, without blocking the loop."""
        call = _AgentCall(request, self._retries)
        while True:
            with listening(again=call.retries > 0) as heard:
                response = await handler(call.request)
            if (done := self._judge(call, response, heard)) is not None:
                return done

    def _judge(self, call: _AgentCall, response: _Response, heard: Heard) -> _Response | None:
        """Return what the agent gets; None to call the model again, with the changed request."""
        found = getattr(response, "result", None) or ()  # the handler of another guard may return anything
        message = next((one for one in found if one.type in ("ai", "AIMessageChunk")), None)
        cut = heard.verdict(message) if message is not None else None
        if message is None or cut is None or not cut.calls:
            return replace(response, result=[*call.cut_messages, *response.result]) if call.cut_messages else response
        call.times += 1
        _report(cut)
        if self._choice == "raise" or (call.times >= _MOST + self._retries):
            raise AnswerCut(calls=_named(cut), why=_WHY[cut.cause], times=call.times)
        if call.retries:
            call.retries -= 1
            return None
        asking = cut_message(message, cut)
        if not asking.tool_calls:
            return replace(response, result=[*call.cut_messages, asking], structured_response=None)
        results = cut_results(asking, cut, run_whole=self._run_whole)
        call.cut_messages += [asking, *results]
        if len(results) < len(asking.tool_calls):
            return replace(response, result=call.cut_messages, structured_response=None)
        # The results are made here and not by the agent: other parts of the agent (a human who approves calls, for one) must
        # not be asked about a call that does not run.
        call.request = call.request.override(messages=[*call.request.messages, asking, *results])
        return None


_WHY: Final = {"length": "it ran into its token limit", "incomplete": "it ended early"}


def _named(cut: Cut) -> str:
    return ", ".join(f"{one.name} ({one.id})" for one in answerable(cut)) or "whose names had not arrived"


def _report(cut: Cut) -> None:
    said = "an answer was cut off (%s) inside its tool calls (%s): the cut calls are not run"
    logger.warning(said, cut.cause, _named(cut))
