"""Beside other callbacks: they see what they would see without the journal."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from langchain.agents import create_agent
from langchain_core.callbacks import AsyncCallbackHandler, BaseCallbackHandler
from langchain_core.messages import AIMessageChunk
from langchain_core.tools import tool
from langchain_core.tracers import LangChainTracer
from langgraph.checkpoint.memory import InMemorySaver

from langchain_runjournal import JournalCallbackHandler, RunJournal, is_partial
from tests.support.agents import PlainText, Scripted, asks, by_hand, words


@tool
def double(x: int) -> str:
    """Twice x."""
    return str(2 * x)


NAMES = [
    *(f"on_chain_{end}" for end in ("start", "end", "error")),
    *(f"on_tool_{end}" for end in ("start", "end", "error")),
    *("on_llm_start", "on_chat_model_start", "on_llm_new_token", "on_llm_end", "on_llm_error", "on_stream_event"),
]


def steady(seen: Any) -> str:
    """What a handler saw, without what differs from one run to the next: ids, and the addresses of objects."""
    text = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "ID", repr(seen))
    return re.sub(r"0x[0-9a-f]+", "AT", text)


class Watching(BaseCallbackHandler):
    """A handler that writes down all that LangChain reports."""

    run_inline = True

    def __init__(self) -> None:
        self.seen: list[str] = []


class WatchingLater(AsyncCallbackHandler):
    """The same, with coroutines."""

    def __init__(self) -> None:
        self.seen: list[str] = []


def _watch(name: str) -> Any:
    def method(self: Watching, *args: Any, **kwargs: Any) -> None:
        self.seen.append(steady((name, args, sorted(kwargs.items(), key=lambda item: item[0]))))

    return method


def _watch_later(name: str) -> Any:
    async def method(self: WatchingLater, *args: Any, **kwargs: Any) -> None:
        self.seen.append(steady((name, args, sorted(kwargs.items(), key=lambda item: item[0]))))

    return method


for _name in NAMES:
    setattr(Watching, _name, _watch(_name))
    setattr(WatchingLater, _name, _watch_later(_name))


class NullClient:
    """A LangSmith client that keeps what it should send."""

    tracing_queue = None

    def __init__(self) -> None:
        self.sent: list[str] = []

    def create_run(self, **run: Any) -> None:
        self.sent.append(steady(("create", run["name"], run["run_type"], run["inputs"])))

    def update_run(self, run_id: Any, **run: Any) -> None:
        self.sent.append(steady(("update", run.get("name"), run.get("outputs"), run.get("error"))))


def agent() -> Any:
    scripts = [asks(("c1", "double", {"x": 2})), words("Four", ".", usage=True)]
    return create_agent(Scripted(scripts=scripts), [double], checkpointer=InMemorySaver())


ASKED = {"messages": [("user", "go")]}


async def by_messages(cfg: Any) -> list[Any]:
    return [chunk async for chunk in agent().astream(ASKED, cfg, stream_mode="messages")]


async def by_updates(cfg: Any) -> list[Any]:
    return [chunk async for chunk in agent().astream(ASKED, cfg, stream_mode="updates")]


async def by_invoke(cfg: Any) -> Any:
    return await agent().ainvoke(ASKED, cfg)


async def in_a_thread(cfg: Any) -> Any:
    return await asyncio.to_thread(lambda: list(agent().stream(ASKED, cfg, stream_mode="messages")))


async def by_events(cfg: Any) -> list[Any]:
    return [event async for event in agent().astream_events(ASKED, cfg, version="v2")]


async def failing(cfg: Any) -> str:
    model = Scripted(scripts=[[*words("half"), ConnectionError("net")]])
    try:
        return "".join([chunk.text async for chunk in model.astream("?", cfg)])
    except ConnectionError as exc:
        return repr(exc)


@pytest.mark.parametrize("way", [by_messages, by_updates, by_invoke, in_a_thread, by_events, failing])
def test_other_handlers_see_the_same(journal: RunJournal, way: Any) -> None:
    """User callbacks, asynchronous ones, LangSmith's tracer and the consumer see the same with the journal and without
    it."""

    def seen(*ours: BaseCallbackHandler) -> tuple[Any, ...]:
        now, later, client = Watching(), WatchingLater(), NullClient()
        tracer = LangChainTracer(client=client)  # type: ignore[arg-type]
        cfg = {"callbacks": [*ours, now, later, tracer], "configurable": {"thread_id": "t"}, "run_id": uuid4()}
        got = asyncio.run(way(cfg))
        return steady(got), sorted(now.seen), sorted(later.seen), sorted(client.sent)

    without = seen()
    assert all(without)
    assert seen(JournalCallbackHandler(journal)) == without
    assert len(journal.runs()) == 1


def test_a_plain_text_model_is_heard_by_others(journal: RunJournal) -> None:
    """LangChain does not report its start to other handlers as soon as one handler is inline, as ours has to be."""

    def seen(*ours: BaseCallbackHandler) -> tuple[Any, ...]:
        later = WatchingLater()
        cfg = {"callbacks": [*ours, later]}

        async def main() -> list[Any]:
            return [event async for event in PlainText(says="abc").astream_events("go", cfg, version="v2")]

        return steady(asyncio.run(main())), later.seen

    without = seen()
    assert "on_llm_stream" in without[0]
    assert "on_llm_start" in without[1][0]
    assert seen(JournalCallbackHandler(journal)) == without
    assert seen(JournalCallbackHandler(journal), JournalCallbackHandler(journal)) == without
    assert [journal.transcript(run.run_id)[-1].text for run in journal.runs()] == ["abc", "abc"]


def test_capturing_invoke_keeps_what_a_stop_would_take(journal: RunJournal) -> None:
    """A cancelled `ainvoke` keeps its text with `capture_invoke`, alone and in an agent; without it, no text is left."""

    async def cut(runnable: Any, given: Any, handler: JournalCallbackHandler, reached: asyncio.Event) -> str:
        cfg = {"callbacks": [handler], "run_id": uuid4()}
        task = asyncio.ensure_future(runnable.ainvoke(given, cfg))
        await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async for _ in journal.afollow(str(cfg["run_id"])):
            pass  # until it has ended
        return str(cfg["run_id"])

    async def main() -> None:
        for capture in (True, False):
            handler = JournalCallbackHandler(journal, capture_invoke=capture)
            for alone in (True, False):
                reached = asyncio.Event()
                model = Scripted(scripts=[[*words("so ", "far "), reached.set, asyncio.Event().wait]])
                runnable, given = (model, "go") if alone else (by_hand(model, []), ASKED)
                run_id = await cut(runnable, given, handler, reached)
                run = journal.run(run_id)
                assert (run.status, run.cause) == ("interrupted", "stop")
                partials = [message.text for message in journal.transcript(run_id) if is_partial(message)]
                assert partials == (["so far "] if capture else [])

    asyncio.run(main())


def test_an_unreported_end_is_seen_while_the_caller_keeps_everything(journal: RunJournal) -> None:
    """The caller keeps the id, the task, and the exception with all its frames: the run has ended all the same."""

    async def main() -> None:
        kept: list[Any] = []
        for model in (Scripted(scripts=[[*words("so far"), asyncio.Event().wait]]), Stuck()):
            handler = JournalCallbackHandler(journal, capture_invoke=True)
            cfg = {"callbacks": [handler], "run_id": uuid4()}
            kept += [cfg, task := asyncio.ensure_future(model.ainvoke("go", cfg))]
            async for event in journal.afollow(await started(str(cfg["run_id"]))):
                if event.kind == "llm.start":
                    task.cancel()
            try:
                await task
            except asyncio.CancelledError as exc:
                kept.append(exc)
            assert journal.run(str(cfg["run_id"])).cause == "stop"

    async def started(run_id: str) -> str:
        while run_id not in [run.run_id for run in await journal.aruns()]:
            pass  # each look lets the other tasks run
        return run_id

    asyncio.run(main())


class Stuck(PlainText):
    """A plain text model that says nothing."""

    says: str = ""

    async def _acall(self, *args: Any, **kwargs: Any) -> str:
        await asyncio.Event().wait()
        return ""


def test_capturing_invoke_respects_a_model_that_must_not_stream(journal: RunJournal) -> None:
    """`disable_streaming` takes precedence; the journal has the answer all the same."""
    model = Scripted(scripts=[words("a", "b")], disable_streaming=True)
    model.invoke("?", {"callbacks": [handler := JournalCallbackHandler(journal, capture_invoke=True)]})
    (run,) = journal.runs()
    assert "llm.ai.delta" not in [event.kind for event in journal.read(run.run_id)]
    assert journal.transcript(run.run_id)[-1].text == "ab"
    assert "capture_invoke=True" in repr(handler)


STREAMING = """
import asyncio, sys
from uuid import UUID
from langchain_runjournal import JournalCallbackHandler, RunJournal
from tests.support.agents import Scripted, words

async def main():
    handler = JournalCallbackHandler(RunJournal(sys.argv[1]))
    model = Scripted(scripts=[words(*(f"w{n} " for n in range(20_000)))])
    async for chunk in model.astream("go", {"callbacks": [handler], "run_id": UUID(sys.argv[2])}):
        print(chunk.text, end="", flush=True)

asyncio.run(main())
"""


def test_a_killed_process_has_lost_no_word_that_was_seen(tmp_path: Path) -> None:
    """`kill -9` in the middle of `astream`: the journal has all that came out of the process, and perhaps a little more."""
    run_id = str(uuid4())
    command = [sys.executable, "-c", STREAMING, str(tmp_path / "runs.db"), run_id]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]) as child:
        assert child.stdout is not None
        seen = child.stdout.read(2_000)
        child.kill()
        seen += child.stdout.read()
    with RunJournal(tmp_path / "runs.db") as journal:
        partial = journal.transcript(run_id)[-1]
        assert is_partial(partial)
        assert partial.text.startswith(seen.decode())
        assert journal.run(run_id).status == "running"


def test_a_chunk_is_not_touched(journal: RunJournal) -> None:
    """The consumer gets the very chunk of the model, with nothing added."""
    chunk = AIMessageChunk(content="word", response_metadata={"a": 1})
    got = list(Scripted(scripts=[[chunk]]).stream("?", {"callbacks": [JournalCallbackHandler(journal)]}))
    assert (got[0].content, got[0].response_metadata, got[0].additional_kwargs) == ("word", {"a": 1}, {})
