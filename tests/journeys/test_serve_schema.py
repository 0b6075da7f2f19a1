"""schemathesis over the document that the application serves: it says what is so, and nothing makes the server fail."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("uvicorn")
pytest.importorskip("schemathesis", reason="the dependency group `serving` is not installed")

from tests.support.serving_process import Servers, servers

pytestmark = pytest.mark.slow

__all__ = ["servers"]  # a fixture

LEFT_OUT = [
    "positive_data_acceptance",  # what a graph takes, and what excludes what in a start, is not in the document
    "use_after_free",  # a thread needs not be made: one that was deleted is an empty one
]
REFUSED = "WARNING:  Invalid HTTP request received.\n"
"""What uvicorn says of a header with a NUL, before it asks the application."""


PARTS: dict[str, list[str]] = {
    "native": ["--exclude-path-regex", "^/langgraph", "--phases", "coverage,fuzzing,stateful", "--max-examples", "30"],
    "langgraph": ["--include-path-regex", "^/langgraph", "--phases", "coverage"],
}


@pytest.mark.parametrize("part", PARTS)
def test_the_document_says_what_is_so(servers: Servers, tmp_path: Path, part: str) -> None:
    """Statuses, types and schemas of all answers, for valid and for invalid requests, and for sequences of them."""
    server = servers(pace=0, heartbeat=0.05, lease=0.1)
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{server.url}/openapi.json", "--no-color"]
    left_out = [*LEFT_OUT, "unsupported_method"] if part == "langgraph" else LEFT_OUT  # runs/stream may be the run "stream"
    command += [*PARTS[part], "--continue-on-failure", "--generation-deterministic", "--exclude-checks", ",".join(left_out)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.search(r"Operations: +(\d+) selected / \d+ total", done.stdout)
    assert found is not None
    assert int(found[1]) >= 10
    said = server.complaints()
    server.said.clear()
    assert said.replace(REFUSED, "") == ""
