"""docs/howto/fastapi.md: the program before and after its diffs, behind a real server whose client closes the connection."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from langchain_runjournal import Event, RunJournal
from tests.support.imports import ROOT
from tests.support.live_server import PATIENCE, served

DIFFS = re.findall(r"^```diff\n(.*?)^```", (ROOT / "docs" / "howto" / "fastapi.md").read_text("utf-8"), re.M | re.S)
CHAT = "/chat/t1"


def side(diff: str, sign: str) -> str:
    """What a diff has before (`-`) or after (`+`) it."""
    return "".join(line[1:] for line in diff.splitlines(keepends=True) if line[0] in {" ", "\n", sign}).replace(
        "\n\n\n\n", "\n\n\n"
    )


def program(source: str) -> Any:
    """The application of a source, made on the thread that serves it."""

    def make() -> Any:
        found: dict[str, Any] = {}
        exec(compile(source, "program.py", "exec"), found)
        return found["app"]

    return make


def before_and_after() -> tuple[str, str, str]:
    whole, route, stop = DIFFS
    whole = re.sub(r"^$", " ", whole, flags=re.M)
    bare, attached = (side(whole, sign) for sign in "-+")
    assert side(route, "-") in attached
    own_task = attached.replace(side(route, "-"), side(route, "+")).replace(
        "RunJournal, attach", "RunJournal, attach, start_run"
    )
    own_task = own_task.replace("        yield\n\n\napp", "        app.state.journal = journal\n        yield\n\n\napp")
    return bare, attached, own_task + "\n\n" + side(stop, "+")


def read_a_little(client: httpx.Client) -> str:
    """Begin an answer, and close the connection in its middle."""
    with client.stream("POST", CHAT, params={"text": "Hello"}) as response:
        return next(response.iter_text())


def events(journal: RunJournal) -> Iterator[Event]:
    """The events of the thread; waits for the first one, which the store may not have yet."""
    return journal.follow_thread("t1")


def test_five_lines_are_changed() -> None:
    """Three, and two more; the route for Stop is new."""
    added = [[line for line in diff.splitlines() if line[:1] == "+"] for diff in DIFFS]
    assert [len(lines) for lines in added[:2]] == [3, 2]


@pytest.mark.slow
@pytest.mark.parametrize("is_attached", [False, True])
def test_a_client_that_closes_the_connection(is_attached: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread gets the words that were sent; without the three lines, no word of them."""
    monkeypatch.chdir(tmp_path)
    source = before_and_after()[is_attached]
    with served(program(source)) as url, httpx.Client(base_url=url, timeout=PATIENCE) as client:
        said = read_a_little(client)
        if is_attached:
            with RunJournal("runs.db") as journal:
                assert any(event.kind == "run.end" for event in events(journal))
            found = client.get(CHAT).json()
    if not is_attached:  # a server that has ended has no run that could still write
        with served(program(source)) as url, httpx.Client(base_url=url, timeout=PATIENCE) as client:
            found = client.get(CHAT).json()
    assert said
    if is_attached:
        assert [one["type"] for one in found] == ["human", "ai"]
        assert found[1]["text"].startswith(said)
        assert len(found[1]["text"].split()) < 100
    else:
        assert "ai" not in [one["type"] for one in found]


@pytest.mark.slow
def test_a_run_outlives_its_request_until_it_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client leaves, the run continues; the route for Stop answers when the thread has the words."""
    monkeypatch.chdir(tmp_path)
    with served(program(before_and_after()[2])) as url, httpx.Client(base_url=url, timeout=PATIENCE) as client:
        read_a_little(client)
        with RunJournal("runs.db") as journal:
            words = (event.text for event in events(journal) if event.text)
            assert len([next(words) for _ in range(8)]) == 8
        client.post(f"{CHAT}/stop").raise_for_status()
        found = client.get(CHAT).json()
        with RunJournal("runs.db") as journal:
            assert [(one.status, one.cause, one.settled) for one in journal.runs()] == [("interrupted", "stop", True)]
    assert [one["type"] for one in found] == ["human", "ai"]
    assert 8 <= len(found[1]["text"].split()) < 100
