"""How calls and runs end, in whatever order LangChain reports it."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import pytest
from langchain_core.messages import AIMessageChunk
from langchain_core.outputs import ChatGenerationChunk

from langchain_runjournal import JournalCallbackHandler, RunJournal, is_partial, is_synthetic
from tests.support.agents import Scripted, by_hand, words
from tests.support.captured import answer, call, config, kinds, say


def test_a_stop_request_gives_the_cause(journal: RunJournal, handler: JournalCallbackHandler) -> None:
    """A cancellation has no cause; a stop request has one."""

    async def main() -> dict[str, Any]:
        cfg, reached = config(handler), asyncio.Event()
        script = [*words("so far "), lambda: reached.set(), asyncio.Event().wait]
        agent = by_hand(Scripted(scripts=[script]), [])
        stream = agent.astream({"messages": [("user", "go")]}, cfg, stream_mode="messages")
        task = asyncio.ensure_future(_read(stream))
        await reached.wait()
        await journal.astop(str(cfg["run_id"]), "superseded")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return cfg

    cfg = asyncio.run(main())
    run = journal.run(str(cfg["run_id"]))
    assert (run.status, run.cause) == ("interrupted", "superseded")
    partial = journal.transcript(str(cfg["run_id"]))[-1]
    assert (is_partial(partial), is_synthetic(partial), partial.text) == (True, False, "so far ")
    assert partial.additional_kwargs["runjournal"]["reason"] == "superseded"


async def _read(stream: Any) -> list[Any]:
    return [chunk async for chunk in stream]


ENDINGS = {
    "complete": lambda handler, root, model: handler.on_llm_end(answer("words"), run_id=model),
    "cut": lambda handler, root, model: handler.on_llm_error(asyncio.CancelledError(), run_id=model),
    "root": lambda handler, root, model: handler.on_chain_error(asyncio.CancelledError(), run_id=root),
}


@pytest.mark.parametrize("first", ENDINGS)
@pytest.mark.parametrize("second", ENDINGS)
@pytest.mark.parametrize("third", ENDINGS)
def test_endings_in_any_order(
    journal: RunJournal, handler: JournalCallbackHandler, first: str, second: str, third: str
) -> None:
    """A call is complete or partial and never both, a run ends once, and a late report changes nothing."""
    root = uuid4()
    handler.on_chain_start({}, {}, run_id=root)
    model = call(handler, root)
    say(handler, model, "words")
    for ending in (first, second, third):
        ENDINGS[ending](handler, root, model)
        found = kinds(journal.read(str(root)))
        assert found.count("llm.ai.response") + found.count("llm.ai.partial") <= 1
        assert found.count("run.end") <= 1
    messages = [message for message in journal.transcript(str(root)) if message.type == "ai"]
    assert [message.text for message in messages] == ["words"]
    whole = next(ending for ending in (first, second, third)) == "complete"
    assert is_partial(messages[0]) is not whole


def test_what_a_model_says_after_the_end_counts_for_nothing(journal: RunJournal, handler: JournalCallbackHandler) -> None:
    """A zombie continues: the journal records its words and its answer as late, and the transcript stays as it was."""
    for said in ("so far", ""):
        root = uuid4()
        handler.on_chain_start({}, {}, run_id=root)
        model = call(handler, root)
        say(handler, model, said)
        handler.on_chain_error(asyncio.CancelledError(), run_id=root)
        before, last = journal.transcript(str(root)), journal.run(str(root)).last_seq
        say(handler, model, " and on")
        handler.on_llm_end(answer("so far and on"), run_id=model)
        assert journal.transcript(str(root)) == before
        assert [message.text for message in before if message.type == "ai"] == ([said] if said else [])
        late = journal.read(str(root), after=last)
        assert late[0].text == " and on"
        assert [event.data["late"] for event in late if event.kind == "llm.ai.response"] == ([] if said else [True])


def test_a_complete_run_has_no_partial_answer(journal: RunJournal, handler: JournalCallbackHandler) -> None:
    """A call that the run did not wait for is not part of the transcript; its usage is unknown."""
    root, node = uuid4(), uuid4()
    handler.on_chain_start({}, {"messages": "go"}, run_id=root)
    handler.on_chain_start({}, {}, run_id=node, parent_run_id=root, metadata={"langgraph_checkpoint_ns": "node:1"})
    model = call(handler, node)
    say(handler, model, "too slow")
    handler.on_chain_end({}, run_id=node)
    handler.on_chain_end({}, run_id=root)
    assert [message.type for message in journal.transcript(str(root))] == ["human"]
    assert journal.run(str(root)).usage == {"m": {"calls": 1, "incomplete": 1}}
    assert "llm.ai.partial" not in kinds(journal.read(str(root)))


def test_an_empty_partial_is_not_recorded(journal: RunJournal, handler: JournalCallbackHandler) -> None:
    """A call that has streamed only blanks, or only the beginning of a tool call, leaves no partial answer."""
    for text, calls in ((" \n", []), ("", [{"name": "rm", "args": '{"a', "id": "1", "index": 0}])):
        model = call(handler)
        message = AIMessageChunk(content=text, tool_call_chunks=calls)
        handler.on_llm_new_token(text, chunk=ChatGenerationChunk(message=message), run_id=model)
        handler.on_llm_error(GeneratorExit(), run_id=model)
        assert kinds(journal.read(str(model))) == ["run.start", "llm.human.input", "llm.start", "run.end"]
        assert [message.type for message in journal.transcript(str(model))] == ["human"]
        assert journal.run(str(model)).cause == "disconnect"


def test_a_call_speaks_one_way(journal: RunJournal, handler: JournalCallbackHandler) -> None:
    """The journal records a model that reports both tokens and stream events once, whichever come first."""
    for token_first in (True, False):
        model = call(handler)
        if token_first:
            say(handler, model, "One ")
        handler.on_stream_event({"event": "message-start", "id": f"lc_run--{model}"}, run_id=model)
        for text in ("One ", "two"):
            delta = {"type": "text-delta", "text": text}
            handler.on_stream_event({"event": "content-block-delta", "index": 0, "delta": delta}, run_id=model)
            say(handler, model, text)
        partial = journal.transcript(str(model))[-1]
        assert partial.content == [{"type": "text", "text": "One two"}]


def test_a_running_call_can_be_read(journal: RunJournal, handler: JournalCallbackHandler) -> None:
    """A client that returns in the middle sees what there is, marked as running."""
    model = call(handler)
    say(handler, model, "so far")
    partial = journal.transcript(str(model))[-1]
    assert (partial.text, partial.additional_kwargs["runjournal"]["reason"]) == ("so far", "running")
