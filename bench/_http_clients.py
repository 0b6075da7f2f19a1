"""The process of the clients: raw sockets that count frames. `python -m bench._http_clients`, then a line of JSON for each
command."""

from __future__ import annotations

import hashlib
import json
import selectors
import socket
import sys
import time
from typing import Any

_FRAME = b"data: {"
_END = b"0\r\n\r\n"
_SIZE = 1 << 20
_PATIENCE = 120.0


class Client:
    """One connection."""

    def __init__(self, port: int, path: str | None, *, buffer: int | None = None, headers: str = "") -> None:
        self.socket = socket.socket()
        if buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        self.socket.connect(("127.0.0.1", port))
        if path is not None:
            self.socket.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n".encode())
        self.frames = self.bytes = 0
        self.tail = b""
        self.kept: list[bytes] = []

    def head(self) -> None:
        """Read until the head of the response is there."""
        self.socket.settimeout(_PATIENCE)
        got = b""
        while b"\r\n\r\n" not in got:
            part = self.socket.recv(_SIZE)
            if not part:
                raise AssertionError(f"the server closed the connection: {got!r}")
            got += part
        if not got.startswith(b"HTTP/1.1 200"):
            raise AssertionError(f"the server answered {got!r}")
        self.take(got.partition(b"\r\n\r\n")[2])

    def take(self, part: bytes) -> bool:
        """Count the frames of a part. Return whether it is the last one."""
        self.bytes += len(part)
        whole = self.tail + part
        self.frames += whole.count(_FRAME)
        self.tail = whole[-(len(_FRAME) - 1) :]
        return not part or self.tail.endswith(_END)


class Clients:
    """What the commands work on."""

    def __init__(self) -> None:
        self.clients: list[Client] = []

    def do_open(self, port: int, paths: list[str | None], buffer: int | None = None) -> None:
        """Open a connection for each path, and read the heads. Without a path, the server speaks no HTTP."""
        for path in paths:
            client = Client(port, path, buffer=buffer)
            self.clients.append(client)
            if path is not None and buffer is None:
                client.head()

    def do_drain(self) -> Any:
        """Read from all connections until each has ended."""
        began = time.perf_counter()
        with selectors.DefaultSelector() as selector:
            for client in self.clients:
                client.socket.setblocking(False)
                selector.register(client.socket, selectors.EVENT_READ, client)
            left = len(self.clients)
            while left:
                ready = selector.select(_PATIENCE)
                if not ready:
                    raise AssertionError(f"{left} clients have waited for {_PATIENCE} s")
                for key, _ in ready:
                    if key.data.take(key.data.socket.recv(_SIZE)):
                        selector.unregister(key.data.socket)
                        left -= 1
        frames = [client.frames for client in self.clients] or [0]
        sizes = sum(client.bytes for client in self.clients)
        self.do_close()
        return {"frames": sum(frames), "least": min(frames), "bytes": sizes, "wall": time.perf_counter() - began}

    def do_text(self, port: int, path: str) -> Any:
        """Read one stream to its end. Return the number of its tokens and a digest of their texts."""
        client, parts = Client(port, path, headers="Connection: close\r\n"), []
        client.socket.settimeout(_PATIENCE)
        while part := client.socket.recv(_SIZE):
            parts.append(part)
        client.socket.close()
        body = _without_chunks(b"".join(parts).partition(b"\r\n\r\n")[2])
        values = [json.loads(line[6:]) for line in body.split(b"\n") if line.startswith(b"data: ")]
        texts = [value["data"]["text"] for value in values if value["kind"] == "llm.ai.delta"]
        return {"frames": len(values), "digest": hashlib.sha256("".join(texts).encode()).hexdigest()}

    def do_first(self, port: int, path: str) -> float:
        """Return the seconds from the request until the first frame with an id."""
        began = time.perf_counter()
        client = Client(port, path)
        client.socket.settimeout(_PATIENCE)
        got = b""
        while b"\nid: " not in got:
            got = got[-10:] + client.socket.recv(_SIZE)
        found = time.perf_counter() - began
        client.socket.close()
        return found

    def do_close(self) -> None:
        """Close all connections."""
        for client in self.clients:
            client.socket.close()
        self.clients.clear()


def _without_chunks(body: bytes) -> bytes:
    """Return the content of a body with `Transfer-Encoding: chunked`."""
    at, found = 0, []
    while at < len(body):
        line = body.index(b"\r\n", at)
        begin = line + 2
        stop = begin + int(body[at:line], 16)
        found.append(body[begin:stop])
        at = stop + 2
    return b"".join(found)


def main() -> None:
    """Carry out the commands of stdin."""
    clients = Clients()
    print('"ready"', flush=True)
    for line in iter(sys.stdin.readline, ""):
        command = json.loads(line)
        print(json.dumps(getattr(clients, f"do_{command.pop('do')}")(**command)), flush=True)


if __name__ == "__main__":
    main()
