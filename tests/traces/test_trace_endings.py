"""`TraceEndingHandler`: a call that was cut off is ended in tracers, through LangChain's callbacks, once."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tracers.base import BaseTracer
from langgraph.graph import START, MessagesState, StateGraph

from langchain_runjournal import RunJournal, TraceEndingHandler, attach
from langchain_runjournal.errors import InvalidArgument
from tests.support.cut_runs import Cut, HaltingModel, Place, agent, cut_run


class Tracer(BaseTracer):
    """A tracer that keeps every run that it sees."""

    run_inline = True

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def _persist_run(self, run: Any) -> None:
        pass

    def _on_run_create(self, run: Any) -> None:
        self.seen.append(run)

    def of(self, type: str) -> Any:
        """Return the one run of a type."""
        (found,) = [run for run in self.seen if run.run_type == type]
        return found


class Feed(BaseCallbackHandler):
    """A handler that is no tracer."""

    run_inline = True

    def __init__(self) -> None:
        self.ended: list[Any] = []

    def on_llm_end(self, response: Any, **about: Any) -> None:
        self.ended.append(response)


CUTS: list[Cut] = ["cancel", "cancel twice", "close"]


@pytest.mark.parametrize("cut", CUTS)
def test_a_cut_model_call_ends_as_interrupted(cut: Cut, caplog: pytest.LogCaptureFixture) -> None:
    """The tracer gets the partial answer, the status and the cause, no error, and no second end."""
    tracer, feed = Tracer(), Feed()
    with caplog.at_level(logging.WARNING):
        asyncio.run(cut_run("model", cut, [tracer, feed]))
    call = tracer.of("llm")
    assert call.end_time is not None
    assert call.error is None
    generation = call.outputs["generations"][0][0]
    assert generation["text"] == "one two "
    assert call.outputs["llm_output"]["runjournal"] == {"status": "interrupted", "cause": "superseded"}
    about = {"finish_reason": "interrupted: superseded", "status": "interrupted", "cause": "superseded"}
    assert generation["generation_info"] == about
    assert not tracer.run_map
    assert not feed.ended
    assert not caplog.records


def test_without_traces_the_call_stays_open() -> None:
    """What this is for: LangChain reports no end of a call that is cancelled."""
    tracer = Tracer()
    asyncio.run(cut_run("model", "cancel", [tracer], traces=False))
    assert tracer.of("llm").end_time is None


@pytest.mark.parametrize("cut", ["cancel", "cancel twice"])
def test_a_cut_tool_ends_as_interrupted(cut: Cut, caplog: pytest.LogCaptureFixture) -> None:
    """A tool that was cut off has no result, and is not an error."""
    tracer = Tracer()
    with caplog.at_level(logging.WARNING):
        asyncio.run(cut_run("tool", cut, [tracer]))
    call = tracer.of("tool")
    assert call.error is None
    standing = {"status": "interrupted", "cause": "superseded"}
    assert call.outputs["output"] == {"runjournal": standing, "name": "book", "tool_call_id": "call-1"}
    assert not (tracer.of("llm").outputs["llm_output"] or {}).get("runjournal")
    assert not tracer.run_map
    assert not caplog.records


def test_a_call_that_its_node_has_left_ends_with_the_run() -> None:
    """A completed run leaves no call open, for which a node had a time limit of its own."""
    tracer = Tracer()
    asyncio.run(cut_run("model", "time limit in the node", [tracer]))
    call = tracer.of("llm")
    assert call.outputs["generations"][0][0]["text"] == "one two "
    assert call.outputs["llm_output"]["runjournal"] == {"status": "interrupted"}
    assert call.error is None


def test_a_call_that_goes_on_behind_its_run_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    """A call in a task of its own may end long after its run. Its tracer gets the real end."""
    tracer, tasks = Tracer(), []
    began, go_on = asyncio.Event(), asyncio.Event()

    class Slow(GenericFakeChatModel):
        async def _agenerate(self, *args: Any, **options: Any) -> Any:
            began.set()
            await go_on.wait()
            return self._generate(*args)

    async def answer(state: MessagesState, config: RunnableConfig) -> Any:
        tasks.append(asyncio.create_task(Slow(messages=iter([AIMessage("late")])).ainvoke("hi", config)))
        await began.wait()
        return {}

    async def run() -> None:
        graph = StateGraph(MessagesState).add_node("answer", answer).add_edge(START, "answer").compile()
        with RunJournal(":memory:") as journal:
            await attach(graph, journal, traces=True).ainvoke({"messages": ["hi"]}, {"callbacks": [tracer]})
            assert tracer.of("llm").end_time is None
            go_on.set()
            await tasks[0]

    with caplog.at_level(logging.WARNING):
        asyncio.run(run())
    assert tracer.of("llm").outputs["generations"][0][0]["text"] == "late"
    assert not caplog.records


def test_a_model_without_a_graph() -> None:
    """The handler alone ends a call that nothing is around; one of your tracers needs to be named."""

    class Mine(BaseCallbackHandler):
        run_inline = True

        def __init__(self) -> None:
            self.ended: list[Any] = []

        def on_llm_end(self, response: Any, **about: Any) -> None:
            self.ended.append(response)

    tracer, mine, feed = Tracer(), Mine(), Feed()

    async def run() -> None:
        reached = asyncio.Event()
        with RunJournal(":memory:") as journal:
            handler = TraceEndingHandler(journal, tracers=[Mine])
            model = HaltingModel(place="model", reached=reached)
            config: Any = {"callbacks": [handler, tracer, mine, feed]}
            task = asyncio.create_task(model.ainvoke("hi", config, stream=True))
            await reached.wait()
            task.cancel()
            await asyncio.wait([task])
            await asyncio.sleep(0)

    asyncio.run(run())
    assert tracer.of("llm").outputs["generations"][0][0]["text"] == "one two "
    assert mine.ended[0].generations[0][0].generation_info["cause"] == "stop"
    assert not feed.ended


def test_nothing_is_kept_of_calls_that_have_ended() -> None:
    """After runs that completed and runs that were cut off, the handler holds nothing."""
    handlers: list[Any] = []

    class Keep(Tracer):
        def _on_run_create(self, run: Any) -> None:
            super()._on_run_create(run)

    async def run() -> None:
        with RunJournal(":memory:") as journal:
            handler = TraceEndingHandler(journal)
            handlers.append(handler)
            place: Place
            for place in ("model", "tool"):
                reached = asyncio.Event()
                config: Any = {"callbacks": [handler, Keep()]}
                task = asyncio.create_task(agent(place, reached).ainvoke({"messages": ["hi"]}, config))
                waiting = asyncio.create_task(reached.wait())
                await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED, timeout=1)
                task.cancel()
                waiting.cancel()
                await asyncio.wait([task])

    asyncio.run(run())
    assert not handlers[0]._open


def test_bad_arguments() -> None:
    """The error names the argument."""
    with RunJournal(":memory:") as journal:
        with pytest.raises(InvalidArgument, match="tracers"):
            TraceEndingHandler(journal, tracers=[Tracer()])  # type: ignore[list-item]
        with pytest.raises(InvalidArgument, match="traces"):
            attach(agent("model", asyncio.Event()), journal, traces="yes")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="journal"):
        TraceEndingHandler("runs.db")  # type: ignore[arg-type]
