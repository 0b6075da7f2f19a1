"""ToolPairGuard in agents: what the model is given, and that nothing else changes."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from langchain_core.messages import BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command

from langchain_runjournal import JournalCallbackHandler, RunJournal, errors, guard, is_synthetic
from langchain_runjournal.messages.tool_pairs import requests
from langchain_runjournal.messages.tool_results import CallKnowledge
from tests.support.agents import Scripted, asks, words
from tests.support.histories import became, cut_off, history, result

agents = pytest.importorskip("langchain.agents")
middleware = pytest.importorskip("langchain.agents.middleware")

SEARCH = ("c1", "search", {"query": "x"})
INTERRUPTS = pytest.mark.parametrize(
    "run",
    [
        "sync",
        pytest.param(
            "async",
            marks=pytest.mark.skipif(
                sys.version_info < (3, 11), reason="LangGraph cannot interrupt there in asynchronous code"
            ),
        ),
    ],
    indirect=True,
)
THREAD: Any = {"configurable": {"thread_id": "t"}}


class Watched(Scripted):
    """Remembers what it was asked."""

    seen: list[list[BaseMessage]]

    def _generate(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        self.seen.append(messages)
        return super()._generate()

    async def _agenerate(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        self.seen.append(messages)
        return await super()._agenerate()


@tool
def search(query: str) -> str:
    """Look something up."""
    return f"found {query}"


def agent_of(model: Scripted, *more: Any, tools: Any = (search,), **options: Any) -> Any:
    return agents.create_agent(model, tools=list(tools), middleware=more, **options)


def said() -> Watched:
    return Watched(scripts=[words("done")], seen=[])


@pytest.fixture(params=["sync", "async"])
def run(request: Any) -> Callable[..., Any]:
    """The agent in either world."""
    if request.param == "sync":
        return lambda agent, inputs, config=None: agent.invoke(inputs, config)
    return lambda agent, inputs, config=None: asyncio.run(agent.ainvoke(inputs, config))


@pytest.fixture
def knows(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., Any]], None]:
    """Put another function in the place of the journal's memory of tool calls."""

    def put(look_up: Callable[..., Any]) -> None:
        module = ModuleType("langchain_runjournal.journal.tool_history")
        module.look_up = look_up  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "langchain_runjournal.journal.tool_history", module)

    return put


@pytest.mark.guarantee("tool pairs")
def test_the_model_gets_pairs_and_the_state_stays(run: Any) -> None:
    """The request is made whole; the thread holds what it held, and the answer."""
    model, given = said(), history("T(zz) U A(c1,c2) U T(c2) A(c3) U")
    after = run(agent_of(model, guard.ToolPairGuard()), {"messages": given})["messages"]
    assert became(given, model.seen[0]) == "1 2 T*(c1) 4 3 5 T*(c3) 6"
    assert after[:-1] == given
    assert after[-1].content == "done"


@pytest.mark.parametrize("text", ["U A(c1) T(c1) U", "U A~ U", "U A(c1) T*(c1) U"])
def test_a_whole_history_passes_as_it_is(run: Any, text: str) -> None:
    """Not even the request object is another one."""
    seen: list[Any] = []

    class Before(middleware.AgentMiddleware):  # type: ignore[misc, name-defined]
        def wrap_model_call(self, request: Any, handler: Any) -> Any:
            seen.append(request)
            return handler(request)

        async def awrap_model_call(self, request: Any, handler: Any) -> Any:
            seen.append(request)
            return await handler(request)

    class Behind(Before):
        pass

    run(agent_of(said(), Before(), guard.ToolPairGuard(notes=False), Behind()), {"messages": history(text)})
    assert seen[0] is seen[1]


@pytest.mark.guarantee("tool pairs")
def test_without_the_guard_the_model_gets_what_is_broken(run: Any) -> None:
    """So the tests above can fail."""
    model, given = said(), history("U A(c1) U")
    run(agent_of(model), {"messages": given})
    assert became(given, model.seen[0]) == "0 1 2"


def test_the_policies_reach_the_request(run: Any) -> None:
    """Strip, keep and raise do in an agent what they do in the function."""
    for options, expected in (({"dangling": "strip"}, "1' 2"), ({"orphans": "keep"}, "0 1 T*(c1) 2")):
        model, given = said(), history("T(zz) A(c1) U")
        run(agent_of(model, guard.ToolPairGuard(**options)), {"messages": given})
        assert became(given, model.seen[0]) == expected
    with pytest.raises(errors.ToolPairBroken, match="call 'c1'"):
        run(agent_of(said(), guard.ToolPairGuard(dangling="raise")), {"messages": history("A(c1) U")})


def test_an_agent_with_tools_works_as_without(run: Any) -> None:
    """Its own calls are answered before the model is asked again: the guard has nothing to do."""
    model = Watched(scripts=[asks(SEARCH), words("done")], seen=[])
    after = run(agent_of(model, guard.ToolPairGuard(dangling="raise", orphans="raise")), {"messages": [HumanMessage("u")]})
    assert [one.type for one in after["messages"]] == ["human", "ai", "tool", "ai"]
    assert model.seen[1] == after["messages"][:3]


# --- with a journal -----------------------------------------------------------------------------------------------------


def test_the_journal_is_asked_for_what_is_missing(run: Any, journal: RunJournal, knows: Any) -> None:
    """Once for all the calls of a request, with the thread, and what it knows is told."""
    asked: list[Any] = []

    def look_up(*arguments: Any) -> Any:
        asked.append(arguments)
        late = result("c2", "late")
        return {
            ("m1", "c1"): CallKnowledge(state="failed", error="ValueError: no"),
            ("m1", "c2"): CallKnowledge(state="started", result=late),
            ("m4", "c3"): CallKnowledge(state="started", result=result("c3", "real")),
        }

    knows(look_up)
    model, given = said(), history("U A(c1,c2) U S A(c3) T*(c3) U")
    saver = InMemorySaver()
    after = run(agent_of(model, guard.ToolPairGuard(journal), checkpointer=saver), {"messages": given}, THREAD)["messages"]
    assert asked == [(journal, "t", [("m1", "c1"), ("m1", "c2"), ("m4", "c3")])]
    assert became(given, model.seen[0]) == "0 1 T*(c1) R(c2) 2 3 4 R(c3) 6"
    contents = [one.content for one in model.seen[0] if isinstance(one, ToolMessage)]
    assert contents == ["The call failed: ValueError: no", "late", "real"]
    assert model.seen[0][-2].id == given[5].id
    assert after[:-1] == given


def test_a_tool_of_the_client_of_a_run_that_has_completed(run: Any, journal: RunJournal) -> None:
    """Its run does not know whether the client began with it: the result says that none was recorded."""
    asking = Scripted(scripts=[asks(("c1", "order", {"x": 1}))])
    graph = StateGraph(MessagesState).add_node("ask", lambda state: {"messages": [asking.invoke(state["messages"])]})
    recorded = {**THREAD, "callbacks": [JournalCallbackHandler(journal)]}
    given = run(graph.add_edge(START, "ask").compile(), {"messages": [HumanMessage("hi")]}, recorded)["messages"]
    assert [one.status for one in journal.runs("t")] == ["completed"]
    model = said()
    agent = agent_of(model, guard.ToolPairGuard(journal), checkpointer=InMemorySaver())
    run(agent, {"messages": [*given, HumanMessage("did it work?")]}, THREAD)
    assert [one.type for one in model.seen[0]] == ["human", "ai", "tool", "human"]
    assert model.seen[0][2].text.startswith("No result was recorded for this call.")
    assert model.seen[0][2].additional_kwargs["runjournal"]["run_id"] == journal.runs("t")[-1].run_id


def test_a_whole_history_asks_the_journal_nothing(run: Any, journal: RunJournal, knows: Any) -> None:
    """Nor one that lacks no result, though it is broken in another way."""
    asked: list[Any] = []
    knows(lambda *arguments: asked.append(arguments))
    for text in ("U A(c1) T(c1) U", "T(zz) U", "A(c1) U T(c1)"):
        run(
            agent_of(said(), guard.ToolPairGuard(journal), checkpointer=InMemorySaver()), {"messages": history(text)}, THREAD
        )
    assert asked == []


def test_the_asynchronous_agent_does_not_wait_in_the_loop(journal: RunJournal, knows: Any) -> None:
    """The journal is read in a thread of its own."""
    where: list[Any] = []
    knows(lambda *arguments: where.append(threading.current_thread()) or {})
    agent = agent_of(said(), guard.ToolPairGuard(journal), checkpointer=InMemorySaver())
    asyncio.run(agent.ainvoke({"messages": history("A(c1) U")}, THREAD))
    assert len(where) == 1
    assert where[0] is not threading.main_thread()


def test_the_thread_is_handed_down_in_the_request(journal: RunJournal, knows: Any) -> None:
    """Asynchronous code on Python 3.10 has nothing else; where it is missing, the config has it; or nobody."""
    asked: list[Any] = []
    knows(lambda journal, thread_id, wanted: asked.append(thread_id) or {})
    request = middleware.ModelRequest(model=said(), messages=history("A(c1) U"))
    seen = guard.ToolPairGuard(journal).wrap_model_call(request, lambda request: request.messages)
    assert [one.type for one in seen] == ["ai", "tool", "human"]
    assert asked == []
    runtime: Any = SimpleNamespace(execution_info=SimpleNamespace(thread_id="handed"))
    guard.ToolPairGuard(journal).wrap_model_call(request.override(runtime=runtime), lambda request: request.messages)
    assert asked == ["handed"]

    class Forgets(middleware.AgentMiddleware):  # type: ignore[misc, name-defined]
        def wrap_model_call(self, request: Any, handler: Any) -> Any:
            return handler(request.override(runtime=None))

    agent_of(said(), Forgets(), guard.ToolPairGuard(journal)).invoke({"messages": history("A(c1) U")}, THREAD)
    assert asked == ["handed", "t"]


def test_a_thread_without_a_saver_is_known_by_its_config(journal: RunJournal, knows: Any) -> None:
    """The thread id is enough, though LangGraph stores nothing; without one there is nobody to ask."""
    asked: list[Any] = []
    knows(lambda journal, thread_id, wanted: asked.append(thread_id) or {})
    agent = agent_of(said(), guard.ToolPairGuard(journal))
    agent.invoke({"messages": history("A(c1) U")}, {"configurable": {"thread_id": 7}})
    agent.invoke({"messages": history("A(c1) U")})
    assert asked == ["7"]


def test_a_journal_that_fails_does_not_stop_the_agent(
    run: Any, journal: RunJournal, knows: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The model is told what the history says, and the log what went wrong."""

    def look_up(*arguments: Any) -> Any:
        raise errors.JournalClosed(url="x", refused=0)

    knows(look_up)
    model, given = said(), history("U A(c1) U")
    with caplog.at_level(logging.INFO, "langchain_runjournal"):
        run(agent_of(model, guard.ToolPairGuard(journal), checkpointer=InMemorySaver()), {"messages": given}, THREAD)
    assert became(given, model.seen[0]) == "0 1 T*(c1) 2"
    warning, info = caplog.records
    assert "could not read missing tool results from the journal" in warning.message
    assert warning.exc_info is not None
    assert info.message.endswith("synthesized search (c1)")


async def _stopped_in_the_third_tool(journal: RunJournal, agent: Any, stuck: asyncio.Event) -> None:
    config: Any = {**THREAD, "callbacks": [JournalCallbackHandler(journal)]}
    task = asyncio.create_task(agent.ainvoke({"messages": [HumanMessage("u")]}, config))
    await stuck.wait()
    (run,) = await journal.aruns("t")
    done = 0
    async for event in journal.afollow(run.run_id):
        done += event.kind == "llm.tool.result"
        if done == 2:
            break
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.skipif(sys.version_info < (3, 11), reason="create_agent hands on its callbacks only from Python 3.11 on")
def test_two_finished_tools_of_a_stopped_run_are_told_as_finished(journal: RunJournal) -> None:
    """N1: LangGraph throws their results away with the next message; the journal has them, and knows of the third."""
    stuck = asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait for ever."""
        stuck.set()
        await asyncio.Event().wait()
        return "never"

    @tool
    async def look(query: str) -> str:
        """Look something up."""
        return f"found {query}"

    calls = [("c1", "look", {"query": "a"}), ("c2", "look", {"query": "b"}), ("c3", "wait", {})]
    model = Watched(scripts=[asks(*calls), words("done")], seen=[])
    agent = agent_of(model, guard.ToolPairGuard(journal), tools=[look, wait], checkpointer=InMemorySaver())

    async def both() -> Any:
        await _stopped_in_the_third_tool(journal, agent, stuck)
        return await agent.ainvoke({"messages": [HumanMessage("v")]}, THREAD)

    after = asyncio.run(both())["messages"]
    assert [one.type for one in after] == ["human", "ai", "human", "ai"]
    request = model.seen[1]
    assert [one.type for one in request] == ["human", "ai", "tool", "tool", "tool", "human"]
    assert [one.content for one in request[2:4]] == ["found a", "found b"]
    assert [is_synthetic(one) for one in request[2:5]] == [False, False, True]
    assert request[4].content.startswith("Interrupted while running (the user stopped the turn)")


# --- notes --------------------------------------------------------------------------------------------------------------


def test_a_cut_off_answer_is_told_in_every_request_and_never_stored(run: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The same words at the same place each turn, so that the provider's cache holds; the thread has none of them."""
    model = said()
    agent = agent_of(model, guard.ToolPairGuard(), checkpointer=InMemorySaver())
    given = [HumanMessage("u", id="m9"), cut_off(), HumanMessage("and now?", id="m2")]
    with caplog.at_level(logging.INFO, "langchain_runjournal"):
        run(agent, {"messages": given}, THREAD)
        after = run(agent, {"messages": [HumanMessage("more")]}, THREAD)["messages"]
    first, second = model.seen
    assert second[:3] == first
    assert sum("<note>" in one.content for one in second) == 1
    assert "the user stopped it" in first[2].content
    assert first[2].content.endswith("\n\nand now?")
    assert not any("<note>" in one.content for one in after)
    assert after[2].additional_kwargs == {}
    assert caplog.records == []


def test_an_agent_that_goes_on_by_itself_is_told_where_it_was(run: Any) -> None:
    """With no words of the user's behind it, the note is a message of its own, since an answer may not be the last."""
    model = said()
    after = run(agent_of(model, guard.ToolPairGuard()), {"messages": [HumanMessage("u"), cut_off()]})["messages"]
    assert [one.type for one in model.seen[0]] == ["human", "ai", "human"]
    assert "half an answer 0" in model.seen[0][2].content
    assert [one.type for one in after] == ["human", "ai", "ai"]


def test_notes_can_be_turned_off(run: Any) -> None:
    """Then the request is the history."""
    model, given = said(), [HumanMessage("u"), cut_off(), HumanMessage("v")]
    run(agent_of(model, guard.ToolPairGuard(notes=False)), {"messages": given})
    assert [one.content for one in model.seen[0]] == [one.content for one in given]


# --- beside others ------------------------------------------------------------------------------------------------------


def test_what_others_do_to_the_request_is_made_whole_too(run: Any) -> None:
    """Last in the list, it sees what a middleware that trims has left over."""

    class Trims(middleware.AgentMiddleware):  # type: ignore[misc, name-defined]
        def wrap_model_call(self, request: Any, handler: Any) -> Any:
            return handler(request.override(messages=request.messages[2:]))

        async def awrap_model_call(self, request: Any, handler: Any) -> Any:
            return await handler(request.override(messages=request.messages[2:]))

    model, given = said(), history("U A(c1) T(c1) U")
    run(agent_of(model, Trims(), guard.ToolPairGuard(), system_prompt="rules"), {"messages": given})
    assert [one.type for one in model.seen[0]] == ["system", "human"]
    assert model.seen[0][1] == given[3]


@INTERRUPTS
def test_a_human_who_is_asked_is_not_overruled(run: Any) -> None:
    """N4: while an approval is pending, and when it is given, the guard has no part in it."""
    asking = middleware.HumanInTheLoopMiddleware(interrupt_on={"search": True})
    model = Watched(scripts=[asks(SEARCH), words("done")], seen=[])
    agent = agent_of(model, asking, guard.ToolPairGuard(dangling="raise"), checkpointer=InMemorySaver())
    paused = run(agent, {"messages": [HumanMessage("u")]}, THREAD)
    assert "__interrupt__" in paused
    after = run(agent, Command(resume={"decisions": [{"type": "approve"}]}), THREAD)["messages"]
    assert [one.content for one in after if one.type == "tool"] == ["found x"]
    assert model.seen[1] == after[:3]


@INTERRUPTS
def test_a_conversation_that_goes_on_without_the_approval(run: Any, journal: RunJournal, knows: Any) -> None:
    """N5: the model is told that the call waited, and was not made."""
    knows(lambda journal, thread_id, wanted: {call: CallKnowledge(state="waiting") for call in wanted})
    asking = middleware.HumanInTheLoopMiddleware(interrupt_on={"search": True})
    model = Watched(scripts=[asks(SEARCH), words("done")], seen=[])
    agent = agent_of(model, asking, guard.ToolPairGuard(journal), checkpointer=InMemorySaver())
    run(agent, {"messages": [HumanMessage("u")]}, THREAD)
    after = run(agent, {"messages": [HumanMessage("never mind")]}, THREAD)["messages"]
    assert [one.type for one in model.seen[1]] == ["human", "ai", "tool", "human"]
    assert "waiting for a human's approval" in model.seen[1][2].content
    assert [one.type for one in after] == ["human", "ai", "human", "ai"]


# --- arguments and extras -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"journal": "runs.db"}, "journal must be a RunJournal or None, but 'runs.db'"),
        ({"dangling": "fix"}, "dangling does not know the value 'fix'. It knows: 'synthesize', 'strip', 'hold', 'raise'"),
        ({"orphans": None}, "orphans does not know the value None. It knows: 'drop', 'keep', 'raise'"),
        ({"notes": "yes"}, "notes must be True or False, but 'yes'"),
    ],
)
def test_bad_arguments_are_refused_at_once(options: dict[str, Any], words: str) -> None:
    """Where the guard is made, and not when a thread is broken."""
    with pytest.raises(errors.InvalidArgument) as caught:
        guard.ToolPairGuard(**options)
    assert words in str(caught.value)


def test_the_guard_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without LangChain's agents there is no middleware; the error is an ImportError that names the extra."""
    monkeypatch.setitem(sys.modules, "langchain", None)
    monkeypatch.delitem(sys.modules, "langchain.agents.middleware", raising=False)
    with pytest.raises(ImportError, match=r'pip install "langchain-runjournal\[agent\]"') as caught:
        _ = guard.ToolPairGuard
    assert isinstance(caught.value, errors.ExtraMissing)
    with pytest.raises(AttributeError, match="has no attribute 'Guard'"):
        _ = guard.Guard


def test_another_missing_module_is_named_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed LangChain that lacks something of its own is not reported as missing."""
    monkeypatch.delitem(sys.modules, "langchain.agents.middleware", raising=False)
    monkeypatch.setitem(sys.modules, "langgraph.runtime", None)
    for name in [name for name in sys.modules if name.startswith("langchain.")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ModuleNotFoundError, match=r"langgraph\.runtime") as caught:
        _ = guard.ToolPairGuard
    assert not isinstance(caught.value, errors.ExtraMissing)


def test_the_function_needs_nothing_more() -> None:
    """Who repairs the history of a graph of their own does not need LangChain's agents."""
    code = (
        "import sys; sys.modules['langchain'] = None\n"
        "from langchain_runjournal.guard import repair_tool_pairs\n"
        "from langchain_core.messages import AIMessage\n"
        "call = {'id': 'c', 'name': 'f', 'args': {}}\n"
        "print([one.type for one in repair_tool_pairs([AIMessage('', tool_calls=[call])])])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['ai', 'tool']"


def test_what_langchain_answers_itself_stays_answered(run: Any) -> None:
    """Newer releases answer an invalid call in the thread; older ones do not. Either way the request is whole."""
    model, given = said(), history("U A(c1,!c2) T(c1) U")
    run(agent_of(model, guard.ToolPairGuard()), {"messages": given})
    calls = [request.id for one in model.seen[0] for request in requests(one)]
    assert sorted(one.tool_call_id for one in model.seen[0] if isinstance(one, ToolMessage)) == sorted(calls)
    assert "c1" in calls
