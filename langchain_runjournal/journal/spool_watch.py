"""The watch over the files of a spool: if another program has deleted or replaced one, it makes a new spool.

Rule: a record in a file without a name is lost with the process. The watch puts all events that the store does not have into
a new spool, before any caller gets an error that says that they are safe from a kill.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from .spool import TEXT, VALUE, Spool

if TYPE_CHECKING:
    from .append import Appender
    from .run_buffer import RunBuffer

logger = logging.getLogger("langchain_runjournal")

_INTERVAL: Final = 0.5
"""The seconds between two looks while events come."""


class SpoolWatch:
    """The watch over the spool of one appender. The writer thread calls its methods."""

    def __init__(self, appender: Appender, beat: Callable[[], None], url: str) -> None:
        self._appender, self._url = appender, url
        self._beat = beat
        self._due = 0.0
        self._gone: Spool | None = None
        """The spool that has lost files, as long as no new one can be made."""

    def look(self, *, again: bool = False) -> None:
        """Make a new spool if a file of this one was deleted or replaced. `again`: try also if making one failed before."""
        spool = self._appender.spool or (self._gone if again else None)
        self._due = time.monotonic() + _INTERVAL
        try:
            if spool is not None and (missing := spool.missing()):
                self._replace_spool(spool, missing)
        except Exception:
            logger.exception("the spool of %s has lost files, and no new one could be made; retrying", self._url)

    def look_if_due(self) -> None:
        """Call `look` if the last one was half a second ago.

        The writer calls this method after a batch that it could store. It does not look after each batch, because every
        system call releases the GIL.
        """
        if time.monotonic() >= self._due:
            self.look()

    def _replace_spool(self, spool: Spool, missing: list[Path]) -> None:
        try:
            self._beat()  # before the files exist: other processes take files of an unknown owner for those of a dead one
        except Exception as exc:  # noqa: BLE001 - whatever a store raises
            logger.debug("making a new spool without a heartbeat: %s", exc)
        is_news, waiting = self._gone is None, self._appender.waiting
        try:
            fresh: Spool | None = spool.successor()
        except OSError as exc:
            fresh = None
            if is_news:
                logger.error(
                    "the spool of %s has lost files to another program (%s), and no new one can be made (%s): events wait in"
                    " memory until they are stored, and a kill loses them; waiting now: %d",
                    *(self._url, _names(missing), exc, waiting),
                )
        self._gone = spool if fresh is None else None
        whole = continue_in(self._appender, fresh)
        spool.close(keep=False)
        if fresh is not None:
            logger.warning(
                "the spool of %s has lost files to another program (%s): until now, a kill would have lost the events that"
                " had not been stored. %s; waiting now: %d",
                *(self._url, _names(missing)),
                "They are in a new spool now" if whole else "The new spool has no room for all of them",
                waiting,
            )


def _names(paths: list[Path]) -> str:
    return ", ".join(path.name for path in paths)


def continue_in(appender: Appender, spool: Spool | None) -> bool:
    """Use another spool, or none, and put all events that the store does not have into it. Return whether it had room."""
    with appender._lock:
        outer = appender._inside
        try:
            appender._inside = True  # an event that a finalizer appends meanwhile is kept until this is done
            appender.spool = spool
            appender.spool_records.restart()
            whole = True
            for buffer in list(appender.buffers.values()):
                buffer.file, buffer.unsafe = None, 0
                if spool is not None and buffer.pend and buffer.shut is None:
                    whole = _put_again(appender, spool, buffer) and whole
        finally:
            appender._inside = outer
        appender.refill(0)
    return whole


def _put_again(appender: Appender, spool: Spool, buffer: RunBuffer) -> bool:
    """Put the events of a run buffer into a spool that has none of them. Return whether it had room."""
    calls = dict(zip(buffer.calls[0::2], buffer.calls[1::2], strict=True))
    call = json.loads(cast("str", buffer.calls[1]))
    seq, at = buffer.base, buffer.base_at
    for step, text in zip(buffer.pend[0::2], buffer.pend[1::2], strict=True):
        seq, at = seq + 1, at + cast("int", step)
        if seq in calls:
            call = json.loads(cast("str", calls[seq]))
        raw = cast("str", text).encode()
        if not appender.spool_records.put(spool, buffer, call, (seq, at, TEXT if raw[:1] == b'"' else VALUE, raw)):
            # The spool must not hold later events of the run without this one, so they wait until the store has it.
            buffer.file, buffer.unsafe = None, buffer.seq
            return False
    return True
