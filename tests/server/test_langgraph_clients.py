"""The clients of LangGraph Server, unmodified, against a real server: `useStream` and `Client` of two versions,
`@langchain/react`, assistant-ui, CopilotKit's agent, and the options of two chat pages."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from langchain_runjournal import RunJournal
from tests.server.test_ai_sdk_clients import wait_for
from tests.support.langgraph_app import application
from tests.support.live_server import served
from tests.support.node_clients import LANGGRAPH, ROOT, install, run

pytestmark = pytest.mark.slow

PLAIN = {"loop": "asyncio", "http": "h11"}
"""What uvicorn takes on a machine without uvloop and httptools."""


@pytest.fixture(scope="module")
def clients() -> Path:
    return install(LANGGRAPH)


@pytest.fixture(scope="module", params=[{}, PLAIN], ids=["fast", "plain"])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    journal = RunJournal(tmp_path_factory.mktemp("langgraph") / "runs.db")
    with served(lambda: application(journal, heartbeat=0.5), **request.param) as found:
        yield found
    journal.close()


@pytest.mark.parametrize(
    ("program", "arguments", "journeys"),
    [
        ("client.mjs", ["lg1"], 11),
        ("client.mjs", ["lg2"], 11),
        ("hooks.mjs", ["lg1"], 18),
        ("hooks.mjs", ["lg2"], 18),
        ("react.mjs", [], 13),
        ("others.mjs", [], 9),
    ],
    ids=lambda value: value[0] if isinstance(value, list) and value else str(value).partition(".")[0],
)
def test_the_clients_make_all_journeys(clients: Path, url: str, program: str, arguments: list[str], journeys: int) -> None:
    """Each journey is named in its program."""
    report = run(clients, program, *arguments, url)
    assert {name: problem for name, problem in report.items() if problem} == {}
    assert len(report) == journeys


def test_pages_of_a_worker_that_is_killed_go_on_with_another_one(clients: Path, tmp_path: Path) -> None:
    """With every word, and with the run that waited in line."""
    ports = []
    for _ in range(2):
        with socket.create_server(("127.0.0.1", 0)) as found:
            ports.append(found.getsockname()[1])
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    workers = []
    try:
        for port in ports:
            command = [sys.executable, "-m", "tests.support.ai_sdk_process", str(tmp_path), str(port), "langgraph_app"]
            workers.append(subprocess.Popen(command, cwd=ROOT, env=environment))
            wait_for(port)
        program = ["node", "killed.mjs", *[f"http://127.0.0.1:{port}" for port in ports]]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with subprocess.Popen(program, cwd=clients, text=True, **pipes) as node:  # type: ignore[call-overload]
            assert node.stdout.readline() == "held\n", node.communicate()
            workers[0].kill()
            workers[0].wait()
            said, problem = node.communicate("killed\n", timeout=100)
        assert json.loads(said) == dict.fromkeys(("queued", "thread", "lg2", "react")), problem
    finally:
        for process in workers:
            process.kill()
            process.wait()
