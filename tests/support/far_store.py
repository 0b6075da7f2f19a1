"""A store of somebody else, as it may be on another machine: its runs are in a file that the journal does not know of.

python -m tests.support.far_store DB SPOOL_DIR(-: beside the file, ~: the default of a store without one) TEXT
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from langchain_runjournal import Event, RunJournal
from langchain_runjournal.journal.core import core_of
from langchain_runjournal.stores.sqlite import SqliteStore
from tests.support.imports import ROOT


class FarStore:
    """Passes everything on but the path."""

    def __init__(self, db: Path) -> None:
        self.inner = SqliteStore(db)
        self.url = f"far:{db.name}"
        self.path = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class _Full(FarStore):
    """One that cannot store anything any more."""

    def append(self, *_: Any) -> None:
        raise OSError("the other machine does not answer")


def kill_a_writer(db: Path, spools: Path | str, text: str) -> str:
    """Have a process append a run to a store without a path, and kill it before it stores anything. Return the run."""
    command = [sys.executable, "-m", "tests.support.far_store", str(db), str(spools), text]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        run_id = process.stdout.readline().strip()
        process.send_signal(signal.SIGKILL)
    return run_id


def main(db: Path, spool_dir: str, text: str) -> None:
    if spool_dir == "-":
        journal = RunJournal(db)
        core_of(journal).store.append = _Full.append  # type: ignore[method-assign, assignment]
    else:
        journal = RunJournal(_Full(db), spool_dir=None if spool_dir == "~" else spool_dir)
    run_id = f"run-{journal.owner_id}"
    for _ in range(100):
        journal.append(Event(run_id=run_id, kind="llm.ai.delta", data={"text": text}, call_id="c"))
    print(run_id, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
