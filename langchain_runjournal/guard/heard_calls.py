"""A callback handler that hears the model calls in a block: the arguments of tool calls as received, and how calls end.

Rule: the message that a model returns no longer holds the text of its arguments, and LangChain's middleware sees nothing
else. A callback handler sees each chunk. LangChain adds this handler to every call in the block by a context variable, so
the program does not have to pass it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.tracers.context import register_configure_hook

from ..messages.chunks import stream_event_delta
from ..messages.cut_calls import ENDPOINTS, Cut, RawCalls, asks_again, endpoint_of, find_cut, is_of_calls


class _Call:
    """One model call."""

    def __init__(self, serialized: Any, metadata: Any) -> None:
        self.endpoint = endpoint_of(serialized, metadata)
        self.raw = RawCalls()
        self.streamed = False
        self.on_events = False

    def verdict(self, message: Any) -> Cut | None:
        """Return whether the answer was cut off. `ENDPOINTS` remembers how it ended, for later answers of the same model."""
        fields = vars(message)
        expects = ENDPOINTS.heard(self.endpoint, fields, streamed=self.streamed)
        return find_cut(fields, self.raw.texts(), expects=expects)


class Heard(BaseCallbackHandler):
    """A handler of the model calls inside of a block."""

    run_inline = True
    raise_error = False
    ignore_agent = True
    ignore_chain = True
    ignore_retriever = True
    ignore_retry = True
    ignore_custom_event = True

    def __init__(self) -> None:
        self._calls: dict[int, _Call] = {}
        self._verdicts: dict[str | None, Cut | None] = {}

    def verdict(self, message: Any) -> Cut | None:
        """Return whether this answer was cut off; judge by the message alone if the handler did not hear its call."""
        id = getattr(message, "id", None)
        return self._verdicts[id] if id in self._verdicts else find_cut(vars(message))

    def on_chat_model_start(self, serialized: Any, messages: Any, *, run_id: UUID, **about: Any) -> None:
        """Note which model is called."""
        self._calls[run_id.int] = _Call(serialized, about.get("metadata"))

    def on_llm_new_token(self, token: Any, *, run_id: UUID, chunk: Any = None, **about: Any) -> None:
        """Keep what a chunk adds to the arguments of calls."""
        call = self._calls.get(run_id.int)
        if call is not None:
            call.streamed = True
            chunks = getattr(getattr(chunk, "message", None), "tool_call_chunks", None)
            if chunks and not call.on_events:
                call.raw.add_chunks(chunks)

    def on_stream_event(self, event: Any, *, run_id: UUID, **about: Any) -> None:
        """Keep what an event of the v3 protocol adds. A call that reports both ways counts in this one."""
        call = self._calls.get(run_id.int)
        if call is None or not isinstance(event, Mapping):
            return
        if not call.on_events:
            call.on_events = call.streamed = True
            call.raw = RawCalls()
        delta = stream_event_delta(event)
        if is_of_calls(delta):
            call.raw.add(delta)

    def on_llm_end(self, response: Any, *, run_id: UUID, **about: Any) -> None:
        """Judge the answer."""
        call = self._calls.pop(run_id.int, None)
        for generation in response.generations[0] if call is not None and response.generations else ():
            message = getattr(generation, "message", None)
            if message is not None and call is not None:
                self._verdicts[message.id] = call.verdict(message)

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **about: Any) -> None:
        """Forget a call that has failed."""
        self._calls.pop(run_id.int, None)


_listening: ContextVar[Heard | None] = ContextVar("runjournal_heard", default=None)
register_configure_hook(_listening, inheritable=False)


@contextmanager
def listening(*, again: bool) -> Iterator[Heard]:
    """Hear the model calls that are made in the block. `again`: a cut answer is requested again (see `asks_again`)."""
    heard = Heard()
    token, before = _listening.set(heard), asks_again.set(again)
    try:
        yield heard
    finally:
        asks_again.reset(before)
        _listening.reset(token)
