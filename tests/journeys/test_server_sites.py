"""A chat server of `create_app`, asked by pages that are not its own, and for what it does not have."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

pytest.importorskip("httpx")
pytest.importorskip("uvicorn")

from tests.journeys.test_server import LONG, Server, message

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.name != "posix", reason="signals")]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One for all of these."""
    server = Server(tmp_path_factory.mktemp("sites"))
    yield server
    server.end()
    assert server.complaints() == ""


@pytest.fixture
def run_id(server: Server) -> Iterator[str]:
    """A run that is at work."""
    run_id = server.send(LONG)
    yield run_id
    server.client.post(f"/runs/{run_id}/stop?wait=1")  # 409 if the test has stopped it


OTHERS = [
    {"sec-fetch-site": "cross-site", "origin": "https://other.example"},
    {"sec-fetch-site": "same-site", "origin": "http://localhost:3000"},
    {"origin": "https://other.example"},
    {"origin": "null"},
    {"sec-fetch-site": "cross-site"},
]


@pytest.mark.parametrize("headers", OTHERS, ids=str)
def test_another_site_can_stop_nothing(server: Server, run_id: str, headers: dict[str, str]) -> None:
    """Nor begin anything: a form of another site needs no more than an address."""
    for path, more in (
        (f"/runs/{run_id}/stop", {"content": b"", "headers": {"content-type": "text/plain", **headers}}),
        ("/threads/u/runs", {"json": message("hello"), "headers": headers}),
    ):
        assert server.client.post(path, **more).status_code == 403
    assert server.client.delete("/threads/t", params={"force": 1}, headers=headers).status_code == 403
    assert (server.get(f"/runs/{run_id}")["status"], server.get(f"/runs/{run_id}")["stop"]) == ("running", None)
    assert server.get("/threads/u/runs") == {"runs": []}


def test_the_page_itself_can(server: Server, run_id: str) -> None:
    """With what browsers send along, old ones too; and so can a program, which sends nothing of it."""
    own = f"http://{server.client.base_url.netloc.decode()}"
    for headers in ({"sec-fetch-site": "same-origin", "origin": own}, {"origin": own}, {"sec-fetch-site": "none"}, {}):
        answer = server.client.post("/threads/v/runs", json=message("hello"), headers=headers).raise_for_status()
        assert server.rest(answer.json()["run_id"])[-1]["kind"] == "run.end"
    stopped = server.client.post(f"/runs/{run_id}/stop?wait=true", json={}, headers={"sec-fetch-site": "same-origin"})
    assert stopped.raise_for_status().json()["status"] == "interrupted"


def test_what_is_not_there_tells_no_path(server: Server, run_id: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Nor does a thread that is busy."""
    home = str(tmp_path_factory.getbasetemp())
    answers = [
        server.client.get("/runs/unknown"),
        server.client.get("/runs/unknown/events"),
        server.client.post("/runs/unknown/stop"),
    ]
    answers.append(server.client.post("/threads/t/runs", json=message("again")))
    assert [answer.status_code for answer in answers] == [404, 404, 404, 409]
    for answer in answers:
        assert home not in answer.text
        assert "runs.db" not in answer.text
        assert "sqlite" not in answer.text
    assert answers[0].json()["detail"].startswith("This does not exist, or you may not see it.")
    assert answers[3].json()["run_id"] == run_id
