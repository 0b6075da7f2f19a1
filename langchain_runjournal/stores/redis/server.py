"""The connections of a store to its server, and what a fork does to them.

Rule: a connection belongs to one thread at a time, for one exchange. Each thread that needs a connection gets one: no reader
can make the writer wait, and a connection that waits for changes is not among these.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeVar

from redis import exceptions as driver
from redis.backoff import NoBackoff
from redis.retry import Retry

from ...errors import StoreClosed
from .failures import failure_of, is_of_another_server, quotes_a_secret
from .scripts import Script
from .settings import Settings

_KEPT: Final = 8
_T = TypeVar("_T")


class Wire(Protocol):
    """What we use of a connection of the driver. Its pool and its client add retries and time-outs of their own."""

    def connect(self) -> None:
        """Connect, authenticate, choose the database."""

    def disconnect(self) -> None:
        """Close the socket."""

    def send_packed_command(self, command: Any, check_health: bool) -> None:
        """Send them."""

    def read_response(self) -> Any:
        """Return the next answer, or raise it if it is an error."""


class Server:
    """One server, as one store reaches it from any thread."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.opening = True
        """Whether the store is being opened: then a refusal is for good."""
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.RLock()  # a signal handler may interrupt a method of its own thread
        self._idle: list[Wire] = []
        self._closed = False

    def connect(self, *, longer: float = 0.0) -> Wire:
        """Return a new connection, whose answers may take `longer` than others."""
        patience = self.settings.busy_timeout
        given = {
            "socket_connect_timeout": patience,
            **self.settings.arguments,
            "socket_timeout": patience + longer,
            "retry": Retry(NoBackoff(), 0),
            "protocol": 2,
            "decode_responses": False,
        }
        wire: Wire = self.settings.connection(**given)
        wire.connect()
        return wire

    def call(self, *command: Any) -> Any:
        """Return the answer to one command."""
        return self.exchange([command])[0]

    def exchange(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """Return the answers to some commands, which are sent together."""
        return self._talk(lambda wire: exchange(wire, commands))

    def run(self, script: Script, *arguments: Any) -> Any:
        """Return the answer of a script. The first argument is its key."""

        def work(wire: Wire) -> Any:
            try:
                return exchange(wire, [(b"EVALSHA", script.sha, 1, *arguments)])[0]
            except driver.NoScriptError:
                return exchange(wire, [(b"EVAL", script.text, 1, *arguments)])[0]

        return self._talk(work)

    def _talk(self, work: Callable[[Wire], _T]) -> _T:
        """Do one exchange. A connection that turns out to be broken is replaced once: each exchange may be repeated."""
        try:
            try:
                return self._attempt(self._borrow(), work)
            except driver.ConnectionError as exc:
                if isinstance(exc, (driver.BusyLoadingError, driver.AuthenticationError)):
                    raise
                self.drop()
                return self._attempt(self.connect(), work)
        except (driver.RedisError, OSError) as exc:
            if is_of_another_server(exc):
                self.drop()
            cause = None if quotes_a_secret(exc, self.settings) else exc
            raise failure_of(exc, self.settings, opening=self.opening) from cause

    def _attempt(self, wire: Wire, work: Callable[[Wire], _T]) -> _T:
        try:
            result = work(wire)
        except driver.ResponseError:
            self._give_back(wire)
            raise
        except BaseException:
            wire.disconnect()
            raise
        self._give_back(wire)
        return result

    def _borrow(self) -> Wire:
        with self._lock:
            if self._closed:
                raise StoreClosed(url=self.settings.url)
            if self._idle:
                return self._idle.pop()
        return self.connect()

    def _give_back(self, wire: Wire) -> None:
        with self._lock:
            if not self._closed and len(self._idle) < _KEPT:
                self._idle.append(wire)
                return
        wire.disconnect()

    def failure(self, exc: Exception) -> Exception:
        """Return our error for an error of the driver, which may quote a password; any other error as it is."""
        return failure_of(exc, self.settings) if isinstance(exc, (driver.RedisError, OSError)) else exc

    def drop(self) -> None:
        """Close all idle connections: the next ones resolve the name of the server anew."""
        with self._lock:
            idle, self._idle = self._idle, []
        for wire in idle:
            wire.disconnect()

    def check_open(self) -> None:
        """Raise `StoreClosed` if the store is closed."""
        if self._closed:
            raise StoreClosed(url=self.settings.url)

    def close(self) -> None:
        """Close all connections."""
        self._closed = True
        self.drop()

    def before_fork(self) -> None:
        """Let no connection change hands while the process forks."""
        self._lock.acquire()

    def after_fork(self, *, child: bool) -> None:
        """Go on in the parent. In the child, forget the parent's connections: the driver closes only the child's copies."""
        closed = self._closed
        if child:
            self._begin()
            self._closed = closed
        else:
            self._lock.release()


def exchange(wire: Wire, commands: Sequence[Sequence[Any]]) -> list[Any]:
    """Send commands together, and return their answers. Raise the first error when all answers are there."""
    wire.send_packed_command([_packed(commands)], check_health=False)
    answers: list[Any] = []
    failed: driver.ResponseError | None = None
    for _ in commands:
        try:
            answers.append(wire.read_response())
        except driver.ResponseError as exc:
            failed = failed or exc
    if failed is not None:
        raise failed
    return answers


def _packed(commands: Sequence[Sequence[Any]]) -> bytes:
    # As the driver does, in a third of the time: an append has some twenty arguments.
    parts: list[bytes] = []
    for command in commands:
        parts.append(b"*%d\r\n" % len(command))
        for part in command:
            raw = part if type(part) is bytes else str(part).encode()
            parts.append(b"$%d\r\n%b\r\n" % (len(raw), raw))
    return b"".join(parts)
