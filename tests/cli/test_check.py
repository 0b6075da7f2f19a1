"""`runjournal check`: the problems of a journal, as data and as an exit code."""

from __future__ import annotations

from pathlib import Path

from langchain_runjournal import RunJournal
from tests.support.command_line import (
    DONE,
    FAILED,
    data,
    run,
    write,
)


def test_check_counts_or_names(here: Path) -> None:
    """A whole journal is a note on stderr; each problem is a line of data, and the exit code is 1."""
    with RunJournal(here / "runs.db") as opened:
        write(opened, DONE)
    done = run("check")
    assert (done.exit_code, done.stdout) == (0, "")
    assert "fine: 1 run, 13 events" in done.stderr
    with RunJournal(here / "runs.db") as opened:
        write(opened, FAILED, "failed")
    found = data("check", exit_code=1)
    assert {(one["what"], one["run_id"]) for one in found} >= {("unsettled", FAILED)}
    assert set(found[0]) == {"what", "run_id", "text", "hint"}
    assert f"{FAILED}  unsettled: " in run("check").stdout
