"""AG-UI's own client, the newest version and the one before 1.0, unmodified, against a real server and recorded streams."""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from langchain_runjournal import RunJournal
from tests.server.test_ag_ui_projector import frames_of, page
from tests.server.test_ai_sdk_clients import wait_for
from tests.support.ai_sdk_app import application
from tests.support.live_server import served
from tests.support.node_clients import ROOT, install, run
from tests.support.random_stories import RandomRun

pytestmark = pytest.mark.slow

VERSIONS = ("agui1", "agui0")


@pytest.fixture(scope="module")
def clients() -> Path:
    return install(ROOT / "tests" / "clients" / "ag-ui")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    journal = RunJournal(tmp_path_factory.mktemp("ag-ui") / "runs.db")
    with served(lambda: application(journal, heartbeat=0.5)) as found:
        yield found
    journal.close()


@pytest.mark.parametrize("version", VERSIONS)
def test_the_clients_make_all_journeys(clients: Path, url: str, version: str) -> None:
    """P56, S6, S16, S22, S43, S44, S47 to S49: `HttpAgent`, whose `verifyEvents` judges each stream. Each journey is named
    in the program."""
    report = run(clients, "runs.mjs", version, url)
    assert {name: problem for name, problem in report.items() if problem} == {}
    assert len(report) == 17


@pytest.mark.parametrize("version", VERSIONS)
def test_every_client_reads_random_runs_and_comes_back_anywhere(clients: Path, version: str) -> None:
    """S1, S6, P56: `verifyEvents` accepts each stream, and each late one after a cut at any frame; all pages are the same
    then, and the page that our own model of the client foresees."""
    rng, streams, expected = random.Random(17), list[Any](), list[Any]()
    older = version == "agui0"
    for seed in range(60):
        story = RandomRun(seed)
        live, client = frames_of(story, is_older=older), page(story)
        places = [(rng.randrange(len(live)), rng.randint(1, len(story.events))) for _ in range(3)]
        late = [{"cut": cut, "frames": frames_of(story, attach=attach, is_older=older)} for cut, attach in places]
        streams.append({"messages": json.loads(json.dumps(client.messages)), "live": live, "late": late})
        expected.append(client.read(live))
    report = run(clients, "streams.mjs", version, given=streams)
    assert [problem for one in report for problem in one["problems"]] == []
    assert [one["messages"] for one in report] == [client.messages for client in expected]
    assert [one["end"] for one in report] == [client.end for client in expected]


def test_the_clients_survive_a_server_that_is_killed(clients: Path, tmp_path: Path) -> None:
    """P47, S37, S38: the page notices, connects to the next process, has every word, and continues."""
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
