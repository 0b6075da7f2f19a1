"""A proxy before a server of a test, which loses answers, stands still, or cuts its connections."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self

READY = b"Z\x00\x00\x00\x05I"
"""Of Postgres: the transaction is over, and the next statement may come."""
_SYNC = b"S\x00\x00\x00\x04"
"""Of a client of Postgres: the end of what it sends before it waits. One round trip."""


class Proxy:
    """Passes bytes on to a port of this machine. Use it in a ``with`` statement."""

    def __init__(self, port: int) -> None:
        self.target = port
        """The port to which new connections lead."""
        self.lost = 0
        """How many answers were lost so far."""
        self.round_trips = 0
        """How often a client of Postgres has waited for an answer so far."""
        self.hides: re.Pattern[bytes] | None = None
        """What is taken out of all answers, for a server that is asked to say it in one piece."""
        self.hidden = 0
        """How often that was taken out so far."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._moving = threading.Event()
        self._moving.set()
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._to_lose: tuple[bytes, bytes] | None = None
        self._closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    def url(self, url: str) -> str:
        """Return the URL of the server with the port of this proxy in place of the server's."""
        return url.replace(f":{self.target}/", f":{self.port}/")

    def lose_answer_to(self, command: bytes, until: bytes = b"") -> None:
        """Pass the next request that holds these bytes on, and cut its connection in place of the answer. `until`: what the
        server must have answered before, by which the test knows that it has done what was asked."""
        self._to_lose = command, until

    def stand_still(self) -> None:
        """Pass nothing on, as a network whose cable was cut."""
        self._moving.clear()

    def go_on(self) -> None:
        """Pass on what has waited."""
        self._moving.set()

    def cut(self) -> None:
        """Close all connections."""
        with self._lock:
            ends, self._open = list(self._open), set()
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closed = True
        self._moving.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                client.close()
                continue
            pair = _Pair()
            with self._lock:
                self._open |= {client, server}
            for source, sink, is_request in ((client, server, True), (server, client, False)):
                threading.Thread(target=self._pass_on, args=(source, sink, is_request, pair), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket, is_request: bool, pair: _Pair) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 20):
                self._moving.wait()
                if is_request:
                    self._note_request(data, pair)
                elif pair.until is not None:
                    pair.answer += data
                    if pair.until not in pair.answer:
                        continue
                    self.lost += 1
                    break
                elif self.hides is not None:
                    data, count = self.hides.subn(b"", data)
                    self.hidden += count
                sink.sendall(data)
        with self._lock:
            self._open -= {source, sink}
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _note_request(self, data: bytes, pair: _Pair) -> None:
        self.round_trips += data.count(_SYNC)
        if self._to_lose is not None and self._to_lose[0] in data:
            (_, pair.until), self._to_lose = self._to_lose, None


class _Pair:
    """The two directions of one connection."""

    until: bytes | None = None
    """What the answer that is to be lost holds last."""
    answer = b""
