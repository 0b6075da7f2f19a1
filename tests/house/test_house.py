"""The rules of the house, checked."""

from __future__ import annotations

import copy
import inspect
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest

import langchain_runjournal
from langchain_runjournal import RunJournal, errors
from langchain_runjournal.errors import RunJournalError

PACKAGE = Path(langchain_runjournal.__file__).parent
TWINS = [name for name in vars(RunJournal) if not name.startswith("_") and f"a{name}" in vars(RunJournal)]


def test_what_may_block_has_a_twin() -> None:
    """Every public method that may wait, and no other."""
    assert set(TWINS) == {
        "claim",
        "close",
        "delete",
        "flush",
        "follow",
        "prune",
        "read",
        "recover",
        "resume_config",
        "run",
        "runs",
        "stop",
        "transcript",
    }


@pytest.mark.parametrize("name", TWINS)
def test_twins_have_one_signature(name: str) -> None:
    """Same parameters, same defaults; the twin's docstring points to the first one."""
    plain, twin = getattr(RunJournal, name), getattr(RunJournal, f"a{name}")
    assert inspect.signature(plain).parameters == inspect.signature(twin).parameters
    returned = [str(inspect.signature(method).return_annotation) for method in (plain, twin)]
    assert returned[0] == returned[1].replace("AsyncIterator", "Iterator")
    assert f":meth:`{name}`" in twin.__doc__


EXAMPLES = {
    "NoMessages": {"what": "The graph agent", "reason": "its state has no `messages` (it has: notes)"},
    "NotAttachable": {"what": "A RunnableSequence", "reason": "it is no compiled graph"},
    "NothingToResume": {"run_id": "r1", "reason": "it is complete"},
    "SettlementTimeout": {"thread_id": "t1", "seconds": 30.0},
    "JournalClosing": {"url": "sqlite:///runs.db"},
    "ThreadBusy": {"thread_id": "t1", "run_id": "r1"},
    "RunAtWork": {"run_ids": ["r1", "r2"]},
    "StopTimeout": {"run_id": "r1", "seconds": 5.0},
    "RunAbandoned": {"run_id": "r1"},
    "ChunksGone": {"run_id": "r1", "reason": "their reader has gone"},
    "InvalidArgument": {"name": "limit", "expected": "an int of 0 or more", "value": -1},
    "UnknownStore": {"url": "redis://x", "reason": "this version has no store for the scheme 'redis'"},
    "StoreIsDirectory": {"path": "/tmp"},
    "StoreNotWritable": {"path": "/x/runs.db", "reason": "the directory /x does not exist, create it first"},
    "StoreExposed": {"path": "runs.db", "reason": "it belongs to another user (uid 1000)"},
    "SpoolUnusable": {"path": "runs.db-spool-1", "reason": "it is not a spool: its first bytes are not ours"},
    "NotADatabase": {"path": "notes.txt", "reason": "it does not begin as one"},
    "ForeignDatabase": {"path": "app.db", "tables": "users", "suggestion": "app-journal.db"},
    "StoreTooNew": {"path": "runs.db", "found": 9, "known": 1},
    "StoreCorrupt": {"path": "runs.db", "reason": "database disk image is malformed"},
    "StoreFailed": {"path": "runs.db", "reason": "disk I/O error", "hint": "Look at the disk and its permissions"},
    "StoreClosed": {"url": "sqlite:///runs.db"},
    "JournalClosed": {"url": "sqlite:///runs.db", "refused": 2},
    "WriteFailed": {"url": "sqlite:///runs.db", "reason": "disk full", "waiting": 3, "where": "in the spool", "lost": 0},
    "EventsLost": {"url": "sqlite:///runs.db", "lost": 3},
    "FlushTimeout": {"url": "sqlite:///runs.db", "timeout": 1.5},
    "RunFenced": {"run_ids": ["r"], "refused": 3},
    "CheckpointFenced": {"thread_id": "t1", "run_ids": ["r"]},
    "RunNotFound": {"run_id": "r", "url": "sqlite:///runs.db"},
    "SeqGap": {"run_id": "r", "last": 2, "first": 5},
    "EventsMissing": {"run_id": "r", "after": 2, "found": 5, "url": "sqlite:///runs.db"},
    "WouldDeadlock": {"url": "sqlite:///runs.db", "where": "in a callback of on_stop"},
    "EventUnusable": {"run_id": "r", "reason": "integer overflow", "refused": 2},
    "ToolPairBroken": {"problems": "call 'c1' (search) of message 'a1' has no result"},
    "AnswerCut": {"calls": "search (c1)", "why": "it ended early", "times": 3},
    "CallCut": {"said": "Not executed: the answer ended early.", "call_id": "c1", "tool": "search"},
    "ExtraMissing": {"what": "ToolPairGuard", "package": "langchain", "extra": "agent"},
    "RequestRefused": {"problems": "call 'c1' (search) of message 'a1' has no result"},
    "ScriptEnded": {"answers": 2},
    "RunJournalError": {},
}


def all_errors() -> list[type[RunJournalError]]:
    return [kind for kind in vars(errors).values() if inspect.isclass(kind) and issubclass(kind, RunJournalError)]


def test_every_error_has_an_example_here() -> None:
    """So that no message goes unread."""
    assert {kind.__name__ for kind in all_errors()} == set(EXAMPLES)


@pytest.mark.parametrize("kind", all_errors(), ids=lambda kind: kind.__name__)
def test_errors_pickle_and_read_aloud(kind: type[RunJournalError]) -> None:
    """A message names what it is about, says what to do, and survives another process."""
    values = EXAMPLES[kind.__name__]
    error = kind(**values)
    text = str(error)
    assert text.endswith(".")
    assert "{" not in text.replace("{'", "")
    assert "\n" not in text
    for name, value in values.items():
        assert getattr(error, name) == value
        assert str(value) in text or repr(value) in text
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert (type(twin), str(twin), twin.values) == (kind, text, values)
    with pytest.raises(AttributeError):
        _ = error.nothing_of_the_kind
    if values:
        # The fact first, then what to do: more than one sentence, and a verb in the imperative.
        assert re.search(
            r"(Use|Give|Choose|Upgrade|Keep|Open|Wait|Stop|List|check|then try|Set|Report|free|given|stored|Nothing)",
            text,
        )


def test_errors_survive_stripped_docstrings() -> None:
    """`python -OO` takes the docstrings away: the message is then the name and the values."""
    code = "from langchain_runjournal import errors; print(errors.RunNotFound(run_id='r', url='u'))"
    done = subprocess.run([sys.executable, "-OO", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "RunNotFound: {'run_id': 'r', 'url': 'u'}"


def test_every_public_name_says_what_it_is() -> None:
    """Names in `__all__`, their public methods, and the verbs of a store."""
    from langchain_runjournal import stores, testing

    objects = [getattr(langchain_runjournal, name) for name in langchain_runjournal.__all__ if name != "__version__"]
    objects += [testing.StoreContract, testing.FakeClock, testing.FaultyStore, stores.Store, stores.Owner, stores.open_store]
    for thing in objects:
        assert thing.__doc__, thing
        if inspect.isclass(thing):
            for name, member in vars(thing).items():
                if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, property)):
                    assert member.__doc__, f"{thing.__name__}.{name}"


def test_no_file_is_too_long() -> None:
    """A file over about 400 lines is a question of design."""
    for path in PACKAGE.rglob("*.py"):
        assert len(path.read_text().splitlines()) <= 400, path
