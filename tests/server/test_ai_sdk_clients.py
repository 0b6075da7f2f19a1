"""The AI SDK's own clients, versions 5 to 7, unmodified, against a real server: send, reload, reconnect, stop, edit."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from langchain_runjournal import RunJournal
from tests.support.ai_sdk_app import application
from tests.support.live_server import served
from tests.support.node_clients import ROOT, install, run

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
@pytest.mark.parametrize(("program", "journeys"), [("chats.mjs", 26), ("hooks.mjs", 4)])
def test_the_clients_make_all_journeys(clients: Path, url: str, version: str, program: str, journeys: int) -> None:
    """P42 to P49, S6, S16, S21, S22, S25, S28, S43, S44, S47 to S49: `Chat` with `DefaultChatTransport`, and `useChat` in a
    page. Each journey is named in the program."""
    report = run(clients, program, version, url)
    assert {name: problem for name, problem in report.items() if problem} == {}
    assert len(report) == journeys


def test_the_clients_survive_a_server_that_is_killed(clients: Path, tmp_path: Path) -> None:
    """P47, S37, S38: the page notices, loads the thread from the next process, has every word, and continues."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    command = [sys.executable, "-m", "tests.support.ai_sdk_process", str(tmp_path), str(port)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    processes = [subprocess.Popen(command, cwd=ROOT, env=environment)]
    try:
        wait_for(port)
        program = ["node", "killed.mjs", f"http://127.0.0.1:{port}"]
        with subprocess.Popen(program, cwd=clients, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as node:
            assert node.stdout is not None
            assert node.stdout.readline() == "held\n", node.communicate()
            processes[0].kill()
            processes[0].wait()
            processes.append(subprocess.Popen(command, cwd=ROOT, env=environment))
            said, problem = node.communicate(timeout=100)
        assert json.loads(said) == dict.fromkeys(VERSIONS), problem
    finally:
        for process in processes:
            process.kill()
            process.wait()


def wait_for(port: int) -> None:
    """Return when a server accepts connections."""
    for _ in range(600):
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
            return
        time.sleep(0.05)
    pytest.fail("the server has not started")
