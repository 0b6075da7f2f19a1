"""What is written: tokens as a model streams them, and the events around them."""

from __future__ import annotations

import itertools
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from langchain_runjournal import Event

WORDS = (" the", " cat", " sat", " down", "ing ", "tion", " with", " from", "ment", " over", "able", " when")
"""Tokens of four or five characters, as most are."""


def new_id() -> str:
    """The id of a run or a call, as LangChain makes them."""
    return str(uuid.uuid4())


def start(run_id: str, thread_id: str | None = None) -> Event:
    """How a run begins."""
    data = {"thread_id": thread_id or f"thread-{run_id[:8]}", "name": "agent", "metadata": {"user_id": "user-17"}}
    return Event(run_id=run_id, kind="run.start", data=data)


def model_start(run_id: str, call_id: str) -> Event:
    """How a model call begins."""
    data = {"model": "some-model", "node": "model", "checkpoint_ns": f"model:{run_id}", "attempt": 1}
    return Event(run_id=run_id, kind="llm.start", call_id=call_id, data=data)


def token(run_id: str, call_id: str, text: str) -> Event:
    """One token."""
    return Event(run_id=run_id, kind="llm.ai.delta", call_id=call_id, data={"text": text})


def end(run_id: str) -> Event:
    """How a run ends."""
    usage = {"input_tokens": 120, "output_tokens": 1000, "total_tokens": 1120}
    return Event(run_id=run_id, kind="run.end", data={"status": "completed", "usage": usage})


def tokens(run_id: str, call_id: str, count: int) -> list[Event]:
    """That many tokens. Built ahead, for what shall be measured without their construction."""
    return [token(run_id, call_id, text) for text in words(count)]


def words(count: int) -> list[str]:
    """That many texts."""
    return list(itertools.islice(itertools.cycle(WORDS), count))


@contextmanager
def busy_thread() -> Iterator[None]:
    """A thread that needs the GIL all the time, like a synchronous tool or a parser in the same process."""
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
