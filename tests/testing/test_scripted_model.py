"""`testing.ScriptedChatModel`: it streams as a provider does, and fails as one does."""

from __future__ import annotations

import asyncio
import copy
import gc
import pickle
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from types import MappingProxyType
from typing import Any

import pytest
from langchain_core.caches import InMemoryCache
from langchain_core.globals import get_llm_cache, set_llm_cache
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, ToolMessage
from langchain_core.tools import tool

from langchain_runjournal import JournalCallbackHandler, RunJournal, errors, is_partial
from langchain_runjournal.testing import Call, Reasoning, ScriptedChatModel, Wait


@tool
def weather(city: str) -> str:
    """What the weather is like."""
    return f"sunny in {city}"


def chunks_of(model: ScriptedChatModel, how: str, given: Any = "Hello") -> list[AIMessageChunk]:
    if how == "stream":
        return list(model.stream(given))

    async def collected() -> list[AIMessageChunk]:
        return [chunk async for chunk in model.astream(given)]

    return asyncio.run(collected())


def whole(chunks: list[AIMessageChunk]) -> AIMessageChunk:
    added = chunks[0]
    for chunk in chunks[1:]:
        added += chunk
    return added


def invoked(model: ScriptedChatModel, how: str) -> AIMessage:
    return model.invoke("Hello") if how == "invoke" else asyncio.run(model.ainvoke("Hello"))


BOTH = pytest.mark.parametrize("how", ["stream", "astream"])


@BOTH
def test_a_text_comes_word_by_word(how: str) -> None:
    """Nothing is added and nothing lost, white space included; the last chunk is empty and marked as the last."""
    text = "  Stop loses\nnothing,  not even  "
    chunks = chunks_of(ScriptedChatModel([text]), how)
    assert [chunk.text for chunk in chunks] == ["  Stop ", "loses\n", "nothing,  ", "not ", "even  ", ""]
    assert "".join(chunk.text for chunk in chunks) == text
    assert [chunk.chunk_position for chunk in chunks] == [None] * 5 + ["last"]
    assert len({chunk.id for chunk in chunks}) == 1


@BOTH
def test_reasoning_comes_in_a_block_of_its_own(how: str) -> None:
    """Before the words, which are then content blocks as well."""
    message = whole(chunks_of(ScriptedChatModel([[Reasoning("Two cities, so two calls."), "Let me look."]]), how))
    assert [(block["type"], block[str(block["type"])]) for block in message.content if isinstance(block, dict)] == [
        ("reasoning", "Two cities, so two calls."),
        ("text", "Let me look."),
    ]
    assert message.text == "Let me look."


OSLO, ROME = Call("weather", {"city": "Oslo"}), Call("weather", {"city": "Rome"})
LOOKING = [Reasoning("Two cities, "), Reasoning("two calls."), "Let me ", Wait(0), "look. ", OSLO, ROME]
SHAPES: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "plain": (["Let me look. ", OSLO, ROME], {}),
    "text behind": (["Let me ", OSLO, ROME, "look. "], {}),
    "reasoning": (LOOKING, {}),
    "blocks": (["Let me ", OSLO, "look. ", ROME], {"blocks": True}),
    "calls alone": ([OSLO, ROME], {"blocks": True}),
}


@pytest.mark.parametrize("how", ["stream", "events", "invoke"])
@pytest.mark.parametrize("version", [None, "v1"])
@pytest.mark.parametrize("shape", SHAPES)
def test_no_block_takes_the_place_of_another(shape: str, version: str | None, how: str) -> None:
    """Words, thinking and calls all arrive, however LangChain puts them together."""
    answer, fields = SHAPES[shape]
    model = ScriptedChatModel([answer], output_version=version, **fields)
    if how == "events":
        message = model.stream_events("Hello", version="v3").output
    else:
        message = whole(list(model.stream("Hello"))) if how == "stream" else model.invoke("Hello")
    blocks = message.content_blocks
    assert {"type": "text", "text": ""} not in blocks
    assert "".join(block["text"] for block in blocks if block["type"] == "text") == message.text
    assert message.text == ("" if shape == "calls alone" else "Let me look. ")
    assert [block["reasoning"] for block in blocks if block["type"] == "reasoning"] == (
        ["Two cities, two calls."] if shape == "reasoning" else []
    )
    assert [block["args"] for block in blocks if block["type"] == "tool_call"] == [{"city": "Oslo"}, {"city": "Rome"}]
    assert [call["args"] for call in message.tool_calls] == [{"city": "Oslo"}, {"city": "Rome"}]


@BOTH
def test_the_blocks_of_a_message_are_numbered_in_one_sequence(how: str) -> None:
    """As providers number them: a silence or a function begins no new block, a call takes its place among them."""
    steps = [*LOOKING, "Then ", lambda: None, "", "more."]
    chunks = chunks_of(ScriptedChatModel([steps]), how)
    assert [block["index"] for block in whole(chunks).content if isinstance(block, dict)] == [0, 1, 4]
    calls = {fragment["index"] for chunk in chunks for fragment in chunk.tool_call_chunks}
    assert calls == {2, 3}
    assert whole(chunks).text == "Let me look. Then more."


def test_a_plain_text_is_the_first_block() -> None:
    """Calls beside it are numbered from 1: LangChain counts the text as 0."""
    chunks = chunks_of(ScriptedChatModel([["Let me look. ", OSLO, ROME]]), "stream")
    assert {fragment["index"] for chunk in chunks for fragment in chunk.tool_call_chunks} == {1, 2}


@BOTH
def test_tool_calls_come_in_fragments(how: str) -> None:
    """The name first, then pieces of the arguments; together they are calls that can be run."""
    cities = ["Oslo", "Llanfairpwllgwyngyll"]
    chunks = chunks_of(ScriptedChatModel([["Looking. ", *(Call("weather", {"city": city}) for city in cities)]]), how)
    fragments = [fragment for chunk in chunks for fragment in chunk.tool_call_chunks]
    assert len(fragments) > 4
    assert fragments[0]["name"] == "weather"
    assert fragments[0]["args"] == ""
    message = whole(chunks)
    assert [(call["id"], call["args"]) for call in message.tool_calls] == [
        ("call_1_0", {"city": cities[0]}),
        ("call_1_1", {"city": cities[1]}),
    ]
    assert message.response_metadata["finish_reason"] == "tool_calls"


def test_arguments_that_are_no_json_come_as_they_are() -> None:
    """As a model that makes a mistake gives them."""
    message = ScriptedChatModel([[Call("weather", "{city: Oslo}", id="c1")]]).invoke("Hello")
    assert message.tool_calls == []
    (invalid,) = message.invalid_tool_calls
    assert (invalid["id"], invalid["args"]) == ("c1", "{city: Oslo}")


def test_arguments_may_be_any_mapping() -> None:
    """Also one that is read-only."""
    message = ScriptedChatModel([[Call("weather", MappingProxyType({"city": "Oslo"}))]]).invoke("Hello")
    assert message.tool_calls[0]["args"] == {"city": "Oslo"}


@pytest.mark.parametrize("how", ["invoke", "ainvoke"])
def test_invoke_gives_the_same_message(how: str) -> None:
    """All of it at once, as an AIMessage."""
    script = [Reasoning("Hm."), "Let me look. ", Call("weather", {"city": "Oslo"})]
    message = invoked(ScriptedChatModel([script]), how)
    assert type(message) is AIMessage
    streamed = whole(chunks_of(ScriptedChatModel([script]), "stream"))
    assert (message.content, message.tool_calls) == (streamed.content, streamed.tool_calls)
    assert message.usage_metadata == streamed.usage_metadata


def test_usage_comes_with_the_last_chunk_or_not_at_all() -> None:
    """The words that were sent, and the chunks that were said."""
    *_, last = ScriptedChatModel(["a b c"]).stream("one two")
    assert last.usage_metadata == {"input_tokens": 2, "output_tokens": 3, "total_tokens": 5}
    *_, last = ScriptedChatModel(["a b c"], usage=False).stream("one two")
    assert last.usage_metadata is None


@BOTH
def test_an_exception_is_raised_where_it_stands(how: str) -> None:
    """What was said before it has been heard; what stands behind it never is. The next answer is well."""
    model = ScriptedChatModel([["It will ", ConnectionError("the stream was dropped"), "rain."], "Fine."])
    heard: list[str] = []

    async def alisten() -> None:
        nonlocal heard
        async for chunk in model.astream("Hello"):
            heard += [chunk.text]

    def listen() -> None:
        nonlocal heard
        for chunk in model.stream("Hello"):
            heard += [chunk.text]

    with pytest.raises(ConnectionError, match="dropped"):
        listen() if how == "stream" else asyncio.run(alisten())
    assert heard == ["It ", "will "]
    assert "".join(chunk.text for chunk in chunks_of(model, how)) == "Fine."


def test_a_function_holds_an_answer_in_the_middle() -> None:
    """A test of a Stop button needs no sleep: the answer waits until the test has stopped it."""

    async def main() -> None:
        reached, never = asyncio.Event(), asyncio.Event()
        model = ScriptedChatModel([["Stop loses ", reached.set, never.wait, "nothing."]])
        with RunJournal(":memory:") as journal:

            async def listen() -> None:
                async for _ in model.astream("Hello", {"callbacks": [JournalCallbackHandler(journal)]}):
                    pass

            listening = asyncio.create_task(listen())
            await reached.wait()
            listening.cancel()
            with pytest.raises(asyncio.CancelledError):
                await listening
            (run,) = await journal.aruns()
            partial = (await journal.atranscript(run.run_id))[-1]
            assert (run.status, run.cause, partial.text) == ("interrupted", "stop", "Stop loses ")
            assert is_partial(partial)

    asyncio.run(main())


def test_something_to_await_needs_an_asynchronous_call() -> None:
    """A synchronous one says so, rather than going on at once; and nothing is left that was never awaited."""
    with pytest.raises(errors.InvalidArgument, match="synchronous"):
        ScriptedChatModel([["a", asyncio.Event().wait]]).invoke("Hello")
    gc.collect()  # what was never awaited warns here, and a warning fails the test


@BOTH
def test_pauses_are_made(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pace between chunks, and silences in an answer."""
    slept: list[float] = []

    async def asleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(time, "sleep", slept.append)
    monkeypatch.setattr(asyncio, "sleep", asleep)
    chunks_of(ScriptedChatModel([["one ", Wait(7.5), "two"]], pace=0.25), how)
    assert slept == [0.25, 7.5, 0.25, 0.25]


def test_a_script_that_is_at_its_end_says_so() -> None:
    """Rather than saying something again that the test does not expect."""
    model = ScriptedChatModel(["one"])
    model.invoke("Hello")
    with pytest.raises(errors.ScriptEnded, match="It has 1 answer, and"):
        model.invoke("Hello")


def test_a_function_answers_what_comes() -> None:
    """It is given the messages; an answer that is none is refused."""
    model = ScriptedChatModel(lambda messages: f"{len(messages)}: {messages[-1].text}")
    assert model.invoke("Hello").text == "1: Hello"
    assert model.invoke([HumanMessage("a"), AIMessage("b"), HumanMessage("c")]).text == "3: c"
    with pytest.raises(errors.InvalidArgument, match="a step of the script"):
        ScriptedChatModel(lambda messages: [3]).invoke("Hello")  # type: ignore[list-item, return-value]


def test_what_was_sent_can_be_looked_at() -> None:
    """A list of messages for each request, also through bound tools."""
    model = ScriptedChatModel(["a", "b"])
    model.bind_tools([weather]).invoke("one")
    model.invoke("two")
    assert [[message.text for message in sent] for sent in model.requests] == [["one"], ["two"]]


ASKING = AIMessage("", id="m", tool_calls=[{"id": "c1", "name": "weather", "args": {"city": "Oslo"}}])
RESULT = ToolMessage("sunny", tool_call_id="c1")


@pytest.mark.parametrize(
    ("history", "problem"),
    [
        ([HumanMessage("a"), ASKING, HumanMessage("b")], "has no result"),
        ([HumanMessage("a"), RESULT, HumanMessage("b")], "c1"),
        ([HumanMessage("a"), ASKING, HumanMessage("b"), RESULT], "right behind"),
    ],
)
def test_what_providers_refuse_is_refused(history: list[Any], problem: str) -> None:
    """A request without its result, a result without its request, one that stands elsewhere; unless it is not strict."""
    model = ScriptedChatModel(["Fine.", "Fine."])
    with pytest.raises(errors.RequestRefused, match=problem):
        model.invoke(history)
    assert model.requests[-1] == history
    assert ScriptedChatModel(["Fine."], strict=False).invoke(history).text == "Fine."
    assert model.invoke([HumanMessage("a"), ASKING, RESULT, HumanMessage("b")]).text == "Fine."


@pytest.mark.parametrize("script", ["Hello", [3], [[3]], [["a", ValueError]], 7])
def test_a_script_that_is_none_is_refused_at_once(script: Any) -> None:
    """With what a script is made of."""
    with pytest.raises(errors.InvalidArgument, match="script"):
        ScriptedChatModel(script)


def test_an_exception_is_an_instance() -> None:
    """A class is refused, with what to give instead."""
    with pytest.raises(errors.InvalidArgument, match="an instance, not its class"):
        ScriptedChatModel([["a", ValueError]])  # type: ignore[list-item]


def test_no_cache_answers_in_its_place() -> None:
    """Neither with what it has said before nor with what another script says."""
    before = get_llm_cache()
    set_llm_cache(InMemoryCache())
    try:
        model = ScriptedChatModel(["one", "two"])
        said = [one.invoke("Hello").text for one in (model, model, ScriptedChatModel(["three"]))]
    finally:
        set_llm_cache(before)
    assert said == ["one", "two", "three"]
    assert len(model.requests) == 2


def test_many_threads_get_an_answer_each() -> None:
    """None twice, none left out."""
    model = ScriptedChatModel([str(number) for number in range(200)])
    with ThreadPoolExecutor(4) as threads:
        answers = threads.map(lambda _: model.invoke("Hello").text, range(200))
        assert sorted(map(int, answers)) == list(range(200))


def test_an_agent_follows_it() -> None:
    """`create_agent` binds tools, calls them, and sends their results."""
    agents = pytest.importorskip("langchain.agents")
    model = ScriptedChatModel([["Looking. ", Call("weather", {"city": "Oslo"})], "Sunny, then."])
    state = agents.create_agent(model, [weather]).invoke({"messages": [("user", "Oslo?")]})
    assert [message.text for message in state["messages"]] == ["Oslo?", "Looking. ", "sunny in Oslo", "Sunny, then."]
    assert [message.type for message in model.requests[1]] == ["human", "ai", "tool"]


@pytest.mark.parametrize(
    "make",
    [
        lambda: ScriptedChatModel(["a"], pac=3),
        lambda: ScriptedChatModel(["a"], pace=-1),
        lambda: ScriptedChatModel(["a"], pace=float("nan")),
        lambda: Call("weather", {"on": date(2026, 1, 1)}),
        lambda: Call("weather", None),  # type: ignore[arg-type]
        lambda: Call("weather", ["Oslo"]),  # type: ignore[arg-type]
        lambda: Wait(-1),
        lambda: Wait("long"),  # type: ignore[arg-type]
    ],
)
def test_what_would_fail_later_is_refused_at_once(make: Any) -> None:
    """A field that there is not, a time that is none."""
    with pytest.raises(errors.InvalidArgument):
        make()


def test_a_function_that_has_to_be_awaited_is_refused() -> None:
    """LangChain asks from synchronous code too."""

    async def answer(messages: Any) -> str:
        return "a"

    with pytest.raises(errors.InvalidArgument, match="without being awaited"):
        ScriptedChatModel(answer)


COPIES = {
    "deepcopy": copy.deepcopy,
    "model_copy": lambda model: model.model_copy(deep=True),
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
}


@pytest.mark.parametrize("how", COPIES)
def test_a_copy_goes_on_where_the_original_was(how: str) -> None:
    """By itself, with what was sent until then. Nothing of it is deprecated."""
    model = ScriptedChatModel(["a", "b", ["c ", OSLO]])
    model.invoke("one")
    other = COPIES[how](model)
    assert [other.invoke("two").text, other.invoke("three").text] == ["b", "c "]
    assert model.invoke("four").text == "b"
    assert [sent[0].text for sent in model.requests] == ["one", "four"]
    assert [sent[0].text for sent in other.requests] == ["one", "two", "three"]


def test_a_shallow_copy_goes_on_together_with_the_original() -> None:
    """One script, one record."""
    model = ScriptedChatModel(["a", "b"])
    other = model.model_copy(update={"pace": 0.001})
    assert [model.invoke("one").text, other.invoke("two").text] == ["a", "b"]
    assert len(model.requests) == len(other.requests) == 2


@pytest.mark.parametrize("how", ["deepcopy", "model_copy"])
def test_a_copy_sets_the_events_of_the_test(how: str) -> None:
    """Which no copy of the event would tell."""
    reached = threading.Event()
    COPIES[how](ScriptedChatModel([["a", reached.set]])).invoke("Hello")
    assert reached.is_set()


def test_requests_stay_as_they_were_sent() -> None:
    """Whatever is done to the messages afterwards, and to the list."""
    artifact = threading.Lock()  # nothing that can be copied
    asking = AIMessage(
        [{"type": "text", "text": "Looking."}], tool_calls=[{"id": "c1", "name": "w", "args": {"city": "Oslo"}}]
    )
    messages = [HumanMessage("one"), asking, ToolMessage("sunny", tool_call_id="c1", artifact=artifact)]
    model = ScriptedChatModel(["Fine.", "Fine."])
    model.invoke(messages)
    messages[0].content = "two"
    asking.content[0]["text"] = "Changed."  # type: ignore[index]
    asking.tool_calls[0]["args"]["city"] = "Rome"
    model.requests.clear()
    model.requests[0].clear()
    ((question, asked, result),) = model.requests
    assert (question.text, asked.text, asked.tool_calls[0]["args"]) == ("one", "Looking.", {"city": "Oslo"})
    assert (type(asked), result.artifact) == (AIMessage, artifact)


def test_no_two_calls_have_one_id() -> None:
    """Also where each request has a history of the same length, and where another process has begun the thread."""
    model = ScriptedChatModel([[OSLO, ROME], [OSLO], [OSLO]])
    ids = [call["id"] for given in ("one", "two") for call in model.invoke(given).tool_calls]
    longer = [HumanMessage("a"), AIMessage("b")] * 3
    ids += [call["id"] for call in model.invoke(longer).tool_calls]
    assert ids == ["call_1_0", "call_1_1", "call_2_0", "call_6_0"]
