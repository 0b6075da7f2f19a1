"""A journal on a server that is opened before a fork, as by `gunicorn --preload`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from langchain_runjournal import Event, RunJournal
from tests.journal.test_fork_and_exit import delta, in_child, posix
from tests.support.servers import postgres_url, redis_url


@posix
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("url_of", [postgres_url, redis_url])
def test_a_journal_on_a_server_that_is_opened_before_a_fork(url_of: Callable[[], str], tmp_path: Path) -> None:
    """The parent and each child append and follow with the same object."""
    with RunJournal(url_of(), spool_dir=tmp_path) as journal:
        for name in ("a", "b"):

            def child(name: str = name) -> None:
                journal.append(delta(name))
                journal.append(Event(run_id=name, kind="run.end", data={"status": "completed"}))
                assert [event.seq for event in journal.follow(name)] == [1, 2]
                journal.close()

            in_child(child)
        journal.append(delta("parent"))
        journal.flush()
        assert {run.run_id: run.last_seq for run in journal.runs()} == {"a": 2, "b": 2, "parent": 1}
