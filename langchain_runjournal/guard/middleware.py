"""`ToolPairGuard`, in the only module that needs LangChain's agents."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Literal

from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import AgentState, ModelRequest, ModelResponse

from ..errors import InvalidArgument
from ..journal.core import core_of
from ..journal.run_journal import RunJournal
from ..messages.tool_requests import Request
from ..messages.tool_results import CallKnowledge
from . import bridge as _bridge
from .on_cut import OnCut
from .projection import Projection, is_whole, project, wanted
from .repair import check_policies

logger = logging.getLogger("langchain_runjournal")

_Call = tuple[str | None, str]
_Knowledge = Mapping[_Call, CallKnowledge]


class ToolPairGuard(AgentMiddleware[AgentState[Any], Any, Any]):
    """Agent middleware: no model sees a tool request without its result.

    Put it last in the list of middleware, so that it sees the request as the model would get it. It changes the request
    only: what is stored, and what the user sees, stays as it is. A history without problems passes unchanged.

    With a `journal`, a missing result is the real one wherever the journal has it, and a synthetic one says what the journal
    knows. `dangling` and `orphans` are as for `repair_tool_pairs`. With `notes`, a short note to the model follows each
    answer that was cut off, in the user's next message or alone. The note says that the answer was cut off, and why; it is
    not stored.

    `bridge` puts a short answer of the model before a message of the user that stands right behind a tool's result, or
    behind another message of the user. That answer says that no answer was given, and is not stored. "auto" does so for
    models that are known to refuse such a history (docs/limits.md names them): Mistral's on any server, Gemma and Llama 2.

    No tool runs with arguments that were cut, whether the answer ran into its token limit inside a call or ended early.
    `on_cut` says what happens instead. With "answer", each call of such an answer gets a result that says so, and the agent
    calls the model again with these results. With "retry", the guard discards the answer and calls the model again, at most
    `cut_retries` times, and then does as with "answer". With "raise", it raises `errors.AnswerCut`. It also raises this when
    three answers in a row were cut. With `run_whole_calls`, the calls of a cut answer that arrived whole do run; by default
    none of them runs.
    """

    def __init__(
        self,
        journal: RunJournal | None = None,
        *,
        dangling: Literal["synthesize", "strip", "hold", "raise"] = "synthesize",
        orphans: Literal["drop", "keep", "raise"] = "drop",
        notes: bool = True,
        bridge: bool | Literal["auto"] = "auto",
        on_cut: Literal["answer", "retry", "raise"] = "answer",
        cut_retries: int = 2,
        run_whole_calls: bool = False,
    ) -> None:
        super().__init__()
        if journal is not None and not isinstance(journal, RunJournal):
            raise InvalidArgument(name="journal", expected="a RunJournal or None", value=journal)
        if not isinstance(notes, bool):
            raise InvalidArgument(name="notes", expected="True or False", value=notes)
        if not isinstance(bridge, bool) and bridge != "auto":
            raise InvalidArgument(name="bridge", expected="True, False or 'auto'", value=bridge)
        check_policies(dangling, orphans)
        self._journal = journal
        self._dangling = dangling
        self._orphans = orphans
        self._notes = notes
        self._bridge = bridge
        self._on_cut = OnCut(on_cut, retries=cut_retries, run_whole=run_whole_calls)

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """Call the model with the repaired request."""
        if self._is_whole(request):
            return self._on_cut.call(request, handler)
        knowledge: _Knowledge = {}
        try:
            if (look_up := self._look_up(request)) is not None:
                knowledge = look_up()
        except Exception:  # noqa: BLE001 - the journal must not be the reason that a model is not called
            _report_unread()
        return self._on_cut.call(self._made_whole(request, knowledge), handler)

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any]:
        """Do the same as :meth:`wrap_model_call`, and read the journal without blocking the loop."""
        if self._is_whole(request):
            return await self._on_cut.acall(request, handler)
        knowledge: _Knowledge = {}
        try:
            if self._journal is not None and (look_up := self._look_up(request)) is not None:
                knowledge = await core_of(self._journal).off_loop(look_up)
        except Exception:  # noqa: BLE001 - the journal must not be the reason that a model is not called
            _report_unread()
        return await self._on_cut.acall(self._made_whole(request, knowledge), handler)

    def _is_whole(self, request: ModelRequest[Any]) -> bool:
        return is_whole(request.messages) and not _bridge.gaps(request.messages, self._bridges(request))

    def _bridges(self, request: ModelRequest[Any]) -> _bridge.Behind:
        if isinstance(self._bridge, str):
            return _bridge.needed(request.model)
        return _bridge.BOTH if self._bridge else _bridge.NOTHING

    def _look_up(self, request: ModelRequest[Any]) -> Callable[[], _Knowledge] | None:
        """Return a function that asks the journal; None without a journal, without a thread, or with nothing to ask."""
        if self._journal is None:
            return None
        calls = [(message.id, one.id) for message, one in wanted(request.messages) if one.id is not None]
        thread_id = _thread_id(request) if calls else None
        if thread_id is None:
            return None
        # Imported here because most agents never need it.
        from ..journal.tool_history import look_up

        return partial(look_up, self._journal, thread_id, calls)

    def _made_whole(self, request: ModelRequest[Any], knowledge: _Knowledge) -> ModelRequest[Any]:
        def ask(message: Any, one: Request) -> CallKnowledge:
            return knowledge.get((message.id, one.id or ""), _NOTHING)

        found = project(
            request.messages,
            ask,
            dangling=self._dangling,
            orphans=self._orphans,
            notes=self._notes,
            bridge=self._bridges(request),
        )
        if found.messages is request.messages:
            return request
        _report(found)
        return request.override(messages=found.messages)


_NOTHING = CallKnowledge()
_USUAL = ("noted", "bridged", "cleaned")


def _thread_id(request: ModelRequest[Any]) -> str | None:
    # The execution info first: asynchronous code on Python 3.10 cannot see the config of the task that it runs in.
    info = getattr(request.runtime, "execution_info", None)
    thread_id = getattr(info, "thread_id", None)
    if thread_id is None:
        from langgraph.config import get_config

        try:
            thread_id = get_config().get("configurable", {}).get("thread_id")
        except RuntimeError:
            return None  # called outside of a graph
    return None if thread_id is None else str(thread_id)


def _report(found: Projection) -> None:
    """Log one line for each request that the guard changed.

    Changes of the usual three kinds are expected after an answer was cut off, so they are logged at DEBUG.
    """
    level = logging.DEBUG if all(action.kind in _USUAL for action in found.actions) else logging.INFO
    if logger.isEnabledFor(level):
        done = ", ".join(
            f"{one.kind} {one.name} ({one.id})" if one.name else f"{one.kind} {one.id}" for one in found.actions
        )
        logger.log(level, "repaired the request to the model; the thread stays as it is: %s", done)


def _report_unread() -> None:
    logger.warning("could not read missing tool results from the journal; repairing the request without them", exc_info=True)
