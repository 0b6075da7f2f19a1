"""Every message that a program can get: each is printed here, reads as English, agrees with its numbers, and pickles."""

from __future__ import annotations

import ast
import asyncio
import copy
import inspect
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langgraph.graph import START, MessagesState, StateGraph

import langchain_runjournal
from langchain_runjournal import Event, RunJournal, attach, errors, start_run
from langchain_runjournal.errors import RunJournalError
from langchain_runjournal.guard import ToolPairGuard
from langchain_runjournal.stores.sqlite import SqliteStore
from langchain_runjournal.testing import FaultyStore, ScriptedChatModel
from tests.house.test_prose import found_in

PACKAGE = Path(langchain_runjournal.__file__).parent
EXAMPLES = {
    "NoMessages": {"what": "The graph agent", "reason": "its state has no `messages` (it has: notes)"},
    "NotAttachable": {"what": "A RunnableSequence", "reason": "it is not a compiled graph"},
    "NothingToResume": {"run_id": "r1", "reason": "it is complete"},
    "SettlementTimeout": {"thread_id": "t1", "what": "a background write to it", "seconds": 30.0},
    "JournalClosing": {"url": "sqlite:///runs.db"},
    "ThreadBusy": {"thread_id": "t1", "run_id": "r1"},
    "RunAtWork": {"run_ids": ["r1", "r2"]},
    "StopTimeout": {"run_id": "r1", "seconds": 5.0},
    "RunAbandoned": {"run_id": "r1"},
    "ChunksGone": {"run_id": "r1", "reason": "another reader has them already"},
    "InvalidArgument": {"name": "limit", "expected": "an int of 0 or more", "value": -1},
    "ArgumentsConflict": {
        "name": "delete",
        "expected": "one of them",
        "found": "both thread_id and run_id",
    },
    "UnknownOption": {
        "name": "start_run",
        "what": "option",
        "unknown": ["if_buzy"],
        "known": ["if_busy", "timeout"],
        "value": "if_buzy",
        "expected": "one of if_busy, timeout",
        "suggestions": ["if_busy"],
    },
    "UnknownStore": {"url": "redis://x", "reason": "this version has no store for the scheme 'redis'"},
    "StoreIsDirectory": {"path": "/tmp"},
    "StoreNotWritable": {"path": "/x/runs.db", "reason": "the directory /x does not exist; create it first"},
    "StoreExposed": {"path": "runs.db", "reason": "it belongs to another user (uid 1000)"},
    "SpoolDirUnusable": {"path": "/var/spool/app", "reason": "it does not exist"},
    "RedactionFailed": {"url": "sqlite:///runs.db", "failed": 2, "reason": "ValueError in redact.py, line 7"},
    "SpoolUnusable": {"path": "runs.db-spool-1", "reason": "it is not a spool (its first bytes are not ours)"},
    "NotADatabase": {"path": "notes.txt", "reason": "file is not a database"},
    "ForeignDatabase": {"path": "app.db", "tables": "users", "suggestion": "app-journal.db"},
    "StoreTooNew": {"path": "runs.db", "found": 9, "known": 1},
    "StoreCorrupt": {"path": "runs.db", "reason": "database disk image is malformed"},
    "StoreFailed": {"path": "runs.db", "reason": "disk I/O error", "hint": "Look at the disk and its permissions"},
    "StoreUnreachable": {"path": "postgresql://db/app", "reason": "connection refused", "hint": "Start the server"},
    "StoreUnusable": {"url": "redis://db/0", "reason": "it keeps nothing on a disk", "hint": "Set its appendonly to yes"},
    "StoreClosed": {"url": "sqlite:///runs.db"},
    "JournalClosed": {"url": "sqlite:///runs.db", "refused": 2},
    "WriteFailed": {"url": "sqlite:///runs.db", "reason": "disk full", "waiting": 3, "where": "in the spool", "lost": 1},
    "EventsLost": {"url": "sqlite:///runs.db", "lost": 3},
    "FlushTimeout": {"url": "sqlite:///runs.db", "timeout": 1.5},
    "RunFenced": {"run_ids": ["r"], "refused": 3},
    "RunIdTaken": {"run_ids": ["r"], "refused": 3},
    "CheckpointFenced": {"thread_id": "t1", "run_ids": ["r"]},
    "LeaseExpired": {"thread_id": "t1", "run_ids": ["r"], "lease": 15.0},
    "RunNotFound": {"run_id": "r", "url": "sqlite:///runs.db"},
    "SeqGap": {"run_id": "r", "last": 2, "first": 5},
    "EventsMissing": {"run_id": "r", "after": 2, "found": 5, "url": "sqlite:///runs.db"},
    "WouldDeadlock": {"url": "sqlite:///runs.db", "where": "in a callback of on_stop", "hint": "Use `astop`"},
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


def test_every_error_is_public() -> None:
    """So that a program may import what it catches."""
    assert errors.__all__ == sorted(kind.__name__ for kind in all_errors())


@pytest.mark.parametrize("kind", all_errors(), ids=lambda kind: kind.__name__)
def test_errors_pickle_and_read_aloud(kind: type[RunJournalError]) -> None:
    """A message names what it is about, says what to do, and survives another process."""
    values = EXAMPLES[kind.__name__]
    error = kind(**values)
    text = str(error)
    assert_reads(text)
    for name, value in values.items():
        assert getattr(error, name) == value
        parts = value if isinstance(value, list) else [value]
        is_said = all(str(part) in text for part in parts)
        assert is_said or (kind, name) == (errors.UnknownOption, "expected")  # which the text says in other words
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert (type(twin), str(twin), twin.values) == (kind, text, values)
    with pytest.raises(AttributeError):
        _ = error.nothing_of_the_kind
    if values and kind is not errors.InvalidArgument:
        # The fact first, then what to do: more than one sentence, and one of them begins with an imperative.
        verbs = "Append|Check|Choose|Find|Free|Give|Keep|List|Look|Move|Number|Open|Report|Set|Stop|Upgrade|Use|Wait|Did you"
        assert re.search(rf"[.:] ({verbs})|then try again", text)


def assert_reads(text: str) -> None:
    """Sentences, without gaps, counts of nothing, wrong numbers, banned phrases."""
    assert re.fullmatch(r"\S.*[^.?:;,]\.", text), text
    assert not re.search(r"[{}]|\n|  | [,;:.]|\bNone\b|[:;,.]\.", re.sub(r"\.\.\.|:memory:", "x", text)), text
    assert not re.search(rf"\b0 {_COUNTED}s?\b|\b1 {_COUNTED}s\b|\b[2-9] {_COUNTED}\b", text), text
    assert not re.search(r"\b1 \w+ (were|wait|are)\b|\b[2-9] \w+ (was|waits|is)\b|\w\(s\)", text), text
    assert not found_in(text), text
    assert not _VAGUE.search(text), text


_COUNTED = "(event|run|time|answer)"
_VAGUE = re.compile(r"\bgo(es|ing)? on\b|\bstumbl|\bany ?more\b|\(s\)")


@pytest.mark.parametrize("kind", all_errors(), ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("number", [0, 1, 2])
def test_errors_agree_with_their_numbers(kind: type[RunJournalError], number: int) -> None:
    """A count of 0 and an empty list are not mentioned; with 1 and 2, nouns, verbs and pronouns are the right ones."""
    values = dict(EXAMPLES[kind.__name__])
    spelled = set(re.findall(r"\{(\w+)(?:!r)?:", kind.__doc__ or ""))
    for name in spelled & values.keys():
        if isinstance(values[name], int):
            values[name] = number
        elif number and isinstance(values[name], list):
            values[name] = [*values[name], "another"][:number]
    assert_reads(str(kind(**values)))


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (errors.JournalClosed(url="u", refused=0), "The journal u is closed. Open"),
        (errors.JournalClosed(url="u", refused=1), "is closed. 1 event came after that and was not stored. Open"),
        (errors.JournalClosed(url="u", refused=2), "is closed. 2 events came after that and were not stored. Open"),
        (
            errors.RunFenced(run_ids=["a"], refused=0),
            "write to run 'a' was refused: another journal owns it, or it ended",
        ),
        (errors.RunFenced(run_ids=["a", "b", "c"], refused=1), "write to runs 'a', 'b' and 'c' was refused"),
        (errors.ToolPairBroken(problems=["c1 has no result", "c2 has no call"]), ": c1 has no result; c2 has no call. Give"),
        (
            errors.WriteFailed(url="u", reason="full", waiting=0, where="", lost=0),
            "The journal u could not be written: full. Free",
        ),
        (errors.ScriptEnded(answers=0), "The script of this ScriptedChatModel has ended. Give"),
        (
            errors.InvalidArgument(name="timeout", expected="a number", value=()),
            "timeout must be a number, but () was given.",
        ),
        (errors.InvalidArgument(name="limit", expected="an int", value=None, hint="Use 5"), "but None was given. Use 5."),
    ],
)
def test_sentences_fit_their_values(error: RunJournalError, said: str) -> None:
    """What there is nothing to say of is left out, and the rest agrees with its numbers."""
    assert said in str(error)


def test_a_value_that_is_long_is_cut_short_in_the_text() -> None:
    """It may be a whole conversation. The attribute is the value itself."""
    error = errors.InvalidArgument(name="messages", expected="a list", value="word " * 1_000)
    assert len(str(error)) < 300
    assert error.value == "word " * 1_000


@pytest.mark.parametrize(
    ("unknown", "asks"),
    [
        (["if_buzy"], " Did you mean 'if_busy'?"),
        (["colour"], ""),
        ([7], ""),
        (["ifbusy", "timout"], " Did you mean 'if_busy', 'timeout'?"),
    ],
)
def test_an_unknown_option_is_told_with_its_neighbour(unknown: list[Any], asks: str) -> None:
    """A suggestion if one is close, none if none is; it is an InvalidArgument with all that one has, also when unpickled."""
    error = errors.UnknownOption(name="start_run", what="option", unknown=unknown, known=["if_busy", "timeout"])
    options = " and ".join(map(repr, unknown))
    noun = "options" if len(unknown) > 1 else "option"
    assert str(error) == f"start_run does not know the {noun} {options}.{asks} It knows: 'if_busy', 'timeout'."
    assert isinstance(error, errors.InvalidArgument)
    assert isinstance(error, ValueError)
    assert (error.name, error.expected) == ("start_run", "one of if_busy, timeout")
    assert error.value == (unknown[0] if len(unknown) == 1 else "ifbusy, timout")
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.values) == (errors.UnknownOption, str(error), error.values)


def fragments() -> list[tuple[str, str]]:
    """Every text in an exception that is raised and in a log line, of the package without its command and its demo."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        place = path.relative_to(PACKAGE)
        if place.parts[0] in ("cli", "demo"):
            continue
        tree = ast.parse(path.read_text())
        named = {
            target.id: node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None
            for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
            if isinstance(target, ast.Name)
        }
        for node in ast.walk(tree):
            is_log = isinstance(node, ast.Call) and re.match(
                r"(logger\.\w+|warnings\.warn|log_failure)$", ast.unparse(node.func)
            )
            if is_log or isinstance(node, ast.Raise):
                parts = [*ast.walk(node)]
                parts += [
                    one
                    for name in parts
                    if isinstance(name, ast.Name) and name.id in named
                    for one in ast.walk(named[name.id])
                ]
                found += [
                    (f"{place}:{node.lineno}", one.value)
                    for one in parts
                    if isinstance(one, ast.Constant) and isinstance(one.value, str)
                ]
    return found


def test_what_is_raised_and_logged_is_plain_english() -> None:
    """No banned phrase, no "event(s)", in any text that a program gets to read when something goes wrong."""
    found = fragments()
    assert len({text for _, text in found if " " in text}) > 150
    assert [(place, text) for place, text in found if found_in(text) or _VAGUE.search(text)] == []


def test_errors_survive_stripped_docstrings() -> None:
    """`python -OO` takes the docstrings away: the message is then the name and the values."""
    code = "from langchain_runjournal import errors; print(errors.RunNotFound(run_id='r', url='u'))"
    done = subprocess.run([sys.executable, "-OO", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "RunNotFound: {'run_id': 'r', 'url': 'u'}"


# --- as they come out -----------------------------------------------------------------------------------------------------


def _wrong(value: object) -> Any:
    """Hide the type of a value that is wrong on purpose."""
    return value


def _graph() -> Any:
    return StateGraph(MessagesState).add_node("route", lambda state: {}).add_edge(START, "route").compile()


async def _start_run(journal: RunJournal, **options: Any) -> None:
    await start_run(_graph(), {"messages": []}, journal=journal, **options)


MISTYPED: dict[str, tuple[Callable[[RunJournal], object], str]] = {
    "start_run": (
        lambda journal: asyncio.run(_start_run(journal, if_buzy="stop")),
        "start_run does not know the option 'if_buzy'. Did you mean 'if_busy'? It knows: ",
    ),
    "an option of astream": (
        lambda journal: asyncio.run(_start_run(journal, durabilty="exit")),
        "start_run does not know the option 'durabilty'. Did you mean 'durability'? It knows: ",
    ),
    "if_busy": (
        lambda journal: asyncio.run(_start_run(journal, if_busy="wiat")),
        "if_busy does not know the value 'wiat'. Did you mean 'wait'? It knows: 'reject', 'stop', 'wait'.",
    ),
    "settle": (
        lambda journal: attach(_graph(), journal, settle=_wrong("alway")),
        "'alway'. Did you mean 'always'? It knows: ",
    ),
    "answers": (
        lambda journal: attach(_graph(), journal, answers="rout"),
        "answers does not know the node 'rout'. Did you mean 'route'? It knows: 'route'. For the calls",
    ),
    "synchronous": (
        lambda journal: RunJournal("never.db", synchronous=_wrong("fulll")),
        "synchronous does not know the value 'fulll'. Did you mean 'full'? It knows: ",
    ),
    "status": (
        lambda journal: journal.runs(status="runing"),
        "the value 'runing'. Did you mean 'running'?",
    ),
    "cause": (
        lambda journal: journal.stop("r", _wrong("shutdwn")),
        "'shutdwn'. Did you mean 'shutdown'? It knows: 'stop', ",
    ),
    "kind": (
        lambda journal: Event(run_id="r", kind=_wrong("run.strat")),
        "the value 'run.strat'. Did you mean 'run.start'?",
    ),
    "a kind that is none": (
        lambda journal: Event(run_id="r", kind=_wrong(7)),
        "Event.kind does not know the value 7. It",
    ),
    "the status of an end": (
        lambda journal: Event(run_id="r", kind="run.end", data={"status": "complete"}),
        "data['status'] of run.end does not know the value 'complete'. Did you mean 'completed'?",
    ),
    "dangling": (
        lambda journal: ToolPairGuard(journal, dangling=_wrong("synthesise")),
        "dangling does not know the value 'synthesise'. Did you mean 'synthesize'?",
    ),
    "a scripted model": (
        lambda journal: ScriptedChatModel(["hi"], pase=1),
        "ScriptedChatModel does not know the field 'pase'. Did you mean 'pace'? It knows: ",
    ),
}


@pytest.mark.parametrize("place", MISTYPED)
def test_a_typing_error_gets_a_suggestion(place: str) -> None:
    """Wherever a name or a choice is given. It is an InvalidArgument, as before, and a ValueError."""
    call, said = MISTYPED[place]
    with RunJournal(":memory:") as journal, pytest.raises(errors.UnknownOption) as caught:
        call(journal)
    assert said in str(caught.value)
    assert isinstance(caught.value, errors.InvalidArgument)
    assert_reads(str(caught.value))


def test_a_closed_journal_counts_what_came_too_late() -> None:
    """Nothing of a count if nothing came; else how many."""
    journal = RunJournal(":memory:")
    journal.close()
    for late in (0, 1, 2):
        for _ in range(late):
            journal.append(Event(run_id="r", kind="run.start"))
        with pytest.raises(errors.JournalClosed) as caught:
            journal.flush()
        assert caught.value.refused == late
        assert_reads(str(caught.value))
        assert ("came after that" in str(caught.value)) is (late > 0)


def test_each_loss_gets_the_advice_that_fits(tmp_path: Path) -> None:
    """An event that cannot be taken has nothing to do with disks; one that cannot be stored yet waits, and says where."""
    store = FaultyStore(SqliteStore(tmp_path / "runs.db"))
    journal = RunJournal(store)
    journal.append(_wrong(None))
    with pytest.raises(errors.EventsLost) as lost:
        journal.flush()
    assert "could not take 1 event, and it is lost. The log" in str(lost.value)
    assert not re.search("space|lock|wait", str(lost.value))
    store.fail(times=-1)
    journal.append(Event(run_id="r", kind="run.start"))
    with pytest.raises(errors.WriteFailed) as failed:
        journal.flush()
    assert " 1 event waits to be stored, in the spool beside it, safe from a kill: the journal stores it as" in str(
        failed.value
    )
    assert "lost" not in str(failed.value)
    with pytest.raises(errors.WriteFailed, match="or open the journal again") as closed:
        journal.close()
    assert (closed.value.waiting, closed.value.lost) == (1, 0)
    for one in (lost, failed, closed):
        assert_reads(str(one.value))
