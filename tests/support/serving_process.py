"""`tests.support.serving_app` on a real server, as a process."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.journeys.test_server import PATIENCE, Server
from tests.support.places import Place

OPTIONS = {"heartbeat": 0.3}
Servers = Callable[..., "Serving"]


class Serving(Server):
    """uvicorn with the application."""

    app = ("tests.support.serving_app:app",)

    def __init__(
        self, place: Place, *options: str, pace: float = 0.003, site: str = "", graceful: int = 1, **served: Any
    ) -> None:
        self._variables = {"SERVED_HOME": place.home, "SERVED_PACE": str(pace), "SERVED_SITE": site}
        self._variables["SERVED_OPTIONS"] = json.dumps({**OPTIONS, **served})
        super().__init__(Path(place.home), "--timeout-graceful-shutdown", str(graceful), *options)
        self.url = str(self.client.base_url).rstrip("/")
        self.port = int(self.url.rpartition(":")[2])

    def environment(self, home: Path) -> dict[str, str]:
        return self._variables

    def look(self) -> None:
        """Ask nothing: which worker would answer?"""

    def begin(self, text: str, thread: str = "t", **more: Any) -> str:
        """Begin a run, and return its id."""
        answer = self.client.post(f"/threads/{thread}/runs", json={**says(text), **more})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["run_id"])

    def frames(self, path: str, **about: Any) -> list[tuple[str, str, str]]:
        """Read a stream to its end, in one connection: ids, events and datas."""
        answer = self.client.get(path, **about)
        assert answer.status_code == 200, answer.text
        return parsed(answer.text)

    def texts(self, thread: str = "t") -> list[str]:
        """The messages of a thread."""
        return [f"{one['type']}: {one['text']}" for one in self.get(f"/threads/{thread}/messages")["messages"]]

    @contextmanager
    def reading(self, path: str, **about: Any) -> Iterator[httpx.Response]:
        """Open a stream on a connection of its own."""
        with (
            httpx.Client(base_url=self.url, timeout=PATIENCE) as client,
            client.stream("GET", path, **about) as answer,
        ):
            yield answer


def parsed(text: str) -> list[tuple[str, str, str]]:
    """Return the frames of a whole stream."""
    found = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n") if ": " in line and not line.startswith(":"))
        if "data" in fields:
            found.append((fields.get("id", ""), fields.get("event", "message"), fields["data"]))
    return found


def says(text: str) -> dict[str, Any]:
    """The body of a start."""
    return {"input": {"messages": [{"role": "user", "content": text}]}}


@pytest.fixture
def servers(place: Place) -> Iterator[Servers]:
    """Start servers on one place. What they have complained of fails the test, unless it takes it from `complaints`."""
    opened: list[Serving] = []

    def open_server(*options: str, **about: Any) -> Serving:
        opened.append(Serving(place, *options, **about))
        return opened[-1]

    yield open_server
    for server in opened:
        server.end()
    if said := [found for server in opened if (found := server.complaints())]:
        raise AssertionError("\n\n".join(said))
