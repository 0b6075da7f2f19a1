"""Whether the files of the spool are still where a recovery would look for them, and what is done if they are not.

Rule: a record in a file that has no name any more is lost with the process. What is not in the store yet is put into a new
spool before anybody hears that it is safe from a kill.
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

_OFTEN: Final = 0.5
"""Seconds between two looks while events come."""


class SpoolWatch:
    """Looks after the spool of one intake, in the thread of its writer."""

    def __init__(self, appender: Appender, beat: Callable[[], None], url: str) -> None:
        self._appender, self._url = appender, url
        self._beat = beat
        self._due = 0.0
        self._gone: Spool | None = None
        """The spool whose files have gone, while no other one can be made."""

    def look(self, *, again: bool = False) -> None:
        """Make a new spool if a file of this one was deleted or replaced. `again`: also if that has failed before."""
        spool = self._appender.spool or (self._gone if again else None)
        self._due = time.monotonic() + _OFTEN
        try:
            if spool is not None and (missing := spool.missing()):
                self._begin_anew(spool, missing)
        except Exception:
            logger.exception("the spool of %s has lost files, and no new one could be made; retrying", self._url)

    def look_in_passing(self) -> None:
        """The same, where all that anybody hears of is in the store: not with each batch, since every system call gives up
        the interpreter lock."""
        if time.monotonic() >= self._due:
            self.look()

    def _begin_anew(self, spool: Spool, missing: list[Path]) -> None:
        try:
            self._beat()  # before there are files: those of an owner that the store does not know are a dead one's
        except Exception as exc:  # noqa: BLE001 - whatever a store raises
            logger.debug("making a new spool without a heartbeat: %s", exc)
        is_news, waiting = self._gone is None, self._appender.waiting
        try:
            fresh: Spool | None = spool.again()
        except OSError as exc:
            fresh = None
            if is_news:
                logger.error(
                    "the spool of %s has lost files to another program (%s), and no new one can be made (%s): events wait in"
                    " memory until they are stored, and a kill loses them; waiting now: %d",
                    *(self._url, _names(missing), exc, waiting),
                )
        self._gone = spool if fresh is None else None
        whole = go_on_in(self._appender, fresh)
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


def go_on_in(appender: Appender, spool: Spool | None) -> bool:
    """Use another spool, or none, from now on, with all that is not in the store. Whether there was room for that."""
    with appender._lock:
        outer = appender._inside
        try:
            appender._inside = True  # a finaliser that appends in the middle of this waits until it is done
            appender.spool, appender._introduced = spool, []
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
    """Put what of a lane is not in the store into a spool that has nothing of it."""
    calls = dict(zip(buffer.calls[0::2], buffer.calls[1::2], strict=True))
    call = json.loads(cast("str", buffer.calls[1]))
    seq, at = buffer.base, buffer.base_at
    for step, text in zip(buffer.pend[0::2], buffer.pend[1::2], strict=True):
        seq, at = seq + 1, at + cast("int", step)
        if seq in calls:
            call = json.loads(cast("str", calls[seq]))
        raw = cast("str", text).encode()
        if not appender.put_slowly(spool, buffer, call, (seq, at, TEXT if raw[:1] == b'"' else VALUE, raw)):
            # What follows must not be there without it: it waits until this is stored.
            buffer.file, buffer.unsafe = None, buffer.seq
            return False
    return True
