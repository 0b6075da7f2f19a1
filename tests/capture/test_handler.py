"""The handler beside other code: it never raises, never waits, and keeps nothing."""

from __future__ import annotations

import asyncio
import gc
import threading
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessageChunk
from langchain_core.outputs import ChatGenerationChunk, GenerationChunk
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from langchain_runjournal import Event, JournalCallbackHandler, RunJournal, errors
from langchain_runjournal.journal.core import core_of
from tests.support.agents import Scripted, words
from tests.support.captured import call, config, double, kinds, say


def test_two_handlers_record_a_run_once(journal: RunJournal, handler: JournalCallbackHandler) -> None:
    """One handler is in the config of the run and one at the model, both of the same journal."""
    model = Scripted(scripts=[words("a", "b")]).with_config(callbacks=[JournalCallbackHandler(journal)])
    chain = RunnableLambda(lambda text, config: model.invoke(text, config))
    cfg = config(handler, None)
    chain.invoke("?", cfg)
    list(model.stream("?", {"callbacks": [handler]}))
    for run in journal.runs():
        found = kinds(journal.read(run.run_id))
        assert found == ["run.start", "llm.human.input", "llm.start", "llm.ai.response", "run.end"]


def test_an_update_of_a_state_is_not_a_run(journal: RunJournal, handler: JournalCallbackHandler) -> None:
    """LangGraph reports it as a chain, where the node has an edge to choose."""
    graph = StateGraph(MessagesState)
    graph.add_node("model", lambda state: {"messages": [("ai", "made up")]})
    graph.add_node("tools", ToolNode([double]))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    watched = Names()
    bound = graph.compile(checkpointer=InMemorySaver()).with_config(callbacks=[handler, watched])
    bound.update_state({"configurable": {"thread_id": "t"}}, {"messages": [("ai", "1")]}, as_node="model")
    assert "LangGraphUpdateState" in watched.names
    assert journal.runs() == []


class Names(BaseCallbackHandler):
    """A handler that keeps the names of the chains that LangChain reports."""

    def __init__(self) -> None:
        self.names: list[str | None] = []

    def on_chain_start(self, *args: Any, **kwargs: Any) -> None:
        self.names.append(kwargs.get("name"))


def test_it_never_raises(journal: RunJournal, handler: JournalCallbackHandler, caplog: pytest.LogCaptureFixture) -> None:
    """Not with any argument; the tokens of a call whose start cannot be understood are kept; the next barrier raises."""
    odd: Any = SimpleNamespace()
    run_id = uuid4()
    handler.on_chat_model_start(odd, odd, run_id=run_id, metadata=odd, tags=odd)
    for name in dir(handler):
        if name.startswith("on_") and name in vars(JournalCallbackHandler):
            with_id = {} if name in ("on_interrupt", "on_resume") else {"run_id": uuid4()}
            method = getattr(handler, name)
            for given in (None, odd, 7, "x", [None], {"a": odd}):
                two = [given, given] if name.endswith("_start") else [given]
                method(*two, **with_id)
    with pytest.raises(errors.WriteFailed):
        journal.flush()
    assert "could not record what on_" in caplog.text


def test_an_answer_that_cannot_be_understood_ends_its_run(journal: RunJournal, handler: JournalCallbackHandler) -> None:
    """What came before is in the journal, the run has its end, and the next barrier raises."""
    odd: Any = SimpleNamespace(generations=[[SimpleNamespace(message=7)]], llm_output=None)
    model = call(handler)
    say(handler, model, "words")
    handler.on_llm_end(odd, run_id=model)
    with pytest.raises(errors.WriteFailed):
        journal.flush()
    assert journal.run(str(model)).ended
    assert "".join(event.text for event in journal.read(str(model))) == "words"


def test_odd_tokens_are_kept(journal: RunJournal, handler: JournalCallbackHandler) -> None:
    """A chunk of a plain text model, a token without a chunk, a list without one, and half a surrogate pair."""
    model = call(handler)
    handler.on_llm_new_token("ab", chunk=GenerationChunk(text="ab"), run_id=model)
    handler.on_llm_new_token("c", run_id=model)
    handler.on_llm_new_token([{"type": "text", "text": "d"}], run_id=model)
    handler.on_llm_new_token("\ud83d", run_id=model)
    say(handler, model, "\ude00")
    journal.flush()
    assert "".join(event.text for event in journal.read(str(model))) == "abcd\ud83d\ude00"


def test_a_chunk_belongs_to_its_consumer(journal: RunJournal, handler: JournalCallbackHandler) -> None:
    """What the consumer does to a chunk afterwards changes nothing of what was recorded."""
    model = call(handler)
    block = {"type": "text", "text": "mine", "index": 0, "annotations": []}
    message = AIMessageChunk(content=[block], response_metadata={"a": {"b": 1}})
    handler.on_llm_new_token("", chunk=ChatGenerationChunk(message=message), run_id=model)
    block["text"] = "yours"
    message.response_metadata["a"]["b"] = 2
    handler.on_llm_new_token("", chunk=ChatGenerationChunk(message=message), run_id=model)
    first, second = [event.data for event in journal.read(str(model)) if event.kind == "llm.ai.delta"]
    assert (first["blocks"][0]["text"], first["metadata"], second["metadata"]) == ("mine", {"a": {"b": 1}}, {"a": {"b": 2}})


def test_a_handler_needs_a_journal() -> None:
    """It raises an error that says so."""
    with pytest.raises(errors.InvalidArgument, match="RunJournal"):
        JournalCallbackHandler("runs.db")  # type: ignore[arg-type]


@pytest.mark.parametrize("way", ["error", "silent", "in a graph"])
def test_ten_thousand_interrupted_calls_leave_nothing(journal: RunJournal, way: str) -> None:
    """The calls are cancelled, with and without a callback of LangChain's, alone and under a root."""
    handler = JournalCallbackHandler(journal, capture_invoke=True)
    tracker = handler._tracker
    for _ in range(10_000):
        root = uuid4()
        if way == "in a graph":
            handler.on_chain_start({}, {}, run_id=root)
        model = call(handler, root if way == "in a graph" else None)
        say(handler, model, "word")
        if way == "error":
            handler.on_llm_error(asyncio.CancelledError(), run_id=model)
        if way == "in a graph":
            handler.on_chain_error(asyncio.CancelledError(), run_id=root)
        del model, root
    gc.collect()
    assert (len(tracker.nodes), len(handler.streaming)) == (0, 0)
    assert all(run.status == "interrupted" for run in journal.runs(limit=None))


def test_ids_that_other_code_keeps_do_not_keep_the_calls(journal: RunJournal) -> None:
    """Another tracer, which waits for ever for the end of cancelled calls, holds their ids: the tracker bounds the
    number."""
    handler = JournalCallbackHandler(journal)
    kept = []
    for _ in range(11_000):
        root = uuid4()
        handler.on_chain_start({}, {}, run_id=root)
        kept.append(call(handler, root))
        handler.on_chain_error(asyncio.CancelledError(), run_id=root)
    assert len(handler._tracker.nodes) <= 10_000


def test_a_generator_that_is_collected_in_an_append_does_not_deadlock(
    journal: RunJournal, handler: JournalCallbackHandler
) -> None:
    """The garbage collector closes a stream in the middle of an append, and another thread that records an ending waits for
    that very append."""
    model, inside = call(handler), threading.Event()
    say(handler, model, "words")

    def elsewhere() -> None:
        def work() -> None:
            inside.set()
            journal.append(Event(run_id="other", kind="run.start"))

        handler._tracker.do(work)

    thread = threading.Thread(target=elsewhere)
    with core_of(journal).appender._lock:  # type: ignore[union-attr]  # in an append
        thread.start()
        assert inside.wait(30)
        handler.on_llm_error(GeneratorExit(), run_id=model)
    thread.join(30)
    assert not thread.is_alive()
    assert journal.run(str(model)).cause == "disconnect"
