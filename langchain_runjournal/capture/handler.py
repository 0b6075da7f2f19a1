"""`JournalCallbackHandler`: what LangChain and LangGraph report, recorded as events of a journal."""

from __future__ import annotations

import copy
import logging
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final, TypeVar
from uuid import UUID

from langchain_core.callbacks.manager import ahandle_event
from langchain_core.runnables.config import var_child_runnable_config
from langchain_core.tracers._streaming import _StreamingCallbackHandler
from langgraph.callbacks import GraphCallbackHandler, GraphInterruptEvent, GraphResumeEvent

from ..common.shared_values import Shared
from ..errors import InvalidArgument
from ..events import DELTA
from ..events.encoding import encode_value
from ..journal.core import core_of
from ..journal.run_journal import RunJournal
from ..messages.answers import Answers, names_in
from ..messages.chunks import chunk_delta, short_json, stream_event_delta
from ..messages.partial import delta_is_visible
from . import callback_data
from .call_tree import Node, key_of, stack
from .calling_graph import Caller, called_graph, caller_of
from .custom_events import CustomEvents
from .cut_calls import Refusing, keep, refusing
from .never_raises import never_raises
from .recorder import recorder_of
from .stopped import refuse
from .stream_writer import observe_writer

logger = logging.getLogger("langchain_runjournal")

_NEAR: Final = 9
_T = TypeVar("_T")


class JournalCallbackHandler(Refusing, Shared, CustomEvents, GraphCallbackHandler):
    """Callback handler that records in a journal what a LangChain or LangGraph run says and does. Pass it in
    ``config={"callbacks": [JournalCallbackHandler(journal)]}``.

    A token is safe from `kill -9` before your code gets it. The run's id is that of its root, the one that you can give as
    ``config={"run_id": uuid}``; a model that is called without any chain around it is a run of its own. One handler serves
    any number of runs, at the same time, in any number of threads and event loops; two handlers of one journal on the same
    run record it once. It never raises, never waits, and changes nothing that other code sees. A copy of it, also a deep
    one, is the same handler.

    `capture_invoke`: make models stream inside ``invoke`` and ``ainvoke`` too, so that a Stop there keeps the text so far.
    Without it, a call that is cut off inside ``invoke`` has no text to keep, and no user saw any. With it, LangChain calls
    the model in another way, and your program may notice:

    - LangChain calls ``_stream`` instead of ``_generate``, and so the provider's streaming endpoint (unless the model has
      none, or ``disable_streaming`` forbids it). LangChain bypasses an overridden ``_generate``: it does not call a mock of
      it, and the request of a `ChatOpenAI` goes to the network. Recorded requests (VCR cassettes) no longer match.
    - `usage_metadata` is missing where the provider reports no usage in streams, for example on OpenAI-compatible endpoints.
      Other `response_metadata` may differ.
    - With ``n=2``, LangChain merges the text of both candidates into one message, which the journal stores as complete.
    - Some fakes of LangChain raise, for example `GenericFakeChatModel` if its message has no text or has content blocks.
    - With ``output_version="v1"``, content blocks have an `index`.
    - The id of a message is ``lc_run--<id>`` instead of ``lc_run--<id>-0``.
    - Other handlers get `on_llm_new_token`, and LangGraph runs nodes through ``stream``.

    `answers`: which model calls answer the user, where a call is cut off before its node has ended: the name of a node, a
    collection of names (each covers the nodes inside of it), or a function that gets a `ModelCall` and returns True for an
    answer. The other calls of nodes are helper calls: what is left of them never reaches the thread. Without `answers`, the
    journal decides by what the node did in earlier runs, by structured output and by the tag ``nostream``; a call of which
    it knows nothing is an answer.
    """

    run_inline = True
    """True: LangChain calls the handler on the thread that streams, in order, and before the consumer has the token."""
    ignore_llm = False
    ignore_chat_model = False
    ignore_chain = False
    ignore_agent = False
    ignore_retriever = False
    ignore_retry = True

    def __init__(self, journal: RunJournal, *, capture_invoke: bool = False, answers: Answers | None = None) -> None:
        if not isinstance(journal, RunJournal):
            raise InvalidArgument(name="journal", expected="a RunJournal, such as RunJournal('runs.db')", value=journal)
        names_in(answers)
        super().__init__()
        self.journal = journal
        self.answers = answers
        self.capture_invoke = capture_invoke
        self._core = core_of(journal)
        self._capture = recorder_of(journal)
        self._tracker = self._capture.tracker
        self.streaming: dict[int, Node] = {}
        """The model calls whose tokens this handler records, until the calls are over."""
        if capture_invoke:
            # LangChain and LangGraph look at the class: models stream if a handler is of this one.
            self.__class__ = _InvokeCapturing

    def __repr__(self) -> str:
        return f"JournalCallbackHandler({self.journal!r}{', capture_invoke=True' if self.capture_invoke else ''})"

    # --- tokens -------------------------------------------------------------------------------------------------------

    def on_llm_new_token(
        self,
        token: str | list[str | dict[str, Any]],
        *,
        run_id: UUID,
        chunk: Any = None,
        parent_run_id: UUID | None = None,
        tags: list[str] | None = None,
        **about: Any,
    ) -> Any:
        """Record what a chunk adds, before any other code has the chunk."""
        # This runs for every token and must do as little as possible. These few checks find the chunks of the usual shape.
        try:
            node = self.streaming[run_id.int]
            fields = chunk.message.__dict__
            content, calls = fields["content"], fields["tool_call_chunks"]
            if (
                fields["id"] == node.message_id
                and fields["response_metadata"] == node.metadata
                and not fields["additional_kwargs"]
                and fields["usage_metadata"] is None
            ):
                if not calls and type(content) is str:
                    if content:
                        if not node.said:
                            node.spoke, node.said = True, not content.isspace()
                        self._core.appender.record(node.run_id, node.id, DELTA, content)
                    return
                short = short_json(content, calls)
                if short is not None:
                    if calls:
                        node.raw.write(f"{short},")
                    if not node.said:
                        node.spoke, node.said = True, not calls and delta_is_visible({"blocks": content})
                    self._core.appender.record(node.run_id, node.id, DELTA, None, short)
                    return
        except (KeyError, AttributeError):
            # A plain text model, a call that is over, or an unknown shape.
            self._token(token, chunk, run_id)
            return
        except Exception:
            logger.exception("could not record a token")
            self._core.appender.miss()
            return
        self._token(token, chunk, run_id)

    @never_raises
    def _token(self, token: Any, chunk: Any, run_id: Any) -> None:
        node = self.streaming.get(key_of(run_id))
        if node is None:
            refuse(self._tracker.nodes.get(key_of(run_id)))
            return  # another handler records the call, or this one records it as stream events
        fields = getattr(getattr(chunk, "message", None), "__dict__", None)
        if fields is None:
            text = getattr(chunk, "text", None) or token
            data = {"text" if isinstance(text, str) else "blocks": text} if text else {}
        else:
            data = chunk_delta(fields, node.message_id, node.metadata)
        self._delta(node, data)

    @never_raises
    def on_stream_event(self, event: Any, *, run_id: UUID, **about: Any) -> Any:
        """Record what an event adds, in the other way in which models stream. A call that uses both ways is recorded in this
        one."""
        node = self._tracker.nodes.get(key_of(run_id))
        refuse(node)
        if node is None or node.owner is not self:
            return
        data = stream_event_delta(event)
        if not node.on_events:
            node.on_events = True
            self.streaming.pop(node.key, None)
            if node.spoke:
                # A model that reports its tokens by itself has reported the first one already.
                data["restart"] = True
        self._delta(node, data)

    def _delta(self, node: Node, data: dict[str, Any]) -> None:
        if not data:
            return
        node.spoke = True
        node.said = node.said or delta_is_visible(data)
        if "id" in data:
            node.message_id = data["id"]
        if "metadata" in data:
            node.metadata = copy.deepcopy(data["metadata"])
        if "usage" in data:
            node.usage = node.usage or {}
            callback_data.add_usage(node.usage, data["usage"])
        if not node.root.muted:
            written = encode_value(DELTA, data)
            keep(node, data, written)
            self._core.appender.record(node.run_id, node.id, DELTA, data, written)

    # --- the rest --------------------------------------------------------------------------------------------------

    @never_raises
    def on_chat_model_start(self, serialized: Any, messages: Any, *, run_id: UUID, **about: Any) -> Any:
        """Record that a program calls a chat model."""
        self._model(serialized, messages[0] if messages else [], run_id, about)

    @never_raises
    def on_llm_start(self, serialized: Any, prompts: Any, *, run_id: UUID, **about: Any) -> Any:
        """Record that a program calls a plain text model."""
        try:
            self._model(serialized, prompts[0] if prompts else "", run_id, about)
        finally:
            self._let_others_hear(serialized, prompts, run_id, about)

    @never_raises
    def on_llm_end(self, response: Any, *, run_id: UUID, **about: Any) -> Any:
        """Record that a model call is complete."""
        self._over(run_id, self._capture.respond, response)

    @never_raises
    def on_llm_error(self, error: BaseException, *, run_id: UUID, **about: Any) -> Any:
        """Record that a model call has failed, or was cut off in one of the ways that LangChain reports."""
        self._over(run_id, self._capture.fail, error, error)

    @never_raises
    def on_chain_start(self, serialized: Any, inputs: Any, *, run_id: UUID, **about: Any) -> Any:
        """Record that a chain, a graph or a task of a graph begins."""
        name, called = callback_data.name_of(serialized, about), called_graph()
        caller = None if called is None else caller_of(*called, self.journal)
        record = partial(self._capture.chain, inputs=inputs, metadata=about.get("metadata"), name=name)
        self._begin(name, run_id, about, record, caller)
        node = None if called is None else self._tracker.nodes.get(key_of(run_id))
        if called is not None and node is not None and node.owner is self:
            observe_writer(self._capture, self.journal, node, called[1])

    @never_raises
    def on_chain_end(self, outputs: Any, *, run_id: UUID, **about: Any) -> Any:
        """Record that a chain has ended well."""
        self._over(run_id, self._capture.finish, outputs)

    @never_raises
    def on_chain_error(self, error: BaseException, *, run_id: UUID, **about: Any) -> Any:
        """Record that a chain has failed, or was cancelled, or was left."""
        self._over(run_id, self._capture.break_off, error, error)

    @never_raises
    def on_retriever_start(self, serialized: Any, query: str, *, run_id: UUID, **about: Any) -> Any:
        """Record that a retriever begins. To the journal, it is a chain like any other."""
        self._begin(callback_data.name_of(serialized, about), run_id, about, lambda node: None)

    @never_raises
    def on_retriever_end(self, documents: Any, *, run_id: UUID, **about: Any) -> Any:
        """Record that a retriever has ended well."""
        self._over(run_id, self._capture.finish, None)

    @never_raises
    def on_retriever_error(self, error: BaseException, *, run_id: UUID, **about: Any) -> Any:
        """Record that a retriever has failed."""
        self._over(run_id, self._capture.break_off, error, error)

    @refusing
    @never_raises
    def on_tool_start(self, serialized: Any, input_str: str, *, run_id: UUID, **about: Any) -> Any:
        """Record that a tool begins."""
        name, args = callback_data.name_of(serialized, about), input_str if about.get("inputs") is None else about["inputs"]
        tool_call_id, metadata = about.get("tool_call_id"), about.get("metadata")
        self._begin(name, run_id, about, lambda node: self._capture.tool(node, name, args, tool_call_id, metadata))

    @never_raises
    def on_tool_end(self, output: Any, *, run_id: UUID, **about: Any) -> Any:
        """Record that a tool has ended well. A synchronous tool may end long after its run."""
        self._over(run_id, self._capture.result, output)

    @never_raises
    def on_tool_error(self, error: BaseException, *, run_id: UUID, **about: Any) -> Any:
        """Record that a tool has failed, or waits for a human."""
        self._over(run_id, self._capture.tool_error, error, error)

    @never_raises
    def on_interrupt(self, event: GraphInterruptEvent) -> Any:
        """Record that a graph waits for a human. Its root then ends as if it were complete."""
        self._capture.do(partial(self._capture.pause, event))

    @never_raises
    def on_resume(self, event: GraphResumeEvent) -> Any:
        """Note that a graph resumes after it has waited for a human."""
        self._capture.do(partial(self._capture.resume, event))

    # --- helpers ------------------------------------------------------------------------------------------------------

    def _begin(
        self,
        name: str | None,
        run_id: Any,
        about: dict[str, Any],
        record: Callable[[Node], None],
        caller: Caller | None = None,
    ) -> None:
        parent = about.get("parent_run_id") or self._fallback_around()
        refuse(self._tracker.find(parent))

        def work() -> None:
            node = self._capture.begin(self, run_id, parent, about.get("metadata"), name, caller)
            if node is not None:
                record(node)

        self._capture.do(work)

    def _fallback_around(self) -> UUID | None:
        """Return the id of the chain with fallbacks around this call. LangChain reports the parts of such a chain without a
        parent, unlike those of any other chain; only the context variable names the parent."""
        config = var_child_runnable_config.get()
        parent = getattr((config or {}).get("callbacks"), "parent_run_id", None)
        node = self._tracker.nodes.get(key_of(parent)) if parent is not None else None
        return parent if node is not None and node.name == "RunnableWithFallbacks" else None

    def _model(self, serialized: Any, asked: Any, run_id: Any, about: dict[str, Any]) -> None:
        metadata, tags, params = about.get("metadata"), about.get("tags"), about.get("invocation_params")
        options = about.get("options")

        def record(node: Node) -> None:
            # First of all: if the lines below fail, the tokens of the call are recorded all the same.
            node.model = "unknown"
            self.streaming[node.key] = node
            self._capture.model(node, serialized, asked, metadata, tags, params, options)

        self._begin(callback_data.name_of(serialized, about), run_id, about, record)

    def _let_others_hear(self, serialized: Any, prompts: Any, run_id: UUID, about: dict[str, Any]) -> None:
        """Schedule the start of a plain text model for the handlers that are not inline. In its asynchronous callbacks,
        LangChain forgets these handlers as soon as there is one that is inline; `astream_events` is such a handler, and
        would stay empty because of ours. So this method schedules them where LangChain would have done it."""
        known: Mapping[str, Any] = {}
        for frame in stack(_NEAR):
            if frame.f_code.co_name == "on_llm_start" and "non_inline_tasks" in frame.f_locals:
                known = frame.f_locals
                break
        inline, others = known.get("inline_handlers", ()), known.get("non_inline_handlers", ())
        ours = [handler for handler in inline if isinstance(handler, JournalCallbackHandler)]
        if others and ours == inline and ours[0] is self:
            scheduled = ahandle_event(others, "on_llm_start", "ignore_llm", serialized, prompts, run_id=run_id, **about)
            known["non_inline_tasks"].append(scheduled)

    def _over(self, run_id: Any, end: Callable[[Node, Any], None], value: Any, error: BaseException | None = None) -> None:
        """Record that a call has ended, unless it has ended before, or another handler records it."""

        def work() -> None:
            node = self._tracker.nodes.get(key_of(run_id))
            if node is not None and node.owner is self:
                try:
                    end(node, value)
                finally:
                    # Also if `end` has failed: the call is over, and its run may be.
                    self._capture.close(node, error)

        self._capture.do(work)


class _InvokeCapturing(JournalCallbackHandler, _StreamingCallbackHandler[Any]):
    """The same handler, where models stream inside of `invoke` too. LangChain looks for this class, and shows it output that
    it must pass on."""

    def tap_output_aiter(self, run_id: UUID, output: AsyncIterator[_T]) -> AsyncIterator[_T]:
        tapping = _next_to_tap(self)
        return output if tapping is None else tapping.tap_output_aiter(run_id, output)

    def tap_output_iter(self, run_id: UUID, output: Iterator[_T]) -> Iterator[_T]:
        tapping = _next_to_tap(self)
        return output if tapping is None else tapping.tap_output_iter(run_id, output)


def _next_to_tap(ours: JournalCallbackHandler) -> _StreamingCallbackHandler[Any] | None:
    """Return the streaming handler that LangChain would have found without ours, if LangChain has stopped at ours.

    LangChain shows the output of a chain to the first streaming handler of a run only (`_transform_stream_with_config`), and
    `astream_events` and `astream_log` listen with a handler of that kind. LangGraph shows the output to each of them in
    turn: there, ours must not pass it on, or `astream_log` would report each chunk twice.
    """
    caller = sys._getframe(2).f_locals
    if caller.get("stream_handler") is not ours:
        return None
    handlers = getattr(caller.get("run_manager"), "handlers", ())
    others = (one for one in handlers if not isinstance(one, JournalCallbackHandler))
    return next((one for one in others if isinstance(one, _StreamingCallbackHandler)), None)
