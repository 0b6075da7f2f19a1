"""Answers that were cut off inside of their tool calls: how that is known, and that no such call is run."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, ToolMessage
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatResult, LLMResult
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command

from langchain_runjournal import JournalCallbackHandler, RunJournal, attach, errors, guard, is_partial, is_synthetic
from langchain_runjournal.guard.heard_calls import Heard
from langchain_runjournal.messages.cut_answers import cut_message, cut_results
from langchain_runjournal.messages.cut_calls import (
    ENDPOINTS,
    Endpoints,
    RawCalls,
    ended_because,
    find_cut,
    raw_of,
    reason_of,
)
from langchain_runjournal.timeline.timeline import timeline
from tests.support.agents import Scripted, words

agents = pytest.importorskip("langchain.agents")

HALF = '{"path": "/tmp/a'
WHOLE = '{"path": "/tmp/all"}'
THREAD: Any = {"configurable": {"thread_id": "t"}}


# --- pure ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metadata", "cause"),
    [
        ({"finish_reason": "tool_calls"}, None),
        ({"finish_reason": "length"}, "length"),
        ({"finish_reason": "lengthlength"}, "length"),
        ({"finish_reason": "MAX_TOKENS"}, "length"),
        ({"finish_reason": "model_length"}, "length"),
        ({"stop_reason": "max_tokens"}, "length"),
        ({"stop_reason": "model_context_window_exceeded"}, "length"),
        ({"stop_reason": "tool_use"}, None),
        ({"stopReason": "max_tokens"}, "length"),
        ({"done_reason": "length"}, "length"),
        ({"status": "completed", "incomplete_details": None}, None),
        ({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, "length"),
        ({"status": "in_progress"}, "incomplete"),
        ({"finish_reason": None}, "incomplete"),
        ({"finish_reason": ""}, "incomplete"),
        ({}, "incomplete"),
        (None, "incomplete"),
    ],
)
def test_the_reason_says_whether_an_answer_is_whole(metadata: Any, cause: str | None) -> None:
    """In the words of each provider; none at all counts only where one is expected."""
    assert ended_because(metadata, expects=True) == cause
    assert ended_because(metadata, expects=False) == (None if cause == "incomplete" else cause)


def asking(*calls: tuple[str, str], **metadata: Any) -> dict[str, Any]:
    """The fields of a message with these calls: id and arguments, as LangChain's lenient parser reads them."""
    chunks = [tool_call_chunk(name="run", args=args, id=id, index=at) for at, (id, args) in enumerate(calls)]
    message = AIMessageChunk(content="", tool_call_chunks=chunks, response_metadata=metadata)
    return {**vars(message), "tool_call_chunks": []}


@given(st.dictionaries(st.text(), st.recursive(st.text() | st.integers(), st.lists, max_leaves=5), max_size=4), st.data())
def test_every_beginning_of_arguments_is_cut_and_the_whole_is_not(args: dict[str, Any], data: Any) -> None:
    """The text as received decides, wherever the cut is; blank text may be a call without arguments."""
    text = json.dumps(args)
    at = data.draw(st.integers(1, len(text) - 1))
    assert find_cut(asking(("c1", text)), {"c1": text}) is None
    cut = find_cut(asking(("c1", text[:at])), {"c1": text[:at]})
    assert cut is not None
    assert cut.broken == {"c1"}
    assert cut.cause == "incomplete"


def test_a_line_break_in_a_string_is_not_cut() -> None:
    """Some models leave line breaks as they are."""
    assert find_cut(asking(("c1", WHOLE)), {"c1": '{"path": "/tmp/\nall"}'}) is None


@pytest.mark.parametrize("args", ["null", "[]", '""', "{}"])
def test_a_call_without_arguments_is_not_cut(args: str) -> None:
    """Some models say so in other words than an empty object, and LangChain makes a call of them where it does not stream.
    ChatMistralAI and ChatGroq keep the text."""
    asked = [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": args}}]
    call = {"name": "look", "args": {}, "id": "c1"}
    for reason in ({}, {"finish_reason": "tool_calls"}):
        message = AIMessage("", additional_kwargs={"tool_calls": asked}, tool_calls=[call], response_metadata=reason)
        assert find_cut(vars(message), {"c1": args}) is None


def test_of_two_calls_the_one_that_broke_off_is_cut() -> None:
    """The other one has come whole."""
    cut = find_cut(asking(("c1", WHOLE), ("c2", HALF), finish_reason="length"), {"c1": WHOLE, "c2": HALF})
    assert cut is not None
    assert (cut.cause, cut.broken, [one.id for one in cut.calls]) == ("length", {"c2"}, ["c1", "c2"])


@pytest.mark.parametrize("args", ["", WHOLE])
def test_where_the_text_says_nothing_the_end_of_the_answer_decides(args: str) -> None:
    """The last call of an answer that did not come to its end is the one in which it ended."""
    raw = {"c1": WHOLE, "c2": args}
    fields = asking(("c1", WHOLE), ("c2", args or "{}"))
    assert find_cut(fields, raw) is None
    assert find_cut({**fields, "response_metadata": {"stop_reason": "tool_use"}}, raw, expects=True) is None
    for metadata in ({}, {"stop_reason": "max_tokens"}):
        cut = find_cut({**fields, "response_metadata": metadata}, raw, expects=True)
        assert cut is not None
        assert cut.broken == {"c2"}


def test_an_answer_of_words_is_cut_without_calls() -> None:
    """There is nothing to refuse in it."""
    cut = find_cut({"content": "Once upon", "response_metadata": {"finish_reason": "length"}})
    assert cut is not None
    assert cut.data() == {"cause": "length"}
    assert find_cut({"content": "Once upon a time."}) is None


def test_what_langchain_could_not_read_is_cut_only_in_a_cut_answer() -> None:
    """A model that writes bad JSON and ends well has not been cut off; its call runs nowhere."""
    bad = {"name": "run", "args": HALF, "id": "c1", "error": None, "type": "invalid_tool_call"}
    fields = {"content": "", "tool_calls": [], "invalid_tool_calls": [bad]}
    assert find_cut({**fields, "response_metadata": {"finish_reason": "stop"}}) is None
    cut = find_cut({**fields, "response_metadata": {"finish_reason": "length"}})
    assert cut is not None
    assert cut.broken == {"c1"}


@given(
    st.lists(st.tuples(st.sampled_from([0, 1, 2]), st.text(max_size=4)), max_size=12), st.lists(st.booleans(), max_size=12)
)
def test_arguments_are_put_together_as_langchain_does(pieces: list[tuple[int, str]], named: list[bool]) -> None:
    """Parallel calls come in any order; only the first piece names its call, or each does."""
    raw, written, added, known = RawCalls(), "", AIMessageChunk(content=""), set()
    for at, (index, args) in enumerate(pieces):
        first = index not in known
        known.add(index)
        says = first or (at < len(named) and named[at])
        chunk = tool_call_chunk(name="run" if first else None, args=args, id=f"c{index}" if says else None, index=index)
        raw.add_chunks([chunk])
        written += json.dumps({"tool_calls": [chunk]} if says else {"args": args, "index": index}) + ","
        added += AIMessageChunk(content="", tool_call_chunks=[chunk])
    expected = {chunk["id"]: chunk["args"] for chunk in added.tool_call_chunks}
    assert raw.texts() == expected
    assert raw_of(written) == expected


def test_a_restart_forgets_what_came_before() -> None:
    """A model that speaks in two ways is heard in one."""
    first = {"tool_calls": [tool_call_chunk(name="run", args=HALF, id="c1", index=0)]}
    second = {"tool_calls": [tool_call_chunk(name="run", args=WHOLE, id="c1", index=0)], "restart": True}
    assert raw_of(f"{json.dumps(first)},{json.dumps(second)},") == {"c1": WHOLE}


def test_only_what_gave_a_reason_is_expected_to_give_one() -> None:
    """By provider, model, address and way of asking; a provider that is not in the table never is."""
    said: Any = {"response_metadata": {"finish_reason": "stop"}}
    known, silent = Endpoints(), {"response_metadata": {"model": "m"}}
    endpoint = ("openai", "m", ("http://a",))
    assert not known.heard(endpoint, silent, streamed=True)
    known.heard(endpoint, said, streamed=True)
    assert known.heard(endpoint, silent, streamed=True)
    assert not known.heard(endpoint, silent, streamed=False)
    assert not known.heard(("openai", "m", ("http://b",)), silent, streamed=True)
    known.heard(("own", "m", ()), said, streamed=True)
    assert not known.heard(("own", "m", ()), silent, streamed=True)
    known.heard((), said, streamed=True)
    assert not known.heard((), silent, streamed=True)
    assert reason_of(silent["response_metadata"]) is None


def test_a_reason_for_words_promises_none_for_calls() -> None:
    """Some servers give a reason behind words only."""
    known, endpoint, asks = Endpoints(), ("openai", "m", ()), {"tool_calls": [{"id": "c1"}]}
    known.heard(endpoint, {"response_metadata": {"finish_reason": "stop"}}, streamed=True)
    assert not known.heard(endpoint, asks, streamed=True)
    known.heard(endpoint, {**asks, "response_metadata": {"finish_reason": "tool_calls"}}, streamed=True)
    assert known.heard(endpoint, asks, streamed=True)


# --- agents -------------------------------------------------------------------------------------------------------------


class Model(Scripted):
    """A scripted model of a provider, which keeps what is said of the end of an answer; and what it was asked."""

    asked: list[Any]

    def _get_ls_params(self, **kwargs: Any) -> Any:
        return {"ls_provider": "openai", "ls_model_name": "scripted", "ls_model_type": "chat"}

    def _stream(self, messages: Any = None, *args: Any, **kwargs: Any) -> Any:
        self.asked.append(messages)
        return super()._stream()

    async def _astream(self, messages: Any = None, *args: Any, **kwargs: Any) -> Any:
        self.asked.append(messages)
        async for chunk in super()._astream():
            yield chunk

    def _generate(self, messages: Any = None, *args: Any, **kwargs: Any) -> ChatResult:
        added = AIMessageChunk(content="")
        for chunk in self._stream(messages):
            added += chunk.message
        known = {"response_metadata": added.response_metadata, "tool_calls": added.tool_calls}
        return ChatResult(generations=[ChatGeneration(message=AIMessage(content=added.content, **known))])

    async def _agenerate(self, messages: Any = None, *args: Any, **kwargs: Any) -> ChatResult:
        return self._generate(messages)


def says(*calls: tuple[str, str, str], reason: str | None = None, text: str = "") -> list[Any]:
    """An answer in chunks: id, name and arguments of each call, and the reason for its end."""
    chunks = [AIMessageChunk(content=text)]
    for index, (id, name, args) in enumerate(calls):
        for at, half in enumerate((args[:5], args[5:])):
            first = {"name": name, "id": id} if at == 0 else {"name": None, "id": None}
            chunks.append(AIMessageChunk(content="", tool_call_chunks=[tool_call_chunk(**first, args=half, index=index)]))
    if reason:
        chunks.append(AIMessageChunk(content="", response_metadata={"finish_reason": reason}))
    return chunks


def says_whole(id: str) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": "look", "args": {"path": "/tmp/all"}, "id": id}])


CUT = says(("c1", "delete", HALF), reason="length")
EARLY = says(("c1", "delete", HALF))
BATCH = says(("c1", "look", WHOLE), ("c2", "delete", HALF), reason="length", text="Both. ")
DONE = says(text="done", reason="stop")


class Tools(list[tuple[str, str]]):
    """Which tools ran, with what."""

    def made(self) -> list[Any]:
        @tool
        def delete(path: str = "") -> str:
            """Delete it."""
            self.append(("delete", path))
            return "deleted"

        @tool
        def look(path: str = "") -> str:
            """Look at it."""
            self.append(("look", path))
            return "seen"

        return [delete, look]


@pytest.fixture(autouse=True)
def _no_reason_is_known() -> Any:
    known, ENDPOINTS._known = ENDPOINTS._known, set()
    yield
    ENDPOINTS._known = known


@pytest.fixture
def ran() -> Tools:
    return Tools()


@pytest.fixture(params=["stream", "invoke", "astream", "ainvoke"])
def run(request: Any) -> Callable[..., list[Any]]:
    """Ask the graph, in each of its ways; returns the messages that it ends with."""

    def ask(graph: Any, config: Any = None) -> list[Any]:
        inputs: Any = {"messages": [HumanMessage("clean up")]}
        last: Any = {}

        async def astream() -> None:
            async for mode, chunk in graph.astream(inputs, config, stream_mode=["messages", "values"]):
                last.update(chunk if mode == "values" else {})

        if request.param == "stream":
            for mode, chunk in graph.stream(inputs, config, stream_mode=["messages", "values"]):
                last.update(chunk if mode == "values" else {})
        elif request.param == "astream":
            asyncio.run(astream())
        elif request.param == "invoke":
            last = graph.invoke(inputs, config)
        else:
            last = asyncio.run(graph.ainvoke(inputs, config))
        return list(last["messages"])

    return ask


def streamed(request: Any) -> bool:
    """Whether the model of an agent streams: on Python 3.10 no callback reaches it in asynchronous code."""
    way = request.node.callspec.params["run"]
    return way == "stream" or (way == "astream" and sys.version_info >= (3, 11))


def model_of(*scripts: list[Any]) -> Model:
    return Model(scripts=list(scripts), asked=[])


def agent_of(model: Model, ran: Tools, *before: Any, response_format: Any = None, **options: Any) -> Any:
    middleware = [*before, guard.ToolPairGuard(**options)]
    return agents.create_agent(model, ran.made(), middleware=middleware, response_format=response_format)


def shape(messages: list[Any]) -> str:
    """Each message in a word: ai~ is one that was cut off, tool* a result that was made for a call that did not run."""
    return " ".join(one.type + "~" * is_partial(one) + "*" * is_synthetic(one) for one in messages)


@pytest.mark.guarantee("half tool calls")
def test_the_model_is_told_and_goes_on(run: Any, ran: Tools) -> None:
    """By default: no tool, a truthful result, and the next word of the model."""
    model = model_of(CUT, DONE)
    messages = run(agent_of(model, ran))
    assert ran == []
    assert shape(messages) == "human ai~ tool* ai"
    assert messages[1].additional_kwargs["runjournal"]["reason"] == "length"
    assert messages[1].additional_kwargs["runjournal"]["calls"] == [{"id": "c1", "name": "delete", "final": False}]
    assert messages[2].content.startswith("Not executed: the answer ran into its token limit inside this call")
    assert messages[2].status == "error"
    assert [one.type for one in model.asked[1]] == ["human", "ai", "tool"]


def test_an_early_end_shows_in_the_arguments(run: Any, ran: Tools, request: Any) -> None:
    """Without any reason, and from a model of which nothing is known: the text that was streamed does not parse."""
    messages = run(agent_of(model_of(EARLY, DONE), ran))
    if streamed(request):
        assert ran == []
        assert shape(messages) == "human ai~ tool* ai"
        assert messages[2].content.startswith("Not executed: the answer ended early")
    else:
        assert ran == [("delete", "/tmp/a")]  # this model hands over what LangChain's parser made of it, and no text


def test_without_the_guard_half_a_call_runs(run: Any, ran: Tools) -> None:
    """So that the tests here can fail."""
    run(agents.create_agent(model_of(EARLY, DONE), ran.made()))
    assert ran == [("delete", "/tmp/a")]


def test_a_missing_reason_counts_once_one_was_given(run: Any, ran: Tools) -> None:
    """The first answer with a call gives a reason, so the one that gives none has ended early. Its call may look whole."""
    model = model_of(says(("c0", "look", WHOLE), reason="tool_calls"), DONE, says(("c1", "delete", WHOLE)), DONE)
    agent = agent_of(model, ran)
    run(agent)
    assert shape(run(agent)) == "human ai~ tool* ai"
    assert ran == [("look", "/tmp/all")]


def test_calls_of_a_server_that_gives_a_reason_for_words_only_run(run: Any, ran: Tools) -> None:
    """In each turn, though every answer in words has a reason."""
    agent = agent_of(model_of(DONE, says(("c1", "delete", WHOLE)), DONE, says(("c2", "look", WHOLE)), DONE), ran)
    run(agent)
    assert [shape(run(agent)) for _ in range(2)] == ["human ai tool ai"] * 2
    assert ran == [("delete", "/tmp/all"), ("look", "/tmp/all")]


def test_a_model_that_never_gives_a_reason_is_trusted(run: Any, ran: Tools) -> None:
    """A fake, or a server that leaves it out, works as without the guard."""
    messages = run(agent_of(model_of(says(("c1", "delete", WHOLE)), words("done")), ran))
    assert ran == [("delete", "/tmp/all")]
    assert shape(messages) == "human ai tool ai"


@pytest.mark.guarantee("half tool calls")
def test_of_a_batch_none_runs(run: Any, ran: Tools) -> None:
    """The call that came whole gets a result of its own, which says so."""
    messages = run(agent_of(model_of(BATCH, DONE), ran))
    assert ran == []
    assert shape(messages) == "human ai~ tool* tool* ai"
    assert messages[2].content.startswith("Not executed: another call of the same answer was cut off")
    assert "token limit" in messages[3].content
    assert messages[1].content == "Both. "


def test_the_whole_calls_of_a_batch_run_if_asked_for(run: Any, ran: Tools, request: Any, journal: RunJournal) -> None:
    """Also where the graph is attached, which would refuse them by itself."""
    agent = attach(agent_of(model_of(BATCH, DONE), ran, run_whole_calls=True), journal)
    messages = run(agent)
    assert ran == [("look", "/tmp/all")]
    assert sorted(shape(messages).split()) == ["ai", "ai~", "human", "tool", "tool*"]
    assert {one.tool_call_id for one in messages if one.type == "tool"} == {"c1", "c2"}


def test_retry_asks_again(run: Any, ran: Tools, journal: RunJournal) -> None:
    """The state holds the answer that came whole, the journal both."""
    model = model_of(CUT, says(("c2", "delete", WHOLE), reason="tool_calls"), DONE)
    messages = run(attach(agent_of(model, ran, on_cut="retry"), journal))
    assert ran == [("delete", "/tmp/all")]
    assert shape(messages) == "human ai tool ai"
    assert model.asked[0] == model.asked[1]
    if sys.version_info >= (3, 11):
        events = list(journal.read(journal.runs()[0].run_id))
        responses = [event.data for event in events if event.kind == "llm.ai.response"]
        assert [one.get("cut") for one in responses] == [{"cause": "length", "calls": ["c1"]}, None, None]
        assert shape(journal.transcript(journal.runs()[0].run_id)) == "human ai tool ai"


def test_retries_are_bounded_and_then_it_answers(run: Any, ran: Tools) -> None:
    """As often as asked for, and not more."""
    model = model_of(CUT, CUT, DONE)
    assert shape(run(agent_of(model, ran, on_cut="retry", cut_retries=1))) == "human ai~ tool* ai"
    assert [len(one) for one in model.asked] == [1, 1, 3]
    assert ran == []


def test_raise_raises(run: Any, ran: Tools) -> None:
    """The error names the calls and the cause."""
    with pytest.raises(errors.AnswerCut, match=r"delete \(c1\).*token limit") as caught:
        run(agent_of(model_of(CUT, DONE), ran, on_cut="raise"))
    assert caught.value.times == 1
    assert ran == []


@pytest.mark.parametrize(("options", "calls"), [({}, 3), ({"on_cut": "retry"}, 5)])
def test_a_limit_that_is_too_low_ends_in_an_error(run: Any, ran: Tools, options: Any, calls: int) -> None:
    """An agent whose every answer is cut off does not go round for ever."""
    model = model_of(CUT)
    with pytest.raises(errors.AnswerCut, match=f"{calls} time"):
        run(agent_of(model, ran, **options))
    assert len(model.asked) == calls
    assert ran == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"on_cut": "ignore"}, "on_cut does not know the value 'ignore'"),
        ({"cut_retries": -1, "on_cut": "retry"}, "cut_retries must be"),
        ({"run_whole_calls": 1}, "run_whole_calls must be"),
    ],
)
def test_bad_options_are_refused_at_once(options: Any, words: str) -> None:
    """With the name of the option."""
    with pytest.raises(errors.InvalidArgument, match=words):
        guard.ToolPairGuard(**options)


def test_attach_takes_only_true_or_false(journal: RunJournal, ran: Tools) -> None:
    """As for the other options."""
    with pytest.raises(errors.InvalidArgument, match="refuse_cut_calls must be"):
        attach(hand_made(model_of(DONE), ran), journal, refuse_cut_calls="no")  # type: ignore[arg-type]


def test_no_human_is_asked_to_approve_a_cut_call(ran: Tools) -> None:
    """Human-in-the-loop comes after the guard: a person approves what would run."""
    middleware = pytest.importorskip("langchain.agents.middleware")
    ask = middleware.HumanInTheLoopMiddleware({"delete": True})
    agent = agents.create_agent(
        model_of(CUT, DONE), ran.made(), middleware=[ask, guard.ToolPairGuard()], checkpointer=InMemorySaver()
    )
    after = agent.invoke({"messages": [HumanMessage("clean up")]}, THREAD)
    assert "__interrupt__" not in after
    assert shape(after["messages"]) == "human ai~ tool* ai"


def test_a_structured_response_is_not_made_of_half_a_call(run: Any, ran: Tools) -> None:
    """The tool that carries it is a tool call like any other."""
    structured = pytest.importorskip("langchain.agents.structured_output")
    schema = {"title": "Report", "type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
    cut = says(("c1", "Report", HALF), reason="length")
    whole = says(("c2", "Report", WHOLE), reason="tool_calls")
    agent = agent_of(model_of(cut, whole), ran, response_format=structured.ToolStrategy(schema))
    messages = run(agent)
    assert shape(messages) == "human ai~ tool* ai tool"


def test_the_next_turn_sends_the_pair_as_it_stands(ran: Tools) -> None:
    """The call with its truthful result, once; no note says it a second time."""
    model = model_of(CUT, DONE, says(text="hi", reason="stop"))
    agent = agents.create_agent(model, ran.made(), middleware=[guard.ToolPairGuard()], checkpointer=InMemorySaver())
    agent.invoke({"messages": [HumanMessage("clean up")]}, THREAD)
    agent.invoke({"messages": [HumanMessage("thanks")]}, THREAD)
    assert shape(model.asked[-1]) == "human ai~ tool* ai human"
    assert model.asked[-1][-1].content == "thanks"


@pytest.mark.filterwarnings("ignore:The v3 streaming protocol")
@pytest.mark.skipif(sys.version_info < (3, 11), reason="no callback reaches the model there")
@pytest.mark.parametrize(("asked", "expected"), [(EARLY, []), (says(("c1", "delete", WHOLE)), [("delete", "/tmp/all")])])
def test_models_that_stream_events_are_heard_as_well(ran: Tools, asked: Any, expected: Any) -> None:
    """The v3 protocol of LangChain has deltas of its own."""

    async def ask(agent: Any) -> list[Any]:
        stream = await agent.astream_events({"messages": [HumanMessage("clean up")]}, version="v3")
        return list((await stream.output())["messages"])

    messages = asyncio.run(ask(agent_of(model_of(asked, words("done")), ran)))
    assert ran == expected
    if expected:
        assert shape(messages) == "human ai tool ai"


def test_the_deltas_of_events_count_and_not_what_closes_them() -> None:
    """A client that makes a whole call of what came, as LangChain does with chunks, is not believed."""
    heard, run_id = Heard(), uuid4()
    heard.on_chat_model_start({}, [[]], run_id=run_id)
    start = {"type": "tool_call_chunk", "id": "c1", "name": "delete", "args": ""}
    closed = {"type": "tool_call", "id": "c1", "name": "delete", "args": {"path": "/tmp/a"}}
    for event in (
        {"event": "content-block-start", "index": 0, "content": start},
        {"event": "content-block-delta", "index": 0, "delta": {"type": "tool-call-delta", "args": HALF}},
        {"event": "content-block-finish", "index": 0, "content": closed},
    ):
        heard.on_stream_event(event, run_id=run_id)
    message = AIMessage("", tool_calls=[{"id": "c1", "name": "delete", "args": {"path": "/tmp/a"}}], id="m")
    heard.on_llm_end(LLMResult(generations=[[ChatGeneration(message=message)]]), run_id=run_id)
    cut = heard.verdict(message)
    assert cut is not None
    assert cut.broken == {"c1"}


def test_what_cannot_be_read_at_all_is_answered_as_well(ran: Tools) -> None:
    """A client that does not stream leaves half a call among the invalid ones: the agent would end without a word."""

    class Invalid(Model):
        def _generate(self, messages: Any = None, *args: Any, **kwargs: Any) -> ChatResult:
            result = super()._generate(messages)
            message = result.generations[0].message
            if isinstance(message, AIMessage) and message.tool_calls:
                bad = [{"name": "delete", "args": HALF, "id": "c1", "error": None, "type": "invalid_tool_call"}]
                message.tool_calls, message.invalid_tool_calls = [], bad  # type: ignore[assignment]
            return result

    messages = agent_of(Invalid(scripts=[CUT, DONE], asked=[]), ran).invoke({"messages": [HumanMessage("clean up")]})[
        "messages"
    ]
    assert shape(messages) == "human ai~ tool* ai"
    assert messages[1].tool_calls == [{"name": "delete", "args": {}, "id": "c1", "type": "tool_call"}]
    assert not messages[1].invalid_tool_calls


@pytest.mark.parametrize("version", ["v0", "v1"])
@pytest.mark.parametrize("cause", ["incomplete", "length"])
def test_nothing_refers_to_a_response_that_was_not_stored(version: str, cause: str) -> None:
    """Of OpenAI's Responses: an answer that ended early leaves no id of an item; one at its limit is stored."""
    adapter = pytest.importorskip("langchain_openai")
    call: Any = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "delete", "arguments": HALF}
    if version == "v1":
        call = {"type": "tool_call", "id": "c1", "name": "delete", "args": {"path": "/tmp/a"}, "extras": {"item_id": "fc_1"}}
    summary = {"summary": []} if version == "v0" else {"reasoning": "Hm"}
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "x"}}
    text = {"type": "text", "text": "Both.", "id": "msg_1", "annotations": []}
    message = AIMessage(
        [{"type": "reasoning", "id": "rs_1", **summary}, *([search] if version == "v0" else []), text, call],
        tool_calls=[{"id": "c1", "name": "delete", "args": {"path": "/tmp/a"}}],
        response_metadata={"id": "resp_1", "model_provider": "openai", "output_version": version}
        | ({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}} if cause == "length" else {}),
    )
    cut = find_cut(vars(message), {"c1": HALF})
    assert cut is not None
    assert cut.cause == cause
    asking = cut_message(message, cut)
    model = adapter.ChatOpenAI(model="gpt-5", api_key="none", use_responses_api=True, use_previous_response_id=True)
    sent = json.dumps(model._get_request_payload([HumanMessage("go"), asking, *cut_results(asking, cut, run_whole=False)]))
    assert '"c1"' in sent
    assert "Both." in sent or cause == "length"
    assert [id for id in ("rs_1", "ws_1", "msg_1", "fc_1") if id in sent] == []
    assert ("resp_1" in sent) == (cause == "length")
    kept = [block["type"] for block in asking.content]
    assert ("reasoning" in kept) == (cause == "length")


# --- attached graphs ----------------------------------------------------------------------------------------------------


def hand_made(model: Model, ran: Tools, interrupt_before: Any = None, **options: Any) -> Any:
    """A graph without a guard."""

    def ask(state: Any, config: RunnableConfig) -> Any:
        return {"messages": [model.invoke(state["messages"], config)]}

    graph = StateGraph(MessagesState)
    graph.add_node("model", ask)
    graph.add_node("tools", ToolNode(ran.made(), **options))
    graph.add_edge(START, "model").add_conditional_edges("model", tools_condition).add_edge("tools", "model")
    return graph.compile(checkpointer=InMemorySaver(), interrupt_before=interrupt_before)


def streams(graph: Any, config: Any = THREAD) -> list[Any]:
    """The messages that it ends with; its model streams."""
    last: Any = {}
    inputs = {"messages": [HumanMessage("clean up")]}
    for mode, chunk in graph.stream(inputs, config, stream_mode=["messages", "values"]):
        last.update(chunk if mode == "values" else {})
    return list(last["messages"])


def test_an_attached_graph_refuses_cut_calls(ran: Tools, journal: RunJournal) -> None:
    """All of the batch: `ToolNode` makes results of it, and the model goes on."""
    messages = streams(attach(hand_made(model_of(BATCH, DONE), ran), journal))
    assert ran == []
    results = {one.tool_call_id: one for one in messages if isinstance(one, ToolMessage)}
    assert results["c1"].content.startswith("Not executed: another call of the same answer was cut off")
    assert results["c2"].content.startswith("Not executed: the answer ran into its token limit")
    assert {one.status for one in results.values()} == {"error"}
    assert messages[-1].content == "done"


def test_its_events_and_its_transcript_say_so(ran: Tools, journal: RunJournal) -> None:
    """The call has ended, and what it gave is kept whole: `llm.ai.response` with `cut`. No tool is recorded as begun."""
    streams(attach(hand_made(model_of(EARLY, DONE), ran), journal))
    run_id = journal.runs()[0].run_id
    events = list(journal.read(run_id))
    assert [one.data.get("cut") for one in events if one.kind == "llm.ai.response"] == [
        {"cause": "incomplete", "calls": ["c1"]},
        None,
    ]
    assert not [one for one in events if one.kind == "tool.start"]
    recorded = journal.transcript(run_id)
    assert shape(recorded) == "human ai~ tool ai"
    assert recorded[1].additional_kwargs["runjournal"]["reason"] == "incomplete"
    assert recorded[1].additional_kwargs["runjournal"]["calls"] == [{"id": "c1", "name": "delete", "final": False}]


def test_the_picture_of_a_run_says_why(ran: Tools, journal: RunJournal) -> None:
    """Of the call that was cut off, and of no other."""
    streams(attach(hand_made(model_of(CUT, DONE), ran), journal))
    run = journal.runs()[0]
    line = timeline(run, list(journal.read(run.run_id)))
    assert [(one.outcome, one.cause) for one in line.models] == [("complete", "length"), ("complete", None)]


def test_the_command_line_says_what_became_of_the_call(ran: Tools, tmp_path: Path) -> None:
    """Once, and without a result: here the refusal ended the run."""
    pytest.importorskip("click")
    from tests.support.command_line import run as command

    with RunJournal(tmp_path / "runs.db") as journal:
        graph = attach(hand_made(model_of(CUT, DONE), ran, handle_tool_errors=False), journal)
        with pytest.raises(errors.CallCut):
            streams(graph)
        run_id = journal.runs()[0].run_id
    shown = command("--journal", str(tmp_path / "runs.db"), "transcript", run_id).stdout
    assert "ai (cut off: length)" in shown
    assert shown.count("→ delete") == 1
    assert "← not begun: the answer was cut off (length)" in shown


def test_the_transcript_of_a_guarded_agent_is_its_thread(ran: Tools, journal: RunJournal) -> None:
    """The marked answer, its results, and what came after."""
    agent = attach(agent_of(model_of(BATCH, DONE), ran), journal)
    thread = streams(agent, None)
    recorded = journal.transcript(journal.runs()[0].run_id)
    assert [(one.type, one.text, one.id) for one in recorded[1:]] == [(one.type, one.text, one.id) for one in thread[1:]]
    assert shape(recorded) == shape(thread) == "human ai~ tool* tool* ai"


def test_a_handler_alone_changes_nothing(ran: Tools, journal: RunJournal) -> None:
    """It records that the answer was cut, and that the tool ran all the same."""
    graph = hand_made(model_of(EARLY, DONE), ran)
    streams(graph, {**THREAD, "callbacks": [JournalCallbackHandler(journal)]})
    assert ran == [("delete", "/tmp/a")]
    assert [one.data["cut"] for one in journal.read(journal.runs()[0].run_id) if "cut" in one.data]


def test_it_can_be_told_not_to(ran: Tools, journal: RunJournal) -> None:
    """For an endpoint that is judged wrongly."""
    streams(attach(hand_made(model_of(EARLY, DONE), ran), journal, refuse_cut_calls=False))
    assert ran == [("delete", "/tmp/a")]


def test_where_errors_are_not_handled_the_run_fails_with_a_clear_one(ran: Tools, journal: RunJournal) -> None:
    """The tool has not run, and the thread says so after the settlement."""
    graph = attach(hand_made(model_of(EARLY, DONE), ran, handle_tool_errors=False), journal)
    with pytest.raises(errors.CallCut, match="c1 of tool delete"):
        streams(graph)
    assert ran == []
    settled = graph.get_state(THREAD).values["messages"]
    assert shape(settled) == "human ai tool*"
    assert settled[-1].content.startswith("Not executed: the answer ended early")


def test_an_id_that_comes_again_is_another_call(ran: Tools, journal: RunJournal) -> None:
    """The model makes the call again, whole, under the same id."""
    messages = streams(attach(hand_made(model_of(EARLY, says(("c1", "delete", WHOLE)), DONE), ran), journal))
    assert ran == [("delete", "/tmp/all")]
    assert [one.content[:7] for one in messages if one.type == "tool"] == ["Not exe", "deleted"]


def test_an_id_that_comes_again_elsewhere_is_another_call(ran: Tools, journal: RunJournal) -> None:
    """Here a node writes it, without a model. Kimi's ids are `functions.look:0`, in each of two agents in one thread."""
    model = model_of(CUT, DONE)
    answers = iter([None, None, says_whole("c1"), AIMessage("end")])

    def ask(state: Any, config: RunnableConfig) -> Any:
        return {"messages": [next(answers) or model.invoke(state["messages"], config)]}

    graph = StateGraph(MessagesState).add_node("model", ask).add_node("tools", ToolNode(ran.made()))
    graph.add_edge(START, "model").add_conditional_edges("model", tools_condition).add_edge("tools", "model")
    attached = attach(graph.compile(checkpointer=InMemorySaver()), journal)
    streams(attached)
    streams(attached)
    assert ran == [("look", "/tmp/all")]


@pytest.mark.parametrize("again", [False, True], ids=["in-this-process", "read-in-the-journal"])
@pytest.mark.parametrize(("half", "edited"), [(HALF, "/tmp/a/cache"), ('{"pa', "/tmp/a/cache"), (HALF, None)])
def test_a_call_that_somebody_has_edited_runs(
    ran: Tools, tmp_path: Path, half: str, edited: str | None, again: bool
) -> None:
    """The answer was cut, the graph waited, and a human has made the call whole: it is no longer the model's."""
    graph = hand_made(model_of(says(("c1", "delete", half), reason="length"), DONE), ran, interrupt_before=["tools"])
    with RunJournal(tmp_path / "runs.db") as journal:
        attached = attach(graph, journal)
        streams(attached)
        asking = attached.get_state(THREAD).values["messages"][-1]
        call = {**asking.tool_calls[0], "args": {"path": edited}}
        if edited is not None:
            attached.update_state(THREAD, {"messages": [AIMessage("", id=asking.id, tool_calls=[call])]})
        if not again:
            attached.invoke(None, THREAD)
    if again:
        with RunJournal(tmp_path / "runs.db") as journal:
            attach(graph, journal).invoke(None, THREAD)
    assert ran == ([] if edited is None else [("delete", edited)])


def test_another_call_under_the_same_id_does_not_let_the_cut_one_run(ran: Tools, journal: RunJournal) -> None:
    """Two branches of a thread: the whole answer of one comes between the cut answer of the other and its tool."""

    def ask(state: Any, config: RunnableConfig) -> Any:
        cut = cutting.invoke(state["messages"], config)
        whole.invoke(state["messages"], config)
        return {"messages": [cut]}

    cutting, whole = model_of(CUT, DONE), model_of(says(("c1", "look", WHOLE), reason="tool_calls"), DONE)
    graph = StateGraph(MessagesState).add_node("model", ask).add_node("tools", ToolNode(ran.made()))
    graph.add_edge(START, "model").add_conditional_edges("model", tools_condition).add_edge("tools", "model")
    streams(attach(graph.compile(checkpointer=InMemorySaver()), journal))
    assert ran == []


EDIT = {"type": "edit", "edited_action": {"name": "delete", "args": {"path": "/b"}}}


@pytest.mark.parametrize(("decision", "expected"), [(EDIT, [("delete", "/b")]), ({"type": "approve"}, [])])
def test_a_human_may_edit_a_cut_call(ran: Tools, journal: RunJournal, decision: Any, expected: Any) -> None:
    """Where no guard keeps it from being asked about. Approved as it stands, it does not run."""
    ask = pytest.importorskip("langchain.agents.middleware").HumanInTheLoopMiddleware({"delete": True})
    agent = agents.create_agent(model_of(CUT, DONE), ran.made(), middleware=[ask], checkpointer=InMemorySaver())
    attached = attach(agent, journal)
    streams(attached)
    attached.invoke(Command(resume={"decisions": [decision]}), THREAD)
    assert ran == expected


def test_a_run_that_takes_up_another_refuses_as_well(ran: Tools, journal: RunJournal) -> None:
    """The answer was cut, then the graph waited before its tools."""
    graph = attach(hand_made(model_of(EARLY, DONE), ran, interrupt_before=["tools"]), journal)
    streams(graph)
    after = graph.invoke(None, THREAD)
    assert ran == []
    assert [one.content[:12] for one in after["messages"] if one.type == "tool"] == ["Not executed"]


def test_another_process_that_takes_a_thread_up_refuses_as_well(ran: Tools, tmp_path: Path) -> None:
    """It reads in the journal what was cut."""
    graph = hand_made(model_of(EARLY, DONE), ran, interrupt_before=["tools"])
    with RunJournal(tmp_path / "runs.db") as journal:
        streams(attach(graph, journal))
    with RunJournal(tmp_path / "runs.db") as journal:
        after = attach(graph, journal).invoke(None, THREAD)
    assert ran == []
    assert [one.content[:12] for one in after["messages"] if one.type == "tool"] == ["Not executed"]


def test_what_was_cut_is_not_run_by_a_resume(ran: Tools, tmp_path: Path) -> None:
    """The run failed at the refusal; `resume_config` leads back to where the tool was about to run."""
    graph = hand_made(model_of(EARLY, DONE), ran, handle_tool_errors=False)
    with RunJournal(tmp_path / "runs.db") as journal:
        with pytest.raises(errors.CallCut):
            streams(attach(graph, journal))
        run_id = journal.runs()[0].run_id
    with RunJournal(tmp_path / "runs.db") as journal:
        attached = attach(graph, journal)
        with pytest.raises(errors.CallCut):
            attached.invoke(None, journal.resume_config(run_id))
    assert ran == []


def test_a_node_that_calls_tools_itself_gets_the_error(ran: Tools, journal: RunJournal) -> None:
    """A program without `ToolNode` catches it itself."""
    model = model_of(EARLY, DONE)

    def work(state: Any, config: RunnableConfig) -> Any:
        answer = model.invoke(state["messages"], config)
        for call in answer.tool_calls:
            ran.made()[0].invoke({**call, "type": "tool_call"}, config)
        return {"messages": [answer]}

    graph = StateGraph(MessagesState).add_node("work", work).add_edge(START, "work").compile()
    with pytest.raises(errors.CallCut, match="ended early"):
        streams(attach(graph, journal), None)
    assert ran == []


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
def test_the_wrapper_needs_no_journal(ran: Tools, way: str) -> None:
    """For a `ToolNode` of a graph that is not attached: by the message in the state."""
    options = {"wrap_tool_call": guard.refuse_cut_call, "awrap_tool_call": guard.arefuse_cut_call}
    graph = hand_made(model_of(BATCH, says(("c3", "look", WHOLE), reason="tool_calls"), DONE), ran, **options)
    inputs: Any = {"messages": [HumanMessage("clean up")]}
    after = graph.invoke(inputs, THREAD) if way == "invoke" else asyncio.run(graph.ainvoke(inputs, THREAD))
    assert ran == [("look", "/tmp/all")]
    assert shape(after["messages"]) == "human ai tool* tool* ai tool ai"


def test_a_name_that_guard_does_not_have_is_an_error() -> None:
    """And not None."""
    with pytest.raises(AttributeError, match="nothing_of_that_name"):
        _ = guard.nothing_of_that_name
