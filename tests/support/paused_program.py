"""A program that is stopped (SIGSTOP) in the middle of a run, for longer than its lease, and then continues.

python -m tests.support.paused_program HOME HOW DURABILITY LEASE

It prints "working" in its node, waits there for a line, and prints at last how its run has ended.
"""

from __future__ import annotations

import asyncio
import functools
import sys
import threading
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import START, MessagesState, StateGraph

from langchain_runjournal import JournalCallbackHandler, JournalSaver, RunJournal, attach
from langchain_runjournal.journal import ownership as _ownership
from tests.support.places import Place, place_of

THREAD: Any = {"configurable": {"thread_id": "t"}}


def answers(state: MessagesState) -> dict[str, Any]:
    """Answer at once, as the node of the other graph."""
    return {"messages": [AIMessage(f"to {state['messages'][-1].text}")]}


def build(node: Any, saver: Any) -> Any:
    builder = StateGraph(MessagesState)
    builder.add_node("work", node)
    builder.add_node("after", lambda state: {"messages": [AIMessage("after")]})
    builder.add_edge(START, "work")
    builder.add_edge("work", "after")
    return builder.compile(checkpointer=saver, name="paused")


@asynccontextmanager
async def both(place: Place, journal: RunJournal, how: str, durability: str) -> Any:
    """Return the graph, and the config of its call."""
    config = {**THREAD}
    async with place.asaver() as later:
        with place.saver() as now:
            inner = now if "sync" in how else later
            saver = JournalSaver(inner, journal)

            def waits(state: MessagesState) -> dict[str, Any]:
                # If it was stopped in the middle of a write, it would keep the lock of the file.
                while durability != "exit" and len(list(saver.list(THREAD))) < 2:
                    threading.Event().wait(0.01)
                assert saver.drained("t", 30)
                print("working", flush=True)
                sys.stdin.readline()
                return answers(state)

            graph = build(waits, saver)
            if "attached" in how:
                graph = attach(graph, journal)
            else:
                config["callbacks"] = [JournalCallbackHandler(journal)]
            yield graph, config


async def main(home: Path, how: str, durability: Any, lease: float) -> None:
    # As in a container of its own: its pid means nothing to other processes.
    _ownership.this_place = functools.cache(lambda: "elsewhere")
    place = place_of(home)
    journal = place.open(lease=lease)
    async with both(place, journal, how, durability) as (graph, config):
        given = {"messages": [HumanMessage("first", id="m1")]}
        try:
            if "sync" in how:
                graph.invoke(given, config, durability=durability)
            else:
                await graph.ainvoke(given, config, durability=durability)
            print("no error", flush=True)
        except Exception as exc:
            print(f"{type(exc).__name__} {isinstance(exc, Exception)} {exc}", flush=True)
    try:
        journal.close()
    except Exception as exc:
        print(f"close: {type(exc).__name__}", flush=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], float(sys.argv[4])))
