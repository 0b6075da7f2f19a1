"""Threads after runs that were cut off: settlements that fail, resumes, pauses for a human, and late results."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AnyMessage
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command, interrupt

from langchain_runjournal import RunJournal, attach, errors
from langchain_runjournal.messages.marks import origin_of
from tests.support.agents import Scripted, asks, words

THREAD: RunnableConfig = {"configurable": {"thread_id": "t"}}
MARKS = {None: "", "recovered": "+", "synthetic": "*", "partial": "~"}


# --- helpers, for the neighbours as well --------------------------------------------------------------------------------


class Asked(Scripted):
    """A model that keeps each request."""

    seen: list[list[AnyMessage]]

    def _stream(self, *args: Any, **kwargs: Any) -> Iterator[Any]:
        self.seen.extend(args[:1])
        return super()._stream()

    async def _astream(self, *args: Any, **kwargs: Any) -> Any:
        self.seen.extend(args[:1])
        async for chunk in super()._astream():
            yield chunk

    def _generate(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        self.seen.append(messages)
        return super()._generate()

    async def _agenerate(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        self.seen.append(messages)
        return await super()._agenerate()


def model(*scripts: list[Any]) -> Asked:
    return Asked(scripts=list(scripts), seen=[])


def say(text: str) -> dict[str, Any]:
    return {"messages": [("user", text)]}


def shown(messages: Sequence[AnyMessage]) -> list[str]:
    """Format messages: U a human, A an AI message with its tool calls, T a result; + is recovered, * synthetic, ~
    partial."""
    told = []
    for one in messages:
        mark = MARKS[origin_of(one)]
        if one.type == "tool":
            said = one.additional_kwargs["runjournal"]["reason"] if mark == "*" else one.content
            told.append(f"T{mark} {one.tool_call_id}={said}")
            assert (one.status == "error") == (mark == "*" or "boom" in str(one.content))
        else:
            letter = {"human": "U", "ai": "A", "system": "S"}[one.type]
            calls = ",".join(call["id"] for call in getattr(one, "tool_calls", ()))
            told.append(f"{letter}{mark} {one.content}" + (f"({calls})" if calls else ""))
    return told


def thread(graph: Any, config: RunnableConfig = THREAD) -> list[str]:
    return shown(graph.get_state(config).values.get("messages", []))


async def athread(graph: Any, config: RunnableConfig = THREAD) -> list[str]:
    return shown((await graph.aget_state(config)).values.get("messages", []))


class Hear(BaseCallbackHandler):
    """A handler that notices when tools have ended. It is called after the handler of the journal."""

    run_inline = True

    def __init__(self, after: int) -> None:
        self.left = after
        self.event = threading.Event()

    def on_tool_end(self, output: Any, **about: Any) -> None:
        self.left -= 1
        if self.left <= 0:
            self.event.set()


def made_by_hand(model: Scripted, tools: Sequence[BaseTool], **options: Any) -> Any:
    """Return a graph of a model, a ToolNode and the way back, for both ways of calling."""

    def answer(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"], config)]}

    async def aanswer(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"], config)]}

    graph = StateGraph(MessagesState)
    graph.add_node("model", RunnableLambda(answer, aanswer))
    graph.add_node("tools", ToolNode(tools))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    return graph.compile(**options)


def made(name: str, asked: Asked, journal: RunJournal, *tools: Any, **options: Any) -> Any:
    """Return an attached graph of a name, with a saver of its own."""
    # Most of these models are called by `invoke`, and the tests look at what they have said.
    options.setdefault("capture_invoke", True)
    return attach(made_by_hand(asked, tools, checkpointer=InMemorySaver(), name=name), journal, **options)


def made_by_langchain(model: Scripted, tools: Sequence[BaseTool], **options: Any) -> Any:
    from langchain.agents import create_agent

    return create_agent(model, tools, **options)


MAKERS = [made_by_hand, made_by_langchain]
both = pytest.mark.parametrize("make", MAKERS, ids=["hand", "agent"])


class Saver(InMemorySaver):
    """A saver that fails, or does something else, before it writes a checkpoint of the kind `source`, and notices results of
    tools."""

    def __init__(self) -> None:
        super().__init__()
        self.before: Callable[[str], Any] = lambda source: None
        self.written = 0
        self.noted: dict[str, set[str]] = {}
        self.changed = threading.Condition()

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        self.before(metadata["source"])
        self.written += 1
        return super().put(config, checkpoint, metadata, new_versions)

    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        super().put_writes(config, writes, task_id, task_path)
        values = [value for channel, value in writes if channel == "messages"]
        given = [one for value in values for one in (value if isinstance(value, list) else [value])]
        with self.changed:
            found = self.noted.setdefault(config["configurable"]["thread_id"], set())
            found.update(one.tool_call_id for one in given if getattr(one, "type", None) == "tool")
            self.changed.notify_all()


class Tools:
    """Three tools that count their calls.

    `slow` and `human` wait until the results of their neighbours are known to the journal, and also to LangGraph where each
    call is a task.
    """

    def __init__(self, neighbours: int = 1) -> None:
        self.hear = Hear(neighbours)
        self.neighbours = neighbours
        self.saver = Saver()
        self.at_once = True
        """Whether LangGraph gives the saver each result as it arrives. With durability="exit" it does not."""
        self.ran: list[str] = []
        self.breaks = True
        self.before_it_breaks: Callable[[], object] = lambda: None

        @tool
        def fast(x: int) -> str:
            """Fast."""
            self.ran.append(f"fast{x}")
            return f"fast{x}"

        @tool
        def slow(x: int, config: RunnableConfig) -> str:
            """Slow, and breaks."""
            self.ran.append(f"slow{x}")
            self.wait(config)
            if self.breaks:
                self.before_it_breaks()
                raise RuntimeError("boom")
            return f"slow{x}"

        @tool
        def human(x: int, config: RunnableConfig) -> str:
            """Waits for a human."""
            self.ran.append(f"human{x}")
            self.wait(config)
            return f"human said {interrupt('may I?')}"

        self.fast, self.slow, self.human = fast, slow, human
        self.all = [fast, slow, human]

    def wait(self, config: RunnableConfig) -> None:
        assert self.hear.event.wait(30)
        if self.at_once and config["metadata"]["langgraph_path"][0] == "__pregel_push":
            with self.saver.changed:
                found = self.saver.noted.setdefault(config["configurable"]["thread_id"], set())
                assert self.saver.changed.wait_for(lambda: len(found) >= self.neighbours, 30)

    @property
    def config(self) -> RunnableConfig:
        return {**THREAD, "callbacks": [self.hear]}


CALLS = asks(("c1", "fast", {"x": 1}), ("c2", "slow", {"x": 2}))
CUT = ["U hi", "A Looking. (c1,c2)", "T c1=fast1", "T* c2=failed"]


def without_recovered(found: list[str]) -> list[str]:
    """Drop the marks of recovered results. A ToolNode that is one task leaves no result in the thread, so the journal adds
    it."""
    return [line.replace("T+ ", "T ").replace("A+ ", "A ").replace("U+ ", "U ") for line in found]


def kinds(journal: RunJournal, run_id: str) -> list[str]:
    return [event.kind for event in journal.read(run_id)]


def failing(times: float) -> Callable[[str], None]:
    """Let the next writes of a saver's settlements fail, the given number of times."""
    left = [times]

    def before(source: str) -> None:
        if source == "update" and left[0] > 0:
            left[0] -= 1
            raise OSError("no space left")

    return before


def cut_off(agent: Any, tools: Tools, config: RunnableConfig | None = None, given: Any = None, **options: Any) -> None:
    """Run a turn in which one tool ends well and the other one fails."""
    with pytest.raises(RuntimeError, match="boom"):
        agent.invoke(given or say("hi"), config or tools.config, **options)


# --- settling that fails ------------------------------------------------------------------------------------------------


@pytest.mark.guarantee("failed settlement")
@both
def test_the_error_of_a_run_reaches_the_caller_whatever_the_saver_does(make: Any, journal: RunJournal) -> None:
    """If the saver fails during the settlement, the caller gets the run's own exception, and the run records what is
    open."""
    tools = Tools()
    saver = tools.saver
    agent = attach(make(model(CALLS, words("fine")), tools.all, checkpointer=saver), journal)
    saver.before = failing(1)
    cut_off(agent, tools)
    [run] = journal.runs()
    end = journal.read(run.run_id)[-1]
    assert (run.status, run.ended, run.settled) == ("failed", True, False)
    assert (end.kind, end.data["settled"], end.data["problem"]) == ("run.end", False, "OSError: no space left")
    assert kinds(journal, run.run_id).count("run.settled") == 0


@pytest.mark.guarantee("before the next message")
@both
def test_the_next_turn_tries_again(make: Any, journal: RunJournal) -> None:
    """The next message settles the run, its model gets a valid thread, and the run has one end."""
    tools = Tools()
    saver = tools.saver
    asked = model(CALLS, words("fine"))
    agent = attach(make(asked, tools.all, checkpointer=saver), journal)
    saver.before = failing(1)
    cut_off(agent, tools)
    agent.invoke(say("next"), THREAD)
    assert without_recovered(shown(asked.seen[-1])) == [*CUT, "U next"]
    last, first = journal.runs()
    assert (last.status, first.status, first.settled) == ("completed", "failed", True)
    assert [kinds(journal, first.run_id).count(kind) for kind in ("run.settled", "run.end")] == [1, 1]


@pytest.mark.guarantee("failed settlement")
@both
def test_recover_tries_again(make: Any, journal: RunJournal) -> None:
    """`recover` settles the run and reports it; a second `recover` has nothing to do."""
    tools = Tools()
    saver = tools.saver
    agent = attach(make(model(CALLS), tools.all, checkpointer=saver), journal)
    saver.before = failing(1)
    cut_off(agent, tools)
    [report] = journal.recover(agent)
    assert (report.run_id, report.thread_id, report.outcome) == (journal.runs()[0].run_id, "t", "settled")
    assert without_recovered(thread(agent)) == CUT
    assert journal.recover(agent) == []
    assert agent.get_state(THREAD).next == ()


def test_a_saver_that_never_works_again_leaves_the_run_open(journal: RunJournal) -> None:
    """Each attempt reports its failure; prune keeps the run, and the next message works all the same."""
    tools = Tools()
    saver = tools.saver
    asked = model(CALLS, words("fine"))
    agent = attach(made_by_hand(asked, tools.all, checkpointer=saver), journal)
    saver.before = failing(float("inf"))
    cut_off(agent, tools)
    [first] = journal.runs()
    [report] = journal.recover(agent)
    assert (report.outcome, report.reason, report.is_final) == ("failed", "OSError: no space left", False)
    assert agent.invoke(say("next"), THREAD)["messages"][-1].content == "fine"
    [completed] = journal.runs(status="completed")
    assert journal.prune(keep_last=0) == [completed.run_id]
    assert journal.run(first.run_id).settled is False


def test_prune_keeps_what_is_not_settled(journal: RunJournal) -> None:
    """Prune keeps a run until it is settled."""
    tools = Tools()
    saver = tools.saver
    agent = attach(made_by_hand(model(CALLS), tools.all, checkpointer=saver), journal)
    saver.before = failing(1)
    cut_off(agent, tools)
    [run] = journal.runs()
    assert journal.prune(keep_last=0) == []
    journal.recover(agent)
    assert journal.prune(keep_last=0) == [run.run_id]


def test_a_settlement_that_failed_half_way_goes_on_from_there(journal: RunJournal) -> None:
    """After a failure at any checkpoint of a settlement, the second attempt gives the very same messages."""
    wanted: list[Any] = []
    for good in range(6):
        tools = Tools()
        saver = tools.saver
        config: RunnableConfig = {"configurable": {"thread_id": f"t{good}"}, "callbacks": [tools.hear]}
        left = [good]

        def before(source: str, left: list[int] = left) -> None:
            if source == "update":
                left[0] -= 1
                if left[0] == -1:
                    raise OSError("no space left")

        agent = attach(made_by_langchain(model(CALLS), tools.all, checkpointer=saver), journal)
        saver.before = before
        human = {"messages": [{"type": "human", "content": "hi", "id": "u1"}]}
        cut_off(agent, tools, config, human)
        journal.recover(agent)
        state = agent.get_state(config)
        assert (without_recovered(shown(state.values["messages"])), state.next) == (CUT, ())
        wanted.append([(one.type, one.content, getattr(one, "status", None)) for one in state.values["messages"]])
    assert left[0] >= 0, "the last round was not one without a failure"
    assert all(one == wanted[-1] for one in wanted)


def test_a_journal_that_cannot_be_written_still_settles(db: Any) -> None:
    """The thread is settled from the queue of the journal, which can be read."""
    from langchain_runjournal.stores import open_store
    from langchain_runjournal.testing import FaultyStore

    store = FaultyStore(open_store(db))
    journal = RunJournal(store)
    tools = Tools()
    agent = attach(made_by_hand(model(CALLS), tools.all, checkpointer=tools.saver), journal)

    tools.before_it_breaks = lambda: store.fail(times=1_000_000)
    cut_off(agent, tools)
    assert without_recovered(thread(agent)) == CUT
    store.fail(times=0)
    journal.flush(30)
    [run] = journal.runs()
    assert (run.status, run.ended) == ("failed", True)
    journal.close()


@pytest.mark.parametrize("goes_on", [True, False], ids=["later", "never"])
def test_a_background_write_that_hangs_is_waited_for_and_then_left(
    goes_on: bool, journal: RunJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a write to a thread is pending, no settlement writes, because the pending write would overwrite it.

    The caller gets its exception after the timeout, and the next message settles.
    """
    monkeypatch.setattr("langchain_runjournal.settle.settler._PATIENCE", 30.0 if goes_on else 0.01)

    class Hanging(InMemorySaver):
        def __init__(self) -> None:
            super().__init__()
            self.go, self.hangs = asyncio.Event(), asyncio.Event()
            self.armed = False

        async def aput(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
            if self.armed:
                self.armed = False
                self.hangs.set()
                await self.go.wait()
            return self.put(config, checkpoint, metadata, new_versions)

    async def scenario() -> None:
        saver, started = Hanging(), asyncio.Event()

        @tool
        async def hang() -> str:
            """Hangs."""
            started.set()
            await asyncio.Event().wait()
            return "never"

        def arm() -> None:
            saver.armed = True

        asked = model([arm, *asks(("c1", "hang", {}))], words("fine"))
        agent = attach(made_by_hand(asked, [hang], checkpointer=saver), journal)
        run = asyncio.create_task(agent.ainvoke(say("hi"), THREAD, durability="async"))
        await started.wait()
        await saver.hangs.wait()
        run.cancel()
        if goes_on:
            asyncio.get_running_loop().call_soon(saver.go.set)
        else:
            # LangGraph itself awaits its writes, unless it is cancelled a second time.
            await _turns_of_the_loop()
            run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        async for event in journal.afollow(journal.runs()[0].run_id):
            last = event
        assert last.data.get("settled", True) is goes_on
        if not goes_on:
            assert "SettlementTimeout" in last.data["problem"]
            saver.go.set()
            monkeypatch.setattr("langchain_runjournal.settle.settler._PATIENCE", 30.0)
        await agent.ainvoke(say("next"), THREAD)
        assert shown(asked.seen[-1]) == ["U hi", "A Looking. (c1)", "T* c1=started", "U next"]
        assert journal.runs()[-1].settled

    asyncio.run(asyncio.wait_for(scenario(), 60))


async def _turns_of_the_loop(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


# --- resuming -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@both
def test_a_run_that_failed_can_be_resumed_where_it_broke(make: Any, durability: Any, journal: RunJournal) -> None:
    """With one task for each call, only the unfinished tool runs again, and the settlement's messages are gone."""
    tools = Tools()
    tools.at_once = durability != "exit"
    asked = model(CALLS, words("fine"))
    agent = attach(make(asked, tools.all, checkpointer=tools.saver), journal)
    cut_off(agent, tools, durability=durability)
    assert without_recovered(thread(agent)) == CUT
    tools.breaks = False
    again = journal.resume_config(journal.runs()[0].run_id)
    agent.invoke(None, {**again, "callbacks": [tools.hear]}, durability=durability)
    assert thread(agent) == ["U hi", "A Looking. (c1,c2)", "T c1=fast1", "T c2=slow2", "A fine"]
    assert tools.ran.count("slow2") == 2
    if tools.at_once:
        assert tools.ran.count("fast1") == 1 + (make is made_by_hand)
    assert agent.get_state(THREAD).next == ()
    assert [run.status for run in journal.runs()] == ["completed", "failed"]


@pytest.mark.parametrize("which", ["first", "second"])
def test_a_run_that_breaks_again_can_be_resumed_again(which: str, journal: RunJournal) -> None:
    """A program may resume by the id of either run, and what had finished in any of them does not run again."""
    tools = Tools(neighbours=2)
    asked = model(asks(("c1", "fast", {"x": 1}), ("c3", "fast", {"x": 3}), ("c2", "slow", {"x": 2})), words("fine"))
    agent = attach(made_by_langchain(asked, tools.all, checkpointer=tools.saver), journal)
    cut_off(agent, tools)
    with pytest.raises(RuntimeError, match="boom"):
        agent.invoke(None, journal.resume_config(journal.runs()[0].run_id))
    assert thread(agent)[-2:] == ["T c3=fast3", "T* c2=failed"]
    tools.breaks = False
    run = journal.runs()[-1 if which == "first" else 0]
    agent.invoke(None, journal.resume_config(run.run_id))
    assert thread(agent)[2:] == ["T c1=fast1", "T c3=fast3", "T c2=slow2", "A fine"]
    assert sorted(tools.ran) == ["fast1", "fast3", "slow2", "slow2", "slow2"]


@pytest.mark.parametrize("cut", ["tools", "model"])
@pytest.mark.parametrize("durability", ["sync", "exit"])
def test_a_resumed_run_that_breaks_is_settled_as_itself(cut: str, durability: Any, journal: RunJournal) -> None:
    """The settlement of a resumed run drops the first settlement: new results stand there, and one partial answer instead of
    two."""
    tools, broken = Tools(), [True]
    tools.at_once = durability != "exit"

    @tool
    def flaky(x: int) -> str:
        """Breaks the first time."""
        tools.ran.append("flaky")
        if broken:
            raise RuntimeError("boom")
        return "flaky done"

    calls = asks(("c1", "fast", {"x": 1}), ("c3", "flaky", {"x": 3}), ("c2", "slow", {"x": 2}))
    half = [[*words(word), RuntimeError("boom")] for word in ("one ", "two ")]
    asked = model(*([calls] if cut == "tools" else half), words("fine"))
    agent = attach(made_by_langchain(asked, [*tools.all, flaky], checkpointer=tools.saver), journal, capture_invoke=True)
    cut_off(agent, tools, durability=durability)
    broken.clear()
    tools.neighbours, tools.hear.left = 2, 1
    tools.hear.event.clear()
    again = {**journal.resume_config(journal.runs()[0].run_id), "callbacks": [tools.hear]}
    with pytest.raises(RuntimeError, match="boom"):
        agent.invoke(None, again, durability=durability)
    run = journal.runs()[0]
    found = thread(agent)
    if cut == "model":
        assert found == ["U hi", "A~ two "]
    else:
        assert without_recovered(found)[:2] == ["U hi", "A Looking. (c1,c3,c2)"]
        # Results that only the journal had stand behind those that LangGraph had stored.
        assert sorted(without_recovered(found)[2:]) == ["T c1=fast1", "T c3=flaky done", "T* c2=failed"]
    assert (run.settled, agent.get_state(THREAD).next) == (True, ())
    agent.invoke(say("next"), THREAD)
    assert shown(asked.seen[-1]) == [*found, "U next"]
    tools.breaks = False
    agent.invoke(None, journal.resume_config(run.run_id))
    rest = ["A Looking. (c1,c3,c2)", "T c1=fast1", "T c3=flaky done", "T c2=slow2", "A fine"]
    assert without_recovered(thread(agent)) == ["U hi", *(["A fine"] if cut == "model" else rest)]


def test_a_run_can_be_resumed_after_the_conversation_has_continued(journal: RunJournal) -> None:
    """The thread then continues from where the run broke."""
    tools = Tools()
    agent = attach(made_by_langchain(model(CALLS, words("no"), words("fine")), tools.all, checkpointer=tools.saver), journal)
    cut_off(agent, tools)
    first = journal.runs()[0]
    agent.invoke(say("next"), THREAD)
    tools.breaks = False
    agent.invoke(None, journal.resume_config(first.run_id))
    assert thread(agent) == ["U hi", "A Looking. (c1,c2)", "T c1=fast1", "T c2=slow2", "A fine"]


def test_a_run_on_a_loop_can_be_resumed_as_well(journal: RunJournal) -> None:
    """The async twins resume as well, after a cancellation."""

    async def scenario() -> None:
        started, hangs = asyncio.Event(), [True]

        @tool
        async def hang() -> str:
            """Hangs the first time."""
            started.set()
            if hangs:
                await asyncio.Event().wait()
            return "done"

        agent = attach(
            made_by_hand(model(asks(("c1", "hang", {})), words("fine")), [hang], checkpointer=InMemorySaver()), journal
        )
        task = asyncio.create_task(agent.ainvoke(say("hi"), THREAD))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await athread(agent) == ["U hi", "A Looking. (c1)", "T* c1=started"]
        hangs.clear()
        again = await journal.aresume_config((await journal.aruns())[0].run_id)
        await agent.ainvoke(None, again)
        assert await athread(agent) == ["U hi", "A Looking. (c1)", "T c1=done", "A fine"]

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_a_completed_run_cannot_be_resumed(journal: RunJournal) -> None:
    """A completed run and a run without a thread raise `NothingToResume`; an unknown run raises `RunNotFound`."""
    agent = attach(made_by_hand(model(words("fine")), [], checkpointer=InMemorySaver()), journal)
    agent.invoke(say("hi"), THREAD)
    with pytest.raises(errors.NothingToResume, match="it is complete"):
        journal.resume_config(journal.runs()[0].run_id)
    loose = attach(made_by_hand(model([RuntimeError("boom")]), []), journal)
    with pytest.raises(RuntimeError, match="boom"):
        loose.invoke(say("hi"))
    with pytest.raises(errors.NothingToResume, match="it has no thread"):
        journal.resume_config(journal.runs()[0].run_id)
    with pytest.raises(errors.RunNotFound):
        journal.resume_config("unknown")


# --- when to settle -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settle", ["on_stop", "never"])
@both
def test_a_run_that_failed_is_left_to_be_resumed(make: Any, settle: Any, journal: RunJournal) -> None:
    """`invoke(None)` resumes as in plain LangGraph, and no settlement writes before it."""
    tools = Tools()
    saver = tools.saver
    agent = attach(make(model(CALLS, words("fine")), tools.all, checkpointer=saver), journal, settle=settle)
    cut_off(agent, tools)
    written = saver.written
    [run] = journal.runs()
    assert (run.status, run.settled, agent.get_state(THREAD).next) == ("failed", False, agent.get_state(THREAD).next or None)
    assert saver.written == written
    tools.breaks = False
    saver.before = failing(float("inf"))
    agent.invoke(None, THREAD)
    assert thread(agent) == ["U hi", "A Looking. (c1,c2)", "T c1=fast1", "T c2=slow2", "A fine"]


@both
def test_on_stop_the_next_message_settles_what_failed(make: Any, journal: RunJournal) -> None:
    """The model gets the real result and a truthful synthetic one, and the run counts as settled."""
    tools = Tools()
    asked = model(CALLS, words("fine"))
    agent = attach(make(asked, tools.all, checkpointer=tools.saver), journal, settle="on_stop")
    cut_off(agent, tools)
    agent.invoke(say("next"), THREAD)
    assert without_recovered(shown(asked.seen[-1])) == [*CUT, "U next"]
    assert journal.runs()[-1].settled


@both
def test_on_stop_what_was_stopped_is_settled_at_once(make: Any, journal: RunJournal) -> None:
    """ "on_stop" settles a stopped run at once, because no resume is expected."""
    tools = Tools()
    agent = attach(make(model(CALLS), tools.all, checkpointer=tools.saver), journal, settle="on_stop")

    tools.before_it_breaks = lambda: journal.stop(journal.runs()[0].run_id)
    cut_off(agent, tools)
    [run] = journal.runs()
    assert (run.stop, run.settled) == ("stop", run.status == "interrupted")


def test_never_only_recover_settles(journal: RunJournal) -> None:
    """Neither the end of a run nor the next message writes anything; `recover` settles every such run."""
    tools = Tools()
    saver = tools.saver
    asked = model(CALLS, words("fine"))
    agent = attach(made_by_langchain(asked, tools.all, checkpointer=saver), journal, settle="never")
    cut_off(agent, tools)
    [run] = journal.runs()
    assert (run.ended, run.settled) == (True, False)
    [report] = journal.recover(agent)
    assert (report.outcome, thread(agent)) == ("settled", CUT)
    agent.invoke(say("next"), THREAD)
    assert shown(asked.seen[-1]) == [*CUT, "U next"]


def test_never_also_means_what_was_stopped(journal: RunJournal) -> None:
    """The partial answer stays in the journal until `recover` writes it into the thread."""
    graph = made_by_hand(model([*words("one "), KeyboardInterrupt()]), [], checkpointer=InMemorySaver())
    agent = attach(graph, journal, settle="never", capture_invoke=True)
    with pytest.raises(KeyboardInterrupt):
        agent.invoke(say("hi"), THREAD)
    [run] = journal.runs()
    assert (run.status, run.settled, thread(agent)) == ("interrupted", False, ["U hi"])
    assert [report.outcome for report in journal.recover(agent)] == ["settled"]
    assert thread(agent) == ["U hi", "A~ one "]


def test_never_the_next_message_comes_to_what_langgraph_has_left(journal: RunJournal) -> None:
    """With "never", the next message finds the thread as LangGraph left it."""
    tools = Tools()
    saver = tools.saver
    asked = model(CALLS, words("fine"))
    agent = attach(made_by_langchain(asked, tools.all, checkpointer=saver), journal, settle="never")
    cut_off(agent, tools)
    saver.before = failing(float("inf"))
    agent.invoke(say("next"), THREAD)
    assert shown(asked.seen[-1]) == ["U hi", "A Looking. (c1,c2)", "U next"]


@pytest.mark.parametrize("again", [words("second try "), []], ids=["with-words", "without"])
def test_the_words_of_a_resumed_attempt_do_not_come_back(again: list[Any], journal: RunJournal) -> None:
    """After a failed run and a failed resume with "on_stop", the next message finds what the last attempt left."""
    ran: list[str] = []

    @tool
    def quick() -> str:
        """Quick."""
        ran.append("quick")
        return "done"

    scripts = [*words("first try "), RuntimeError("boom")], asks(("c1", "quick", {})), [*again, RuntimeError("boom")]
    asked = model(*scripts, words("fine"))
    agent = made("agent", asked, journal, quick, settle="on_stop")
    for given in (say("hi"), None):
        with pytest.raises(RuntimeError, match="boom"):
            agent.invoke(given, THREAD)
    agent.invoke(say("next"), THREAD)
    left = ["A~ second try "] if again else []
    assert shown(asked.seen[-1]) == ["U hi", "A Looking. (c1)", "T c1=done", *left, "U next"]
    assert (ran, [run.settled for run in journal.runs()]) == (["quick"], [True, True, True])


# --- waiting for a human ------------------------------------------------------------------------------------------------

ASKING = asks(("c1", "fast", {"x": 1}), ("c2", "human", {"x": 2}))


def paused(journal: RunJournal, make: Any, settle: Any = "always", **options: Any) -> tuple[Any, Asked, Tools, Saver]:
    """Return a thread where one tool has finished and the other one waits for a human."""
    tools = Tools()
    saver = tools.saver
    asked = model(ASKING, words("fine"))
    agent = attach(make(asked, tools.all, checkpointer=saver, **options), journal, settle=settle)
    agent.invoke(say("hi"), tools.config)
    assert journal.runs()[0].status == "paused"
    return agent, asked, tools, saver


@both
def test_a_thread_that_waits_for_a_human_is_left_alone(make: Any, journal: RunJournal) -> None:
    """Neither the end of the run nor `recover` writes to the thread, and the answer of the human works."""
    agent, _, tools, saver = paused(journal, make)
    saver.before = failing(float("inf"))
    assert journal.recover(agent) == []
    assert agent.get_state(THREAD).interrupts[0].value == "may I?"
    agent.invoke(Command(resume="yes"), THREAD)
    assert thread(agent) == ["U hi", "A Looking. (c1,c2)", "T c1=fast1", "T c2=human said yes", "A fine"]
    assert tools.ran.count("human2") == 2
    assert tools.ran.count("fast1") == 1 + (make is made_by_hand)


@pytest.mark.parametrize("settle", ["always", "on_stop"])
@both
def test_a_new_message_in_place_of_an_answer(make: Any, settle: Any, journal: RunJournal) -> None:
    """A new message settles the pause: the finished call keeps its real result, the waiting call gets a synthetic one that
    says so."""
    agent, asked, _, _ = paused(journal, make, settle)
    agent.invoke(say("next"), THREAD)
    assert without_recovered(shown(asked.seen[-1])) == [
        "U hi",
        "A Looking. (c1,c2)",
        "T c1=fast1",
        "T* c2=waiting",
        "U next",
    ]
    first = journal.runs()[-1]
    assert (first.status, first.cause, first.settled) == ("interrupted", "superseded", True)
    state = agent.get_state(THREAD)
    assert (state.next, state.interrupts, thread(agent)[-1]) == ((), (), "A fine")


@pytest.mark.parametrize("middleware", ["approval", "breakpoint"])
def test_other_ways_to_wait_for_a_human(middleware: str, journal: RunJournal) -> None:
    """No settlement writes before the answer to an approval of LangChain's middleware, or before the resume of a
    breakpoint."""
    agent, resume, tools, saver, _ = _gated(middleware, journal)
    agent.invoke(say("hi"), tools.config)
    saver.before = failing(float("inf"))
    assert (journal.runs()[0].status, journal.recover(agent)) == ("paused", [])
    tools.breaks = False
    agent.invoke(resume, tools.config)
    assert thread(agent) == ["U hi", "A Looking. (c1,c2)", "T c1=fast1", "T c2=slow2", "A fine"]


@pytest.mark.parametrize("middleware", ["approval", "breakpoint"])
def test_other_ways_to_wait_when_a_new_message_comes(middleware: str, journal: RunJournal) -> None:
    """The synthetic results say that no tool had started."""
    agent, _, tools, _, asked = _gated(middleware, journal)
    agent.invoke(say("hi"), tools.config)
    agent.invoke(say("next"), THREAD)
    assert shown(asked.seen[-1]) == [
        "U hi",
        "A Looking. (c1,c2)",
        "T* c1=never_started",
        "T* c2=never_started",
        "U next",
    ]
    assert (tools.ran, journal.runs()[-1].cause) == ([], "superseded")


def _gated(middleware: str, journal: RunJournal) -> tuple[Any, Any, Tools, Saver, Asked]:
    from langchain.agents.middleware import HumanInTheLoopMiddleware

    tools = Tools()
    saver = tools.saver
    asked = model(CALLS, words("fine"))
    options: dict[str, Any] = {"interrupt_before": ["tools"]}
    resume: Any = None
    if middleware == "approval":
        options = {"middleware": [HumanInTheLoopMiddleware(interrupt_on={"slow": True})]}
        resume = Command(resume={"decisions": [{"type": "approve"}]})
    agent = made_by_langchain(asked, tools.all, checkpointer=saver, **options)
    return attach(agent, journal), resume, tools, saver, asked


@pytest.mark.parametrize("then", ["answer", "message"])
def test_a_run_is_stopped_while_one_of_its_tools_waits_for_a_human(then: str, journal: RunJournal) -> None:
    """The question stays open and its answer still works; a new message in its place settles."""

    async def scenario() -> None:
        started, hangs, waits = asyncio.Event(), [True], asyncio.Event()

        @tool
        async def ask() -> str:
            """Asks a human."""
            waits.set()
            return f"human said {interrupt('may I?')}"

        @tool
        async def hang() -> str:
            """Hangs the first time."""
            started.set()
            if hangs:
                await asyncio.Event().wait()
            return "done"

        saver = Interrupts()
        asked = model(asks(("c1", "ask", {}), ("c2", "hang", {})), words("fine"))
        agent = attach(_sends(asked, [ask, hang], checkpointer=saver), journal)
        task = asyncio.create_task(agent.ainvoke(say("hi"), THREAD))
        await started.wait()
        await saver.interrupted.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        [run] = journal.runs()
        assert (run.status, run.ended, run.settled) == ("interrupted", True, False)
        assert [report.outcome for report in await journal.arecover(agent)] == ["held"]
        hangs.clear()
        if then == "answer":
            await agent.ainvoke(Command(resume="yes"), THREAD)
            assert (await athread(agent))[2:] == ["T c1=human said yes", "T c2=done", "A fine"]
        else:
            await agent.ainvoke(say("next"), THREAD)
            assert shown(asked.seen[-1])[2:] == ["T* c1=waiting", "T* c2=started", "U next"]
            assert journal.runs()[-1].settled

    asyncio.run(asyncio.wait_for(scenario(), 60))


class Interrupts(InMemorySaver):
    """A saver that sets an event when it receives an interrupt."""

    def __init__(self) -> None:
        super().__init__()
        self.interrupted = asyncio.Event()

    async def aput_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        self.put_writes(config, writes, task_id, task_path)
        if any(channel == "__interrupt__" for channel, _ in writes):
            self.interrupted.set()


def _sends(model: Scripted, tools: Sequence[BaseTool], **options: Any) -> Any:
    """Return a graph with one task for each call, as LangChain's agents have, which passes on the config (see
    `tests.support.agents.by_hand`)."""
    from langgraph.types import Send

    def answer(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"], config)]}

    async def aanswer(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"], config)]}

    def route(state: MessagesState) -> Any:
        return [Send("tools", [call]) for call in state["messages"][-1].tool_calls] or "__end__"

    graph = StateGraph(MessagesState)
    graph.add_node("model", RunnableLambda(answer, aanswer))
    graph.add_node("tools", ToolNode(tools))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", route, ["tools", "__end__"])
    graph.add_edge("tools", "model")
    return graph.compile(**options)


# --- results that come late ---------------------------------------------------------------------------------------------


@pytest.mark.guarantee("finished tools")
@pytest.mark.parametrize("make", [made_by_hand, _sends], ids=["hand", "sends"])
@pytest.mark.parametrize("restarted", [False, True], ids=["same-program", "new-program"])
def test_a_result_that_comes_after_the_stop(make: Any, restarted: bool, db: Any) -> None:
    """The real result of a tool that could not be stopped replaces the synthetic one, in the next request and in the state.

    No other message changes.
    """

    async def scenario(journal: RunJournal) -> None:
        started, gate, hear = asyncio.Event(), threading.Event(), Hear(1)
        loop = asyncio.get_running_loop()

        @tool
        def stubborn() -> str:
            """Cannot be stopped."""
            loop.call_soon_threadsafe(started.set)
            assert gate.wait(30)
            return "done after all"

        asked = model(asks(("c1", "stubborn", {})), words("fine"))
        saver = InMemorySaver()
        graph = make(asked, [stubborn], checkpointer=saver)
        agent = attach(graph, journal)
        task = asyncio.create_task(agent.ainvoke(say("hi"), {**THREAD, "callbacks": [hear]}))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        before = (await agent.aget_state(THREAD)).values["messages"]
        assert shown(before) == ["U hi", "A Looking. (c1)", "T* c1=started"]
        gate.set()
        await loop.run_in_executor(None, hear.event.wait, 30)
        [run] = journal.runs()
        late = [event for event in journal.read(run.run_id) if event.kind == "llm.tool.result"]
        assert [event.data["late"] for event in late] == [True]
        if restarted:
            await journal.aclose()
            journal = RunJournal(db)
            agent = attach(graph, journal)
        await agent.ainvoke(say("next"), THREAD)
        assert shown(asked.seen[-1]) == ["U hi", "A Looking. (c1)", "T+ c1=done after all", "U next"]
        after = (await agent.aget_state(THREAD)).values["messages"]
        assert shown(after)[2] == "T+ c1=done after all"
        assert [one.id for one in after[:3]] == [one.id for one in before]
        assert after[:2] == before[:2]
        assert journal.run(run.run_id).settled
        await journal.aclose()

    asyncio.run(asyncio.wait_for(scenario(RunJournal(db)), 60))


# --- recover ------------------------------------------------------------------------------------------------------------


def test_recover_leaves_the_runs_of_other_graphs(journal: RunJournal) -> None:
    """`recover` of one graph leaves the runs of graphs with other names."""
    tools = Tools()
    saver = tools.saver
    first = attach(made_by_hand(model(CALLS), tools.all, checkpointer=saver, name="first"), journal, settle="never")
    second = attach(made_by_hand(model(CALLS), tools.all, checkpointer=saver, name="second"), journal, settle="never")
    cut_off(first, tools)
    assert journal.recover(second) == []
    assert journal.runs()[0].settled is False
    assert [report.outcome for report in journal.recover(first)] == ["settled"]


def test_recover_takes_a_graph_that_is_not_attached(journal: RunJournal) -> None:
    """`recover` works with a graph that is not attached."""
    tools = Tools()
    graph = made_by_langchain(model(CALLS), tools.all, checkpointer=tools.saver)
    cut_off(attach(graph, journal, settle="never"), tools)
    assert [report.outcome for report in journal.recover(graph)] == ["settled"]
    assert thread(graph) == CUT


def test_recover_gives_one_report_for_each_run(journal: RunJournal) -> None:
    """The reports are ordered from the oldest run, each with the thread and the messages that were written."""
    tools = Tools()
    agent = attach(made_by_langchain(model(CALLS, CALLS), tools.all, checkpointer=tools.saver), journal, settle="never")
    for name in ("a", "b"):
        cut_off(agent, tools, {"configurable": {"thread_id": name}, "callbacks": [tools.hear]})
    reports = journal.recover(agent)
    assert [(report.thread_id, report.outcome) for report in reports] == [("a", "settled"), ("b", "settled")]
    for report in reports:
        state = agent.get_state({"configurable": {"thread_id": report.thread_id}})
        assert [told["id"] for told in report.messages] == [state.values["messages"][-1].id]
        assert report.after == state.config["configurable"]["checkpoint_id"]
        assert report.before not in (None, report.after)
    asyncio.run(_nothing_left(agent, journal))


async def _nothing_left(agent: Any, journal: RunJournal) -> None:
    assert await journal.arecover(agent) == []


@pytest.mark.parametrize("graph", [None, "agent", RunnableLambda(lambda x: x)], ids=["none", "text", "chain"])
def test_recover_wants_a_graph(graph: Any, journal: RunJournal) -> None:
    """`recover` raises an error that says what to pass instead of another object."""
    with pytest.raises(errors.InvalidArgument, match="graph must be the compiled graph"):
        journal.recover(graph)
    with pytest.raises(errors.InvalidArgument, match="graph must be the compiled graph"):
        asyncio.run(journal.arecover(graph))


@pytest.mark.parametrize("checkpointer", [None, False, True])
def test_recover_wants_a_checkpointer(checkpointer: Any, journal: RunJournal) -> None:
    """`recover` raises an error for a graph without a checkpointer, which has no threads to settle."""
    graph = made_by_hand(model(words("fine")), [], checkpointer=checkpointer)
    with pytest.raises(errors.InvalidArgument, match="checkpointer"):
        journal.recover(graph)


def test_recover_on_another_checkpointer_says_so(journal: RunJournal, caplog: pytest.LogCaptureFixture) -> None:
    """If the checkpointer does not have the thread, nothing is written, the run stays open, and a warning names the
    thread."""
    tools = Tools()
    agent = attach(made_by_hand(model(CALLS), tools.all, checkpointer=tools.saver), journal, settle="never")
    cut_off(agent, tools)
    other = made_by_hand(model(CALLS), tools.all, checkpointer=InMemorySaver())
    [report] = journal.recover(other)
    assert (report.outcome, thread(other), journal.runs()[0].settled) == ("failed", [], False)
    assert report.reason == "the checkpointer of this graph has no such thread"
    [warned] = [record for record in caplog.records if record.levelname == "WARNING"]
    assert f"run {report.run_id} is not settled: its checkpointer no longer has thread" in warned.getMessage()
