"""A network between a client and servers, which ends connections at any byte of an answer."""

from __future__ import annotations

import contextlib
import re
import socket
import struct
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self

_HEAD_END = b"\r\n\r\n"
_NOW = struct.pack("ii", 1, 0)
"""SO_LINGER: a closed connection is reset."""


class BadNetwork:
    """Passes connections on to servers of this machine, in turns; one that does not answer is left out.

    `fates`: for each connection, a way, and after how many bytes of the answer it begins. "reset": the connection is reset.
    "end": it is closed. "stall": nothing more comes, and the connection stays open. "finish": a proxy ends the answer as if
    it were complete, and the bytes are those of its body. "pass": nothing happens.
    """

    def __init__(self, *ports: int, fates: Iterator[tuple[str, int]]) -> None:
        self.ports = list(ports)
        self.connections = 0
        self.cuts = 0
        """How many connections met their fate before their answer was complete."""
        self._fates = fates
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}"
        self._ends: list[socket.socket] = []
        self._closed = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        for end in (self._listener, *self._ends):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = self._connect()
            if server is None:
                client.close()
                continue
            self._ends += [client, server]
            way, after = next(self._fates)
            threading.Thread(target=_pass_on, args=(client, server), daemon=True).start()
            threading.Thread(target=self._answer, args=(server, client, way, after), daemon=True).start()

    def _connect(self) -> socket.socket | None:
        for _ in self.ports:
            self.connections += 1
            with contextlib.suppress(OSError):
                return socket.create_connection(("127.0.0.1", self.ports[self.connections % len(self.ports)]))
        return None

    def _answer(self, server: socket.socket, client: socket.socket, way: str, after: int) -> None:
        with contextlib.suppress(OSError):
            if way == "finish":
                is_whole = _pass_body(server, client, after)
            else:
                is_whole = _pass_on(server, client, None if way == "pass" else after)
            self.cuts += not is_whole
            if not is_whole and way == "stall":
                self._closed.wait()
            if not is_whole and way == "reset":
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NOW)
                client.shutdown(socket.SHUT_RD)  # wakes the other thread, without whose return nothing is closed
            else:
                client.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)
        for end in (client, server):
            end.close()


def _pass_on(source: socket.socket, sink: socket.socket, most: int | None = None) -> bool:
    """Pass bytes on, at most so many. Return whether that was all."""
    with contextlib.suppress(OSError):
        while most != 0 and (data := source.recv(65536 if most is None else min(65536, most))):
            sink.sendall(data)
            most = None if most is None else most - len(data)
    if most == 0:
        return False
    if most is None:
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)
    return True


def _pass_body(server: socket.socket, client: socket.socket, most: int) -> bool:
    """Pass an answer on, and at most so many bytes of its chunked body; then end it as HTTP ends one."""
    stream = server.makefile("rb")
    head = b""
    while not head.endswith(_HEAD_END):
        line = stream.readline()
        if not line:
            return True
        head += line
    client.sendall(head)
    if not re.search(rb"(?i)transfer-encoding: *chunked", head):
        client.sendall(stream.read())
        return True
    while size := int(stream.readline() or b"0", 16):
        data = stream.read(size)[:most]
        stream.readline()
        if data:
            client.sendall(b"%x\r\n%b\r\n" % (len(data), data))
        most -= len(data)
        if most <= 0:
            client.sendall(b"0\r\n\r\n")
            return False
    client.sendall(b"0\r\n\r\n")
    return True
