"""The AI SDK's own clients, versions 5 to 7, unmodified, against a real server: send, reload, reconnect, stop, edit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from langchain_runjournal import RunJournal
from tests.support.ai_sdk_app import application
from tests.support.live_server import served
from tests.support.node_clients import install, run

pytestmark = pytest.mark.slow

VERSIONS = ("ai5old", "ai5", "ai6", "ai7")


@pytest.fixture(scope="module")
def clients() -> Path:
    return install()


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    journal = RunJournal(tmp_path_factory.mktemp("ai-sdk") / "runs.db")
    with served(lambda: application(journal, heartbeat=0.5)) as found:
        yield found
    journal.close()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("program", "journeys"), [("chats.mjs", 25), ("hooks.mjs", 4)])
def test_the_clients_make_all_journeys(clients: Path, url: str, version: str, program: str, journeys: int) -> None:
    """P42 to P49, S6, S16, S21, S22, S25, S28, S43, S44, S47 to S49: `Chat` with `DefaultChatTransport`, and `useChat` in a
    page. Each journey is named in the program."""
    report = run(clients, program, version, url)
    assert {name: problem for name, problem in report.items() if problem} == {}
    assert len(report) == journeys
