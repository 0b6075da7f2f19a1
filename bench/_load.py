"""The load: tokens as a model streams them, and the events around them."""

from __future__ import annotations

import itertools
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from langchain_runjournal import Event

WORDS = (" the", " cat", " sat", " down", "ing ", "tion", " with", " from", "ment", " over", "able", " when")
"""Tokens of four or five characters, which is the usual length."""


def new_id() -> str:
    """Return an id for a run or a call, as LangChain creates it."""
    return str(uuid.uuid4())


def start(run_id: str, thread_id: str | None = None) -> Event:
    """Return the first event of a run."""
    data = {"thread_id": thread_id or f"thread-{run_id[:8]}", "name": "agent", "metadata": {"user_id": "user-17"}}
    return Event(run_id=run_id, kind="run.start", data=data)


def model_start(run_id: str, call_id: str) -> Event:
    """Return the first event of a model call."""
    data = {"model": "some-model", "node": "model", "checkpoint_ns": f"model:{run_id}", "attempt": 1}
    return Event(run_id=run_id, kind="llm.start", call_id=call_id, data=data)


def token(run_id: str, call_id: str, text: str) -> Event:
    """Return the event of one token."""
    return Event(run_id=run_id, kind="llm.ai.delta", call_id=call_id, data={"text": text})


def end(run_id: str) -> Event:
    """Return the last event of a run."""
    usage = {"input_tokens": 120, "output_tokens": 1000, "total_tokens": 1120}
    return Event(run_id=run_id, kind="run.end", data={"status": "completed", "usage": usage})


def tokens(run_id: str, call_id: str, count: int) -> list[Event]:
    """Return `count` token events, built in advance so that a measurement does not include their construction."""
    return [token(run_id, call_id, text) for text in words(count)]


def words(count: int) -> list[str]:
    """Return the texts of `count` tokens."""
    return list(itertools.islice(itertools.cycle(WORDS), count))


@contextmanager
def busy_thread() -> Iterator[None]:
    """Run a thread that competes for the GIL all the time, like a synchronous tool or a parser in the same process."""
    stop = threading.Event()

    def spin() -> None:
        number = 0
        while not stop.is_set():
            for _ in range(10_000):
                number += 1

    thread = threading.Thread(target=spin, name="busy", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
