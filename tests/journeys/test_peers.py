"""What `make peers` says of the suites of others. The suites themselves are not run here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.peers import __main__ as peers
from tests.peers._suites import COUNTS, MODES, SUITES

COUNTING = "tests/unit_tests/runnables/test_config.py::test_merge_config_callbacks"


def _found(*failed: str) -> dict[str, Any]:
    return {"version": "1", "passed_bare": 9, "modes": {"handler": {"failed": dict.fromkeys(failed, "why")}}}


@pytest.mark.parametrize(
    ("failed", "code"),
    [((), 0), ((COUNTING,), 0), ((f"{COUNTING}[async]",), 0), (("tests/test_x.py::test_x",), 1), ((COUNTING, "test_x"), 1)],
)
def test_only_tests_that_count_handlers_may_fail(
    failed: tuple[str, ...], code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Any other failure is listed, and makes the exit code 1."""
    assert peers._report({"langchain-core": _found(*failed)}, tmp_path) == code
    said = capsys.readouterr().out
    assert all(id in said for id in failed)


def test_a_fixture_that_fails_fails_its_test(tmp_path: Path) -> None:
    """A test that passed and whose teardown failed did not pass."""
    lines = [
        {"id": "a", "when": "call", "outcome": "passed"},
        {"id": "b", "when": "setup", "outcome": "failed", "why": "no fixture"},
        {"id": "c", "when": "call", "outcome": "passed"},
        {"id": "c", "when": "teardown", "outcome": "failed", "why": "left over"},
        {"id": "d", "when": "call", "outcome": "failed", "why": "wrong"},
    ]
    (tmp_path / "tests.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = peers._read(tmp_path)
    assert found["tests"] == {"a": "passed", "b": "failed", "c": "failed", "d": "failed"}
    assert set(found["why"]) == {"b", "c", "d"}


def test_every_exception_names_a_suite_and_its_reason() -> None:
    """The list is short, and no entry stands for a suite or a mode that is not run."""
    packages = {suite.package for suite in SUITES}
    for (package, mode), tests in COUNTS.items():
        assert package in packages
        assert mode in MODES
        assert all("::" in id and reason for id, reason in tests.items())
    assert sum(map(len, COUNTS.values())) <= 10
