"""System calls that fail, one at a time. `tests/storms/faults.py` makes all of them fail at random."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from langchain_runjournal import RunJournal, errors
from langchain_runjournal.journal.core import core_of


@pytest.mark.parametrize("code", [errno.EIO, errno.EMFILE, errno.EACCES, errno.ENOMEM])
def test_a_look_at_the_file_may_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """The call fails while the file is opened, and after a transaction. Each time, one of our errors is raised, and the
    journal works again."""
    real, failing = Path.stat, False

    def stat(*args: Any, **kwargs: Any) -> os.stat_result:
        if failing:
            raise OSError(code, os.strerror(code))
        return real(*args, **kwargs)

    monkeypatch.setattr(Path, "stat", stat)  # `stat` of `Path`, because Python 3.10 would not notice a patched `os.stat`
    with RunJournal(tmp_path / "runs.db") as journal:
        failing = True
        with pytest.raises(errors.StoreFailed, match=os.strerror(code)):
            core_of(journal).store.tidy()
        with pytest.raises(errors.StoreFailed, match=os.strerror(code)):
            RunJournal(tmp_path / "runs.db")
        failing = False
        core_of(journal).store.tidy()
    RunJournal(tmp_path / "runs.db").close()
