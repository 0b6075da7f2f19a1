"""A server of raw sockets and threads, which sends what it is told to and breaks off as it is told to."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from tests.providers._answers import Answer, Frame, Ids, shown

PATIENCE = 30.0
"""Seconds after which a scene that hangs is given up. Nothing waits that long unless something is wrong."""


class Wire(Protocol):
    """The format and the rules of one provider."""

    def check(self, body: dict[str, Any], scene: Scene) -> str | None:
        """What the provider answers with HTTP 400, or None if it takes the request."""

    def render(self, answer: Answer, body: dict[str, Any], scene: Scene) -> list[Frame]:
        """All of an answer but its end."""

    def end(self, reason: str, scene: Scene) -> bytes:
        """The end of an answer. `reason`: stop, calls, length."""

    def problem(self, status: int, message: str) -> bytes:
        """The body of an HTTP error."""

    def event_of_error(self, overloaded: bool) -> bytes:
        """An error in the middle of a stream."""

    content_type: str
    broken: bytes
    """An event that is no JSON."""


@dataclass
class Cut:
    """Where an answer is cut, and how."""

    how: str
    behind: str | None
    """The name of the last fragment that is sent; None: not a byte."""


@dataclass
class Scene:
    """What one thread lives through, on the side of the provider."""

    wire: Wire
    answers: list[tuple[Answer, Cut | None]] = field(default_factory=list)
    ids: Ids = field(default_factory=Ids)
    memory: dict[str, Any] = field(default_factory=dict)
    """What the provider remembers of what it has said."""
    refused: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    """All that the provider was sent, as text."""
    broken: list[str] = field(default_factory=list)
    """What went wrong in the server itself."""
    shown: str = ""
    """What the answer that was cut has shown."""
    was_cut: bool = False
    said: list[str] | None = None
    """The names of the fragments of an answer that comes to a well-formed end before its last one; None: all of it."""
    ended: bool = False
    """It was sent to its end all the same, before its reader left."""
    reached: Callable[[], None] = lambda: None
    """Called from the server's thread when all that comes before the cut is sent."""
    gate: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    """Each release lets the server go on by one step behind the cut."""

    def next(self) -> tuple[Answer, Cut | None]:
        from tests.providers._answers import Say

        return self.answers.pop(0) if self.answers else ((Say(("Very ", "well. ")),), None)


class _Gone(Exception):
    """The client has left."""


class Server:
    """Serves one scene at a time."""

    def __init__(self) -> None:
        self.scene: Scene | None = None
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True, name="provider").start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True, name="provider-call").start()

    def _serve(self, connection: socket.socket) -> None:
        scene = self.scene
        connection.settimeout(PATIENCE)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with connection:
            try:
                body = _request(connection)
                assert scene is not None
                _Reply(connection, scene).give(body)
            except _Gone:
                pass
            except OSError as error:
                if scene is not None and isinstance(error, TimeoutError):
                    scene.broken.append("the client never left")
            except Exception as error:
                if scene is not None:
                    scene.broken.append(f"{type(error).__name__}: {error}")


def _request(connection: socket.socket) -> dict[str, Any]:
    received = b""
    while b"\r\n\r\n" not in received:
        more = connection.recv(65536)
        if not more:
            raise _Gone
        received += more
    head, _, body = received.partition(b"\r\n\r\n")
    length = 0
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            length = int(value)
    while len(body) < length:
        more = connection.recv(65536)
        if not more:
            raise _Gone
        body += more
    found = json.loads(body)
    found["_target"] = head.split(b" ")[1].decode()
    return found


class _Reply:
    """The answer to one request."""

    def __init__(self, connection: socket.socket, scene: Scene) -> None:
        self.connection = connection
        self.scene = scene
        self.headed = False

    def give(self, body: dict[str, Any]) -> None:
        scene = self.scene
        scene.requests.append(json.dumps(body, ensure_ascii=False))
        if (refusal := scene.wire.check(body, scene)) is not None:
            scene.refused.append(refusal)
            self.whole(400, scene.wire.problem(400, refusal))
            return
        answer, cut = scene.next()
        frames = scene.wire.render(answer, body, scene)
        from tests.providers._answers import Call

        reason = "calls" if any(isinstance(piece, Call) for piece in answer) else "stop"
        if cut is None:
            self.send(*(frame.data for frame in frames), scene.wire.end(reason, scene))
            self.finish()
            return
        at = _behind(frames, cut.behind)
        if at > 0:
            self.send(*(frame.data for frame in frames[:at]))
        if not scene.was_cut:
            scene.shown, scene.was_cut = shown(frames[:at]), True
        scene.reached()
        self.wait()
        getattr(self, f"cut_{cut.how}")(frames[:at], frames[at:])

    # --- the cuts. `rest` is what would have come

    def cut_rst(self, sent: list[Frame], rest: list[Frame]) -> None:
        """The connection is reset between two events."""
        self.reset()

    def cut_rst_in_character(self, sent: list[Frame], rest: list[Frame]) -> None:
        """The connection is reset in the middle of a character."""
        data = rest[0].data if rest else self.scene.wire.end("stop", self.scene)
        wide = next((at for at, byte in enumerate(data) if byte > 127), len(data) // 2)
        self.send(data[: wide + 1])
        self.reset()

    def cut_fin(self, sent: list[Frame], rest: list[Frame]) -> None:
        """The connection is closed without the end of the body."""

    def cut_fin_in_event(self, sent: list[Frame], rest: list[Frame]) -> None:
        """The connection is closed in the middle of an event."""
        data = rest[0].data if rest else self.scene.wire.end("stop", self.scene)
        self.send(data[: len(data) // 2])

    def cut_stop(self, sent: list[Frame], rest: list[Frame]) -> None:
        """The user stops while nothing comes."""
        self.until_left()

    cut_timeout = cut_stop

    def cut_close(self, sent: list[Frame], rest: list[Frame]) -> None:
        """Whoever reads leaves at the next chunk: one event for each step of the gate, until that happens."""
        for frame in [*rest, Frame(self.scene.wire.end("stop", self.scene), "end")]:
            self.scene.shown += frame.shows
            self.scene.ended = frame.at == "end"
            self.send(frame.data)
            self.scene.reached()
            self.wait()
        self.finish()

    def cut_error(self, sent: list[Frame], rest: list[Frame]) -> None:
        """The provider reports an error: as an HTTP status, or as an event once the stream has begun."""
        if not self.headed:
            self.whole(500, self.scene.wire.problem(500, "Internal server error"))
            return
        self.send(self.scene.wire.event_of_error(overloaded=False))
        self.finish()

    def cut_overloaded(self, sent: list[Frame], rest: list[Frame]) -> None:
        """The provider is overloaded: HTTP 529, or an event once the stream has begun."""
        if not self.headed:
            self.whole(529, self.scene.wire.problem(529, "Overloaded"))
            return
        self.send(self.scene.wire.event_of_error(overloaded=True))
        self.finish()

    def cut_broken_json(self, sent: list[Frame], rest: list[Frame]) -> None:
        """An event that is no JSON."""
        self.send(self.scene.wire.broken)
        self.finish()

    def cut_early_end(self, sent: list[Frame], rest: list[Frame]) -> None:
        """The body ends as it should, the answer does not."""
        self.send()
        self.finish()

    def cut_length(self, sent: list[Frame], rest: list[Frame]) -> None:
        """The answer has run into its limit of tokens, and says so."""
        before = sent or rest[:1]
        self.scene.said = [frame.at for frame in before]
        self.send(*([] if sent else [rest[0].data]), before[-1].close, self.scene.wire.end("length", self.scene))
        self.finish()

    # --- what they are made of

    def send(self, *data: bytes) -> None:
        """Chunks of a body, each in a packet of its own as far as TCP lets us."""
        if not self.headed:
            self.headed = True
            kind = self.scene.wire.content_type
            head = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n"
            self.raw(head.encode())
        for one in data:
            if one:
                self.raw(b"%x\r\n%s\r\n" % (len(one), one))

    def finish(self) -> None:
        self.raw(b"0\r\n\r\n")

    def whole(self, status: int, body: bytes) -> None:
        head = f"HTTP/1.1 {status} x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
        self.raw(head.encode() + b"connection: close\r\n\r\n" + body)

    def raw(self, data: bytes) -> None:
        try:
            self.connection.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            raise _Gone from None

    def reset(self) -> None:
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()

    def wait(self) -> None:
        if not self.scene.gate.acquire(timeout=PATIENCE):
            self.scene.broken.append("nobody opened the gate")
            raise _Gone

    def until_left(self) -> None:
        try:
            while self.connection.recv(65536):
                pass
        except ConnectionResetError:
            pass


def _behind(frames: list[Frame], name: str | None) -> int:
    """How many frames are sent before the cut."""
    if name is None:
        return 0
    found = [at for at, frame in enumerate(frames) if frame.at == name]
    if not found:
        raise LookupError(f"no fragment {name} among {[frame.at for frame in frames]}")
    return found[-1] + 1
