"""The streams of one thread in this process, and the order in which they get events.

Clients read one thread on several connections, one of them for the state of runs only. They take what comes late on one
connection for a part of the next run. So, in one process: a stream of states gets the end of a run after the streams of
words have it; and a stream that was open when a command began a run gets its events after the answer to the command.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from typing import Final

PATIENCE: Final = 1.0
"""Seconds that one connection waits for the others at most."""
LEAD: Final = 0.05
"""Seconds between the answer to a command and the first events of its run. The Python SDK subscribes to the words of a run
only when it has the answer, and what came before that is lost to it."""
_KEPT: Final = 1_000

Place = tuple[str, int]
"""A run, and an event of it."""


class Reader:
    """One stream of words, and how far it has come."""

    def __init__(self) -> None:
        self.written: dict[str, int] = {}
        """By run, the last event that was handed to the connection."""


class ThreadReaders:
    """The streams of all threads in this process."""

    def __init__(self) -> None:
        self._readers: dict[str, set[Reader]] = {}
        self._news: dict[str, asyncio.Event] = {}
        self._begun: OrderedDict[str, float | None] = OrderedDict()
        """The runs that commands began here, and when their answers went out; None: not yet."""

    # --- the end of a run ---------------------------------------------------------------------------------------------

    def add(self, thread_id: str) -> Reader:
        """Return a new stream of words of a thread."""
        reader = Reader()
        self._readers.setdefault(thread_id, set()).add(reader)
        return reader

    def remove(self, thread_id: str, reader: Reader) -> None:
        """Forget a stream that has ended."""
        readers = self._readers.get(thread_id, set())
        readers.discard(reader)
        if not readers:
            self._readers.pop(thread_id, None)
        self._wake(thread_id)

    def passed(self, thread_id: str, reader: Reader, place: Place) -> None:
        """Note how far a stream of words has come."""
        reader.written[place[0]] = place[1]
        if len(reader.written) > 2:
            del reader.written[next(iter(reader.written))]
        self._wake(thread_id)

    async def until_passed(self, thread_id: str, place: Place) -> None:
        """Wait until the streams of words that read this run now have come this far."""
        run_id, seq = place
        give_up = time.monotonic() + PATIENCE
        while any(one.written.get(run_id, seq) < seq for one in self._readers.get(thread_id, ())):
            left = give_up - time.monotonic()
            if left <= 0:
                return
            news = self._news.setdefault(thread_id, asyncio.Event())
            try:
                await asyncio.wait_for(news.wait(), left)
            except asyncio.TimeoutError:
                return

    def _wake(self, thread_id: str) -> None:
        news = self._news.pop(thread_id, None)
        if news is not None:
            news.set()

    # --- the beginning of a run ---------------------------------------------------------------------------------------

    def began(self, run_id: str) -> None:
        """Note that a command is beginning a run, whose answer has not gone out."""
        self._begun[run_id] = None
        while len(self._begun) > _KEPT:
            self._begun.popitem(last=False)

    def answered(self, run_id: str) -> None:
        """Note that the answer to the command has gone out."""
        if run_id in self._begun:
            self._begun[run_id] = time.monotonic()

    async def until_answered(self, run_id: str, opened: float) -> None:
        """Wait until the client has had time to read the answer to the command that began a run, if one has.

        `opened`: when the stream was opened. A client that has opened it behind the answer need not wait.
        """
        give_up = time.monotonic() + PATIENCE
        while run_id in self._begun and time.monotonic() < give_up:
            answered = self._begun[run_id]
            left = LEAD if answered is None else answered + LEAD - time.monotonic()
            if left <= 0 or (answered is not None and opened > answered):
                return
            await asyncio.sleep(min(left, LEAD))
