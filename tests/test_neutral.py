"""What a program sees of its own graph is the same with the journal as without it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any
from uuid import UUID

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.output_parsers import CommaSeparatedListOutputParser, JsonOutputParser, StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import Runnable, RunnableConfig, RunnableGenerator, RunnableLambda, RunnablePassthrough
from langchain_core.tracers._streaming import _StreamingCallbackHandler
from langgraph.graph import START, MessagesState, StateGraph

from langchain_runjournal import JournalCallbackHandler, RunJournal

from ._agents import Scripted, words


@pytest.fixture
def journal() -> Iterator[RunJournal]:
    with RunJournal(":memory:") as journal:
        yield journal


# --- handlers that tap the output of a chain ------------------------------------------------------------------------------


def _upper(chunks: Iterator[str]) -> Iterator[str]:
    for chunk in chunks:
        yield chunk.upper()


async def _aupper(chunks: AsyncIterator[str]) -> AsyncIterator[str]:
    async for chunk in chunks:
        yield chunk.upper()


def _asked(*said: str) -> Runnable[Any, Any]:
    model = Scripted(scripts=[words(*(said or ("red", ", gre", "en, ", "blue")))])
    return ChatPromptTemplate.from_messages([("human", "{question}")]) | model


async def _in_a_graph() -> Any:
    chain = _asked() | StrOutputParser()

    async def answer(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
        return {"messages": [("ai", await chain.ainvoke({"question": "?"}, config))]}

    said = _asked() | StrOutputParser() | (lambda text: {"messages": [("ai", text)]})
    builder = StateGraph(MessagesState).add_node("first", RunnableLambda(lambda _: {"question": "?"}) | said)
    return builder.add_node("second", answer).add_edge(START, "first").add_edge("first", "second").compile()


CHAINS: dict[str, Callable[..., Runnable[Any, Any]]] = {
    "text": lambda *ours: _asked() | StrOutputParser(),
    "list": lambda *ours: _asked() | CommaSeparatedListOutputParser(),
    "json": lambda *ours: _asked('{"a": ', "1, ", '"b": "two', '"}') | JsonOutputParser(),
    "generator": lambda *ours: _asked() | StrOutputParser() | RunnableGenerator(_upper, _aupper),
    "parallel": lambda *ours: RunnablePassthrough.assign(answer=_asked() | StrOutputParser()),
    "lambda": lambda *ours: RunnableLambda(lambda _: "go") | Scripted(scripts=[words("a", "b")]) | StrOutputParser(),
    "bound": lambda *ours: (_asked() | StrOutputParser()).with_config(callbacks=[*ours]),
    "bound inside": lambda *ours: RunnablePassthrough() | (_asked() | StrOutputParser()).with_config(callbacks=[*ours]),
    "graph": lambda *ours: asyncio.run(_in_a_graph()),
}
"""Each with our handlers in it, where the chain is what holds them."""


async def _events(chain: Runnable[Any, Any], config: Any, version: Any) -> list[Any]:
    events = [event async for event in chain.astream_events({"question": "?"}, config, version=version)]
    return [(event["event"], event["name"], repr(event["data"].get("chunk"))) for event in events]


async def _log(chain: Runnable[Any, Any], config: Any) -> list[Any]:
    patches = [patch async for patch in chain.astream_log({"question": "?"}, config)]
    ops = [op for patch in patches for op in patch.ops]
    return [(op["op"], op["path"], repr(op.get("value"))) for op in ops if "streamed_output" in op["path"]]


WAYS: dict[str, Callable[[Runnable[Any, Any], Any], Any]] = {
    "events v1": lambda chain, config: _events(chain, config, "v1"),
    "events v2": lambda chain, config: _events(chain, config, "v2"),
    "log": _log,
}


def _steady(seen: list[Any]) -> list[str]:
    """Without the ids, which are new in each run, and with the events of parallel branches in one order."""
    return sorted(re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "ID", repr(one)) for one in seen)


@pytest.mark.filterwarnings("ignore:astream_log is deprecated")
@pytest.mark.filterwarnings("ignore:astream_events version")
@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("count", [1, 2])
def test_streams_of_events_keep_their_chunks(way: str, chain: str, count: int, journal: RunJournal) -> None:
    """`astream_events` and `astream_log` report the chunks of parsers and chains, wherever our streaming handler stands."""
    bare = _steady(asyncio.run(WAYS[way](CHAINS[chain](), {})))
    ours = [JournalCallbackHandler(journal, capture_invoke=True) for _ in range(count)]
    config = {} if chain.startswith("bound") else {"callbacks": ours}
    assert _steady(asyncio.run(WAYS[way](CHAINS[chain](*ours), config))) == bare
    assert any("stream" in line for line in bare)
    assert len(journal.runs()) == 1


class Tapping(BaseCallbackHandler, _StreamingCallbackHandler[Any]):
    """A streaming handler of somebody else: notes what it is shown."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def tap_output_iter(self, run_id: UUID, output: Iterator[Any]) -> Iterator[Any]:
        for chunk in output:
            self.seen.append(chunk)
            yield chunk

    async def tap_output_aiter(self, run_id: UUID, output: AsyncIterator[Any]) -> AsyncIterator[Any]:
        async for chunk in output:
            self.seen.append(chunk)
            yield chunk


@pytest.mark.parametrize("order", ["ours first", "ours last", "ours between"])
@pytest.mark.parametrize("awaited", [False, True])
@pytest.mark.parametrize("chain", ["text", "list", "json", "generator", "parallel"])
def test_another_streaming_handler_is_shown_the_output(chain: str, awaited: bool, order: str, journal: RunJournal) -> None:
    """The first streaming handler beside ours sees the chunks of `stream` and `astream`, and the next one sees none, as without us."""

    def seen(handlers: list[Any], tapping: list[Tapping]) -> list[Any]:
        async def main() -> list[Any]:
            return [chunk async for chunk in CHAINS[chain]().astream({"question": "?"}, {"callbacks": handlers})]

        got = asyncio.run(main()) if awaited else list(CHAINS[chain]().stream({"question": "?"}, {"callbacks": handlers}))
        return [got, *(_steady(one.seen) for one in tapping)]

    ours, taps, bare = JournalCallbackHandler(journal, capture_invoke=True), [Tapping(), Tapping()], [Tapping(), Tapping()]
    place = {"ours first": 0, "ours between": 1, "ours last": 2}[order]
    expected = seen([*bare], bare)
    assert bare[0].seen
    assert seen([*taps[:place], ours, *taps[place:]], taps) == expected
