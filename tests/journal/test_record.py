"""`Appender.record` is the one place where something becomes an event: nothing goes around it, nor around `redact`."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any
from uuid import uuid4

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt
from typing_extensions import TypedDict

from langchain_runjournal import Event, JournalCallbackHandler, RunJournal, attach, is_partial, start_run
from langchain_runjournal.journal.append import Appender
from langchain_runjournal.journal.core import core_of
from langchain_runjournal.messages.forms import known_again
from langchain_runjournal.redact import Redact, Text, patterns
from langchain_runjournal.testing import Call, Reasoning, ScriptedChatModel
from tests.support.agents import PlainText
from tests.support.redacted_victim import RUN_ID

SECRET = "sk-abcdefghij0123456789"
KEYS = patterns([r"sk-[a-z0-9]{20}"])


def drop_all(text: Text) -> str:
    return "x"


def without(text: Text) -> str:
    return "" if "sk" in text.text or "0123" in text.text or "abcd" in text.text else text.text


@tool
def search(query: str) -> str:
    """Search."""
    return f"found {SECRET} for {query}"


@tool
def break_down(query: str) -> str:
    """Break down."""
    raise ValueError(f"no {SECRET}")


def agent(*script: Any, tools: Any = (search,), **options: Any) -> Any:
    return create_agent(ScriptedChatModel(list(script)), list(tools), checkpointer=InMemorySaver(), name="agent", **options)


def config(**more: Any) -> Any:
    return {"configurable": {"thread_id": "t"}, "metadata": {"note": SECRET}, **more}


ASKED: dict[str, Any] = {"messages": [HumanMessage(f"My key is {SECRET}.")]}
ANSWER = [Reasoning(f"I see {SECRET}. "), f"So {SECRET} it is. ", Call("search", {"query": f"about {SECRET}"})]


def in_full(journal: RunJournal) -> None:
    """An agent with tools, streamed."""
    for _ in attach(agent(ANSWER, [f"Done with {SECRET}."]), journal).stream(ASKED, config(), stream_mode="messages"):
        pass


def left_early(journal: RunJournal) -> None:
    """The consumer leaves in the middle of the answer."""
    stream = attach(agent([f"So {SECRET} is " * 5]), journal).stream(ASKED, config(), stream_mode="messages")
    for _, _ in zip(range(6), stream, strict=False):
        pass
    stream.close()


def failing_tool(journal: RunJournal) -> None:
    """A tool raises, and so does the run."""
    graph = attach(agent([Call("break_down", {"query": SECRET})], tools=[break_down]), journal)
    with pytest.raises(ValueError, match="no sk-"):
        graph.invoke(ASKED, config())


def failing_model(journal: RunJournal) -> None:
    """A model fails in the middle of its answer."""
    graph = attach(agent([f"So {SECRET}", ConnectionError(f"refused {SECRET}")]), journal)
    with pytest.raises(ConnectionError):
        for _ in graph.stream(ASKED, config(), stream_mode="messages"):
            pass


def waiting(journal: RunJournal) -> None:
    """A graph asks a human."""

    def ask(state: MessagesState) -> Any:
        return {"messages": [AIMessage(f"You said {interrupt({'question': SECRET})}")]}

    graph = attach(StateGraph(MessagesState).add_node(ask).add_edge(START, "ask").compile(InMemorySaver()), journal)
    graph.invoke(ASKED, config())


def plain_text(journal: RunJournal) -> None:
    """A plain text model, without any graph."""
    handler = JournalCallbackHandler(journal)
    for _ in PlainText(says=f"one {SECRET} two").stream(SECRET, {"callbacks": [handler]}):
        pass


def stopped(journal: RunJournal) -> None:
    """A run in a task of its own is stopped."""

    async def run() -> None:
        held = asyncio.Event()
        graph = attach(agent([f"So {SECRET} ", "and ", held.wait, "more"]), journal)
        handle = await start_run(graph, ASKED, config(), stream_mode="messages")
        async for event in handle.events():
            if event.kind == "llm.ai.delta":
                break
        await journal.astop(handle.run_id, wait=True, timeout=30)

    asyncio.run(run())


def appended(journal: RunJournal) -> None:
    """A program's own events."""
    journal.append(Event(run_id="own", kind="run.start", data={"metadata": {"a": SECRET}}))
    journal.append(Event(run_id="own", kind="tool.start", data={"args": {SECRET[:3]: SECRET}}))
    journal.append(Event(run_id="own", kind="run.end", data={"status": "failed", "error": SECRET}))


WAYS = [in_full, left_early, failing_tool, failing_model, waiting, plain_text, appended]
if sys.version_info >= (3, 11):  # on 3.10, the async node of create_agent hands on no callbacks
    WAYS.append(stopped)


def bytes_of(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file())


@pytest.fixture
def written(db: Path, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """All that was on the disk at any time when something was appended."""
    found: list[bytes] = []
    place = Appender._place

    def look(*args: Any, **given: Any) -> bool:
        done = place(*args, **given)
        found.append(b"".join(path.read_bytes().rstrip(b"\0") for path in db.parent.glob("runs.db-spool-*")))
        return done

    monkeypatch.setattr(Appender, "_place", look)
    return found


@pytest.mark.parametrize("way", WAYS)
def test_every_event_passes_record(db: Path, way: Callable[[RunJournal], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """As many events as were given to `record`, and the same: the fast path of tokens, callbacks, endings, settlements."""
    given: list[tuple[str, str]] = []
    record = Appender.record

    def count(self: Any, run_id: Any, call: Any, kind: Any, *rest: Any) -> None:
        given.append((run_id, kind))
        record(self, run_id, call, kind, *rest)

    monkeypatch.setattr(Appender, "record", count)
    with RunJournal(db) as journal:
        way(journal)
        found = [(run.run_id, event.kind) for run in journal.runs() for event in journal.read(run.run_id)]
    assert found
    assert sorted(found) == sorted(given)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("redact", [KEYS, drop_all], ids=["patterns", "everything"])
def test_no_way_goes_around_the_redaction(
    db: Path, way: Callable[[RunJournal], None], redact: Redact, written: list[bytes]
) -> None:
    """No byte of the secret in the spool at any time, nor in the database and its WAL; and the runs can be read."""
    with RunJournal(db, redact=redact) as journal:
        way(journal)
        journal.flush()
        assert b"sk-abc" not in bytes_of(db.parent)
        assert b"bcdefghij01" not in bytes_of(db.parent)
        for run in journal.runs():
            assert run.settled
            journal.transcript(run.run_id)
            assert "sk-" not in str([one.to_dict() for one in journal.read(run.run_id)]).replace("'sk-': ", "")
            assert "<" in run._repr_html_()
    assert written
    assert not [one for one in written if b"sk-abc" in one]


def test_the_other_tests_would_see_the_secret(db: Path, written: list[bytes]) -> None:
    """Without a redaction it is there, in both."""
    with RunJournal(db) as journal:
        in_full(journal)
        journal.flush()
        assert b"sk-abc" in bytes_of(db.parent)
    assert [one for one in written if b"sk-abc" in one]


@pytest.mark.slow
def test_kill_9_in_the_middle_of_a_secret(db: Path) -> None:
    """Nothing was stored yet, and the spool has no secret. What was held back is lost, and nothing else."""
    command = [sys.executable, "-m", "tests.support.redacted_victim", str(db), SECRET]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "said\n"
        process.send_signal(signal.SIGKILL)
    left = bytes_of(db.parent)
    assert b"The key " in left
    assert b"sk-" not in left
    assert b"abcd" not in left
    with RunJournal(db) as journal:
        events = journal.read(RUN_ID)
        assert [one.data["message"]["data"]["content"] for one in events if one.kind == "llm.human.input"] == [
            "Keep [redacted]."
        ]
        assert "".join(one.text for one in events) == "The key "
    assert b"abcd" not in bytes_of(db.parent)


# --- what is settled ----------------------------------------------------------------------------------------------------


def in_pieces(graph: Any, **options: Any) -> None:
    for _ in graph.stream(ASKED, config(), stream_mode="messages", **options):
        pass


def test_a_partial_answer_is_settled_redacted_and_the_thread_is_left_as_it_is(db: Path) -> None:
    """The graph's own checkpoints keep what the user and the model said; what the journal adds is what it has."""
    with RunJournal(db, redact=KEYS) as journal:
        graph = attach(agent(ANSWER, [f"Done with {SECRET}. ", ConnectionError("gone")]), journal)
        with pytest.raises(ConnectionError):
            in_pieces(graph)
        messages = graph.get_state(config()).values["messages"]
        assert [one.type for one in messages] == ["human", "ai", "tool", "ai"]
        assert [SECRET in str(one.content) for one in messages] == [True, True, True, False]
        assert is_partial(messages[-1])
        assert "[redacted]" in messages[-1].text
        assert journal.run(journal.runs()[0].run_id).settled


def add(left: list[Any], right: list[Any]) -> list[Any]:
    return [*left, *right]


class Dicts(TypedDict):
    messages: Annotated[list[dict[str, Any]], add]


def test_a_thread_without_ids_gets_nothing_twice(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph that keeps dicts: what stands in the thread is known again, although the journal has other words for it."""
    compared: list[str] = []

    def compare(thread: Any, transcript: Any, *args: Any, **given: Any) -> Any:
        compared.extend(one.text for one in thread)
        return known_again(thread, transcript, *args, **given)

    monkeypatch.setattr("langchain_runjournal.settle.settler.known_again", compare)

    model = ScriptedChatModel([f"One {SECRET}. ", [f"Two {SECRET}. ", ConnectionError("gone")]])

    def say(state: Dicts) -> Any:
        return {"messages": [{"role": "assistant", "content": str(model.invoke(state["messages"]).text)}]}

    def again(state: Dicts) -> Any:
        for _ in model.stream(state["messages"]):
            pass

    builder: Any = StateGraph(Dicts)
    builder.add_node("say", say).add_node("again", again).add_edge(START, "say").add_edge("say", "again")
    with RunJournal(db, redact=KEYS) as journal:
        graph = attach(builder.compile(InMemorySaver(), name="dicts"), journal)
        with pytest.raises(ConnectionError):
            graph.invoke({"messages": [{"role": "user", "content": f"Hi {SECRET}"}]}, config())
        found = [one["content"] for one in graph.get_state(config()).values["messages"]]
    assert found[:2] == [f"Hi {SECRET}", f"One {SECRET}. "]
    assert len(found) == 3
    assert compared[:2] == ["Hi [redacted]", "One [redacted]. "]
    assert found[2].startswith("Two ")
    assert SECRET not in found[2]


def test_the_transcript_has_what_the_journal_has(db: Path) -> None:
    """It is what a settlement gives a thread that lacks messages: also the user's, redacted."""
    with RunJournal(db, redact=KEYS) as journal:
        with pytest.raises(ConnectionError):
            in_pieces(attach(agent([f"So {SECRET} ", ConnectionError("gone")]), journal))
        found = [one.text.strip() for one in journal.transcript(journal.runs()[0].run_id)]
        assert found == ["My key is [redacted].", "So [redacted]"]


def test_ids_and_appenders(db: Path) -> None:
    """A journal without a redaction has the plain appender: it pays nothing for one."""
    with RunJournal(db) as journal:
        assert type(core_of(journal).appender) is Appender
        run_id = str(uuid4())
        journal.append(Event(run_id=run_id, kind="run.start"))
        assert journal.run(run_id).run_id == run_id
