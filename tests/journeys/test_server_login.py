"""examples/server.py: `create_app` in a FastAPI with a login, as a real process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.journeys.test_server import PATIENCE, Server, message

httpx = pytest.importorskip("httpx")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.name != "posix", reason="signals")]

ANN, BEN = ("ann", "secret"), ("ben", "other secret")


class Example(Server):
    """The example, which has no path that tells what it does."""

    app = ("examples.server:app",)

    def look(self) -> Any:
        return None


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    server = Example(tmp_path_factory.mktemp("login"))
    yield f"{server.client.base_url}/chat".replace("//chat", "/chat")
    server.end()
    assert server.complaints() == ""


def user(url: str, who: tuple[str, str] | None) -> Any:
    return httpx.Client(base_url=url, auth=who, timeout=PATIENCE)


def test_a_conversation(url: str) -> None:
    """A user begins a run, follows its thread and reads it; it is in the list of this user alone."""
    with user(url, ANN) as ann, user(url, BEN) as ben:
        run_id = ann.post("/threads/ann-1/runs", json=message("Hi")).raise_for_status().json()["run_id"]
        events = ann.get(f"/runs/{run_id}/events?merge=1").text
        assert '"kind":"run.end"' in events.replace(" ", "")
        said = [one["text"] for one in ann.get("/threads/ann-1/messages").json()["messages"]]
        assert said == ["Hi", "You said: Hi"]
        assert [one["thread_id"] for one in ann.get("/threads").json()["threads"]] == ["ann-1"]
        assert ben.get("/threads").json() == {"threads": []}
        hidden = [ben.get(path) for path in ("/threads/ann-1/messages", "/threads/ann-1/events", f"/runs/{run_id}")]
        hidden += [ben.post("/threads/ann-1/runs", json=message("Hi")), ben.post(f"/runs/{run_id}/stop")]
        hidden.append(ben.delete("/threads/ann-1"))
        assert [answer.status_code for answer in hidden] == [404] * 6
        assert ann.delete("/threads/ann-1").status_code == 204


@pytest.mark.parametrize("who", [None, ("ann", "wrong"), ("ann", ""), ("carl", "secret"), ("", "")])
def test_without_a_login(url: str, who: tuple[str, str] | None) -> None:
    """Nothing but the request to log in, whatever is asked."""
    with user(url, who) as client:
        for path in ("/threads", "/threads/ann-1/messages", "/threads/ann-1/events", "/runs/unknown"):
            answer = client.get(path)
            assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Basic"), path
