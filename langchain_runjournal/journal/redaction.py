"""The appender of a journal with `redact`: no text gets past it that the redaction has not seen.

Rule: everything that becomes an event passes `record`, still as data. What passes on from here is what the redaction gave.
It holds the lock of the appender while it asks: events of all threads stay in order, and what appends in the middle of that
(a finalizer, a signal handler, the redaction itself) waits its turn.
"""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from inspect import iscoroutinefunction
from pathlib import PurePath
from typing import Any, Final, NamedTuple

from ..common import strict_json as _json
from ..errors import InvalidArgument, RedactionFailed, RunJournalError
from ..events import DELTA, Event, Kind
from ..events.encoding import encode_value
from ..redact import Held, Redact, Text
from . import event_texts as _texts
from .append import Appender
from .call_texts import CallTexts
from .event_texts import Path

logger = logging.getLogger("langchain_runjournal")

_ENDS_CALL: Final = frozenset({"llm.ai.response", "llm.ai.partial", "llm.error"})
_ENDS_ALL: Final = frozenset({"run.end", "run.pause", "run.settled"})
_MOST_CALLS: Final = 10_000
"""Calls whose texts may grow at once. The oldest one is one that nothing ended, of a run that ended long ago."""
_MOST_HELD: Final = 1 << 20


def appender_with(redact: Redact | None) -> Callable[..., Appender]:
    """Return what makes the appender of a journal: the plain one costs a token nothing for a redaction that is not there."""
    if redact is None:
        return Appender
    if not callable(redact):
        raise InvalidArgument(name="redact", expected='a function, such as redact.patterns(["email"])', value=redact)
    if iscoroutinefunction(redact):
        raise InvalidArgument(name="redact", expected="a function without async, because it must not wait", value=redact)
    return partial(RedactingAppender, redact)


class _Given(NamedTuple):
    """An event on its way in, as data."""

    run_id: str
    call: str | None
    kind: Kind
    value: str | Mapping[str, Any]
    at: int


class RedactingAppender(Appender):
    """All that was appended, redacted."""

    def __init__(self, redact: Redact, *args: Any) -> None:
        super().__init__(*args)
        self._redact = redact
        self._calls: OrderedDict[tuple[str, str | None], CallTexts] = OrderedDict()
        self._waiting: deque[_Given] = deque()
        self._is_busy = False
        self._failed = 0
        self._reason = ""
        self._interrupt: BaseException | None = None

    def append(self, event: Event) -> None:
        """See `RunJournal.append`. What cannot be kept is not logged with its text."""
        try:
            at = round(event.at * 1000) if event.at else None
            self.record(event.run_id, event.call_id, event.kind, event.bare, None, at)
        except Exception as exc:  # noqa: BLE001 - the agent goes on; the next barrier tells
            self.miss()
            logger.error("an event could not be kept (%s)", _place_of(exc))

    def record(
        self,
        run_id: str,
        call: str | None,
        kind: Kind,
        data: str | Mapping[str, Any] | None,
        written: str | None = None,
        at: int | None = None,
    ) -> None:
        """Make events of what the redaction leaves of `data`. May raise."""
        given = _Given(run_id, call, kind, _as_json(kind, data, written), self._wall() if at is None else at)
        with self._lock:
            self._waiting.append(given)
            if not self._inside:
                self._work()

    def _work(self) -> None:
        """Redact and place what waits. Under the lock."""
        if self._is_busy:
            return  # in the middle of this, further up the stack
        try:
            self._is_busy = True
            while self._waiting:
                self._take(self._waiting.popleft())
        finally:
            self._is_busy = False
        if self._interrupt is not None:
            interrupt, self._interrupt = self._interrupt, None
            raise interrupt

    def _take(self, given: _Given) -> None:
        for value in self._redacted(given):
            self._pass_on(given, given.call, given.kind, value)

    def _pass_on(self, given: _Given, call: str | None, kind: Kind, value: str | Mapping[str, Any]) -> None:
        super().record(given.run_id, call, kind, value, None, given.at)

    def _redacted(self, given: _Given) -> Iterator[str | Mapping[str, Any]]:
        run_id, call, kind, value, _ = given
        if kind == DELTA:
            key = (run_id, call)
            if key not in self._calls:
                self._calls[key] = CallTexts(partial(self._ask, run_id, call, DELTA))
                if len(self._calls) > _MOST_CALLS:
                    self._end(next(iter(self._calls)), given.at)
            yield from self._calls[key].delta(value)
            return
        if kind in _ENDS_CALL and (run_id, call) in self._calls:
            self._end((run_id, call), given.at)
        elif kind in _ENDS_ALL:
            for key in [key for key in self._calls if key[0] == run_id]:
                self._end(key, given.at)

        def change(path: Path, text: str) -> str:
            return self._ask(run_id, call, kind, path, text, "", False)[0]

        yield _texts.event_data(kind, value if isinstance(value, Mapping) else {"text": value}, change)

    def _end(self, key: tuple[str, str | None], at: int) -> None:
        """Write what was held back of a call."""
        run_id, call = key
        for value in self._calls.pop(key).end():
            self._pass_on(_Given(run_id, call, "llm.ai.delta", value, at), call, "llm.ai.delta", value)

    def _ask(
        self, run_id: str, call: str | None, kind: str, path: Path, text: str, before: str, more: bool
    ) -> tuple[str, str]:
        """Return what is written in place of a text now, and what of it is held back. Does not raise."""
        try:
            asked = Text(text=text, before=before, more=more, run_id=run_id, call_id=call, kind=kind, path=path)
            return _checked(self._redact(asked), asked)
        except BaseException as exc:  # noqa: BLE001 - a text that was not redacted is not written
            if not isinstance(exc, Exception):
                self._interrupt = exc  # Ctrl-C: raised again when the event is kept
            self._reason = _place_of(exc)
            if not self._failed:
                logger.error("the redaction of %s failed: %s", self._url, self._reason)
            self._failed += 1
            return "", ""

    # --- the rest -----------------------------------------------------------------------------------------------------

    def as_recorded(self, messages: Sequence[Any]) -> list[Any]:
        """Return copies of messages as the journal has them: to know again in a thread what stands in the journal."""

        def change(path: Path, text: str) -> str:
            return self._ask("", None, "", path, text, "", False)[0]

        with self._lock:
            return [
                one.model_copy(update={"content": _texts.content(one.content, ("content",), change)}) for one in messages
            ]

    def refill(self, most: int, *, force: bool = False) -> bool:
        """See `Appender.refill`."""
        with self._lock:
            done = super().refill(most, force=force)
            if not self._inside:
                self._work()
            return done

    def close(self) -> None:
        """Write what was held back, and refuse whatever comes from now on."""
        with self._lock:
            if not self._is_busy and not self._inside:
                self._work()
                for key in list(self._calls):
                    self._end(key, self._wall())
            super().close()

    def complaint(self) -> RunJournalError | None:
        """See `Appender.complaint`."""
        with self._lock:
            found = super().complaint()
            if found is not None or not self._failed:
                return found
            failed, self._failed = self._failed, 0
            return RedactionFailed(url=self._url, failed=failed, reason=self._reason)


class _WrongResult(Exception):
    """What a redaction returned cannot be used. The message holds nothing of the text."""


def _checked(found: object, asked: Text) -> tuple[str, str]:
    done, rest = (found.text, found.rest) if isinstance(found, Held) else (found, "")
    if not isinstance(done, str) or not isinstance(rest, str):
        kind = type(found).__name__ if not isinstance(found, Held) else f"Held({type(done).__name__}, {type(rest).__name__})"
        raise _WrongResult(f"a result of type {kind}, where the journal takes a str or Held(str, str)")
    if rest and not asked.more:
        raise _WrongResult("a Held with a rest, for a text that cannot grow")
    if not asked.text.endswith(rest) or len(rest) > _MOST_HELD:
        raise _WrongResult(f"a Held whose rest is not the end of the text, or is longer than {_MOST_HELD:,} characters")
    return str(done), str(rest)


def _as_json(kind: Kind, data: str | Mapping[str, Any] | None, written: str | None) -> str | Mapping[str, Any]:
    """Return the data as JSON would give it back: every object in it is the text that would be written."""
    if type(data) is str:
        return data
    value = _json.loads(encode_value(kind, data or {}) if written is None else written)
    found: str | Mapping[str, Any] = value[1] if isinstance(value, list) else value
    return found


def _place_of(exc: BaseException) -> str:
    """Return the type and the place of an exception, without its message, which may hold the text."""
    if isinstance(exc, _WrongResult):
        return str(exc)
    trace = exc.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    name = type(exc).__name__
    return name if trace is None else f"{name} in {PurePath(trace.tb_frame.f_code.co_filename).name}, line {trace.tb_lineno}"
