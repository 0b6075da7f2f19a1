"""`TraceEndingHandler`: ends calls that were cut off in the tracers that LangChain's callbacks feed."""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
from collections.abc import Callable, Iterable
from typing import Any, Final, ParamSpec
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler, BaseCallbackManager
from langchain_core.callbacks.manager import handle_event

from ..capture.because import current_cause
from ..capture.call_tree import key_of, stack
from ..capture.callback_data import ending, is_abort, name_of
from ..common.shared_values import Shared
from ..errors import InvalidArgument
from ..journal.run_journal import RunJournal
from .open_calls import CallType, OpenCall, cut_answer, cut_tool, ends_children, is_tracer, standing

logger = logging.getLogger("langchain_runjournal")

_NEAR: Final = 12
_STARTS: Final = frozenset({"on_chain_start", "on_chat_model_start", "on_llm_start", "on_tool_start"})
_P = ParamSpec("_P")


def _only_logs(method: Callable[_P, Any]) -> Callable[_P, None]:
    """Return a callback that logs its errors. Nothing is missing in the journal then, as it is where `never_raises` logs."""

    @functools.wraps(method)
    def guarded(*args: _P.args, **kwargs: _P.kwargs) -> None:
        try:
            method(*args, **kwargs)
        except Exception:
            logger.exception("could not end calls in tracers in %s", method.__name__)

    return guarded


class TraceEndingHandler(Shared, BaseCallbackHandler):
    """Callback handler that ends calls which were cut off in the tracers of the same run: LangSmith's `LangChainTracer`,
    Langfuse's handler, those of OpenInference and OpenLLMetry, and any `BaseTracer` of LangChain.

    If a task is cancelled inside of a model call or a tool call, LangChain reports no end of that call, and a tracer keeps
    it open for ever. This handler reports the end through LangChain's own callbacks (`on_llm_end`, `on_tool_end`): with the
    partial answer, the status "interrupted" and the cause, and not as an error. ``attach(graph, journal, traces=True)`` adds
    it to the calls of a graph. Without `attach`, pass it in ``config={"callbacks": [TraceEndingHandler(journal), tracer]}``,
    in front of the tracers. A call that LangChain ends by itself stays as LangChain has ended it, as does a chain.

    `tracers`: further classes of callback handlers that are tracers, such as one of your own.
    """

    run_inline = True
    ignore_retriever = True
    ignore_retry = True
    ignore_custom_event = True

    def __init__(self, journal: RunJournal, *, tracers: Iterable[type[BaseCallbackHandler]] = ()) -> None:
        if not isinstance(journal, RunJournal):
            raise InvalidArgument(name="journal", expected="a RunJournal, such as RunJournal('runs.db')", value=journal)
        self.tracers = _classes(tracers)
        self.journal = journal
        self._open: dict[int, OpenCall] = {}
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        return f"TraceEndingHandler({self.journal!r})"

    # --- beginnings ---------------------------------------------------------------------------------------------------

    @_only_logs
    def on_chat_model_start(self, serialized: Any, messages: Any, *, run_id: UUID, **about: Any) -> Any:
        """Note that a model call begins, and which tracers see it."""
        self._begin("llm", run_id, about)

    @_only_logs
    def on_llm_start(self, serialized: Any, prompts: Any, *, run_id: UUID, **about: Any) -> Any:
        """Note that a call of a plain text model begins."""
        self._begin("llm", run_id, about)

    @_only_logs
    def on_tool_start(self, serialized: Any, input_str: str, *, run_id: UUID, **about: Any) -> Any:
        """Note that a tool call begins."""
        call = self._begin("tool", run_id, about)
        call.tool = {"name": name_of(serialized, about), "tool_call_id": about.get("tool_call_id")}

    @_only_logs
    def on_chain_start(self, serialized: Any, inputs: Any, *, run_id: UUID, **about: Any) -> Any:
        """Note that a chain begins: calls below it end with it if it is cut off."""
        self._begin("chain", run_id, about)

    def _begin(self, type: CallType, run_id: UUID, about: dict[str, Any]) -> OpenCall:
        others, task = _called_with(self, self.tracers)
        parent_run_id = about.get("parent_run_id")
        with self._lock:
            parent = self._open.get(key_of(parent_run_id)) if parent_run_id is not None else None
            call = OpenCall(type, run_id, parent, parent_run_id, task, others, about.get("tags"))
            self._open[key_of(run_id)] = call
            if parent is not None:
                parent.below[key_of(run_id)] = call
        if parent is None and type != "chain" and task is not None:
            # Nothing around the call reports that it was cut off.
            task.add_done_callback(lambda _: self._task_done(call, None))
        return call

    # --- tokens -------------------------------------------------------------------------------------------------------

    def on_llm_new_token(self, token: Any, *, run_id: UUID, chunk: Any = None, **about: Any) -> Any:
        """Keep what a chunk adds, until the call ends."""
        try:
            deltas = self._open[run_id.int].deltas
            fields = chunk.message.__dict__
            content = fields["content"]
            if deltas and type(content) is str and not (fields["tool_call_chunks"] or fields["usage_metadata"]):
                deltas.append(content)
            else:
                deltas.append(fields)
        except (KeyError, AttributeError):
            call = self._open.get(key_of(run_id))
            if call is not None and isinstance(token, str):
                call.deltas.append(token)

    # --- endings ------------------------------------------------------------------------------------------------------

    @_only_logs
    def on_llm_end(self, response: Any, *, run_id: UUID, **about: Any) -> Any:
        """Forget a call that LangChain has ended."""
        self._forget(run_id)

    @_only_logs
    def on_llm_error(self, error: BaseException, *, run_id: UUID, **about: Any) -> Any:
        """Forget a call that LangChain has ended."""
        self._forget(run_id)

    @_only_logs
    def on_tool_end(self, output: Any, *, run_id: UUID, **about: Any) -> Any:
        """Forget a call that LangChain has ended."""
        self._forget(run_id)

    @_only_logs
    def on_tool_error(self, error: BaseException, *, run_id: UUID, **about: Any) -> Any:
        """Forget a call that LangChain has ended."""
        self._forget(run_id)

    @_only_logs
    def on_chain_end(self, outputs: Any, *, run_id: UUID, **about: Any) -> Any:
        """End the calls that a completed run has left behind: their tasks are done, and they have no end."""
        self._over(run_id, None)

    @_only_logs
    def on_chain_error(self, error: BaseException, *, run_id: UUID, **about: Any) -> Any:
        """End the calls inside of a chain that was cut off."""
        self._over(run_id, error)

    def _over(self, run_id: UUID, error: BaseException | None) -> None:
        chain = self._open.get(key_of(run_id))
        if chain is None:
            return
        asked = self.journal.stop_requested(str(chain.root.run_id)) or current_cause()
        is_cut = error is not None and is_abort(error)
        if chain.parent is not None:
            # Only the root knows a cause that the program has not given, but these tracers cannot wait for it.
            self._end(chain, lambda call: is_cut or call.task.done(), asked, ends_children)
            self._forget(run_id, keep=True)
            return
        cause = ending(error, asked).get("cause") if error is not None else None
        self._end(chain, lambda call: is_cut or call.task.done(), cause, lambda tracer: True)
        self._forget(run_id)

    def _end(
        self,
        chain: OpenCall,
        is_over: Callable[[OpenCall], bool],
        cause: str | None,
        wanted: Callable[[BaseCallbackHandler], bool],
    ) -> None:
        with self._lock:
            calls = [one for one in chain.inside() if one.task is not None and is_over(one)]
        for call in calls:
            if call.type == "chain" and not call.task.done():
                self._wait_for(call, cause)  # LangChain still reports its end, unless its task is cut off before that
            else:
                self._end_in(call, [one for one in call.tracers if wanted(one)], cause)

    def _wait_for(self, chain: OpenCall, cause: str | None) -> None:
        """End a chain when its task is done, if LangChain has not reported its end by then."""
        if chain.root.run_id == chain.run_id or chain.is_awaited:
            return
        chain.is_awaited = True
        chain.task.add_done_callback(lambda _: self._task_done(chain, cause))

    def _end_in(self, call: OpenCall, tracers: list[BaseCallbackHandler], cause: str | None) -> None:
        call.tracers = [one for one in call.tracers if one not in tracers]
        if not tracers:
            return
        about = {"run_id": call.run_id, "parent_run_id": call.parent_run_id, "tags": call.tags}
        if call.type == "llm":
            handle_event(tracers, "on_llm_end", "ignore_llm", cut_answer(call, cause), **about)
        elif call.type == "tool":
            handle_event(tracers, "on_tool_end", "ignore_agent", cut_tool(call, cause), **about)
        else:
            handle_event(tracers, "on_chain_end", "ignore_chain", {"runjournal": standing(cause)}, **about)

    @_only_logs
    def _task_done(self, call: OpenCall, cause: str | None) -> None:
        if self._open.get(key_of(call.run_id)) is call:
            asked = self.journal.stop_requested(str(call.run_id)) or current_cause() or "stop"
            self._end_in(call, call.tracers, cause or asked)
            self._forget(call.run_id)

    def _forget(self, run_id: UUID, *, keep: bool = False) -> None:
        """Forget a call that is over. `keep`: calls below it are still open, and the root ends them."""
        with self._lock:
            call = self._open.pop(key_of(run_id), None)
            if call is None:
                return
            if call.parent is not None:
                call.parent.below.pop(key_of(run_id), None)
            for key, one in list(call.below.items()):
                if keep and call.parent is not None:
                    one.parent = call.parent
                    call.parent.below[key] = one
                elif one.is_awaited:
                    one.parent = None
                else:
                    self._forget(one.run_id)


def _classes(tracers: Iterable[type[BaseCallbackHandler]]) -> tuple[type[BaseCallbackHandler], ...]:
    found = tuple(tracers) if isinstance(tracers, Iterable) else (tracers,)
    if not all(isinstance(one, type) and issubclass(one, BaseCallbackHandler) for one in found):
        raise InvalidArgument(name="tracers", expected="classes of callback handlers", value=tracers)
    return found


def _called_with(ours: object, others: tuple[type, ...]) -> tuple[list[BaseCallbackHandler], Any]:
    """Return the tracers that LangChain tells of the call that begins, and the task of the call if LangChain awaits it.
    A handler is not told of the others, so this looks at the callback manager that tells them all."""
    for frame in stack(_NEAR):
        manager = frame.f_locals.get("self") if frame.f_code.co_name in _STARTS else None
        if isinstance(manager, BaseCallbackManager):
            handlers = [one for one in manager.handlers if one is not ours and is_tracer(one, others)]
            return handlers, _task() if type(manager).__name__.startswith("Async") else None
    return [], None


def _task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None
