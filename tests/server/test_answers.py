"""An answer goes to the question that it was given for, and to no other: also from two tabs, workers, and graphs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

from langchain_runjournal import RunJournal, attach, errors
from langchain_runjournal.runs.admission import AnotherWaits
from langchain_runjournal.runs.start import start_answer
from langchain_runjournal.server import create_app
from tests.support.asgi import fetch
from tests.support.served import Served, says
from tests.support.started_agent import needs_311

CHAT = "/ai-sdk/chat"


def two_questions(saver: Any, name: str = "asks") -> Any:
    """A graph whose node asks two questions, one after the other."""

    def ask(state: MessagesState) -> dict[str, Any]:
        return {"messages": [("ai", f"answers {interrupt('first')!r} {interrupt('second')!r}")]}

    return StateGraph(MessagesState).add_node("ask", ask).add_edge(START, "ask").compile(checkpointer=saver, name=name)


async def paused(served: Served, thread: str = "t") -> tuple[str, str]:
    """Return the run that waits on a thread, and the id of its question."""
    found = (await served.get(f"/threads/{thread}/messages")).json
    return found["run"]["run_id"], found["questions"][0]["id"]


def part(value: Any, question: str | None = None) -> dict[str, Any]:
    """The body of an answer of the AI SDK."""
    data = {"value": value} | ({} if question is None else {"id": question})
    message = {"id": uuid4().hex, "role": "user", "parts": [{"type": "data-answer", "data": data}]}
    return {"id": "t", "messages": [message], "trigger": "submit-message"}


@needs_311
@pytest.mark.parametrize("dialect", ["native", "ai-sdk"])
def test_a_stale_answer_is_refused(dialect: str, journal: RunJournal) -> None:
    """A second tab still shows the first question, which another tab has answered: its answer is not for the second one."""

    async def main() -> None:
        served = Served(journal, graphs=two_questions(InMemorySaver()))
        await served.say("go")
        _, first = await paused(served)
        assert (await served.post("/threads/t/runs", {"command": {"resume": {first: "A"}}})).status == 201
        for one in (await served.get("/threads/t/runs")).json["runs"][:1]:
            await served.over(one["run_id"])
        run, second = await paused(served)
        # Older releases of LangGraph give both questions of a task one id: then only `continues` tells them apart.
        stale = ["0" * 32, *([first] if first != second else []), *(["wrong"] if dialect == "ai-sdk" else [])]
        for question in stale:
            if dialect == "native":
                answer = await served.post("/threads/t/runs", {"command": {"resume": {question: "stale"}}})
            else:
                answer = await served.post(CHAT, part("stale", question))
            assert answer.status == 409
        assert await paused(served) == (run, second)

    asyncio.run(main())


@needs_311
@pytest.mark.parametrize("value", [None, {}, False, 0, "", []])
def test_any_value_is_an_answer(value: Any, journal: RunJournal) -> None:
    """Also those that LangGraph alone takes for none."""

    async def main() -> None:
        served = Served(journal)
        await served.say("may I?")
        begun = await served.post("/threads/t/runs", {"command": {"resume": value}})
        assert begun.status == 201
        assert await served.over(begun.json["run_id"]) == "completed"
        assert await served.texts() == ["human: may I?", f"ai: You decided {value}."]

    asyncio.run(main())


@needs_311
def test_an_answer_for_another_graph_is_refused(journal: RunJournal) -> None:
    """The graph that asked has to take it. Over the AI SDK, a thread keeps its graph."""

    async def main() -> None:
        saver = InMemorySaver()
        graphs = {"asks": two_questions(saver), "other": two_questions(saver, "other")}
        app = create_app(graphs, journal)
        begun = await fetch(app, "/threads/t/runs", "POST", json_body={**says("go"), "graph": "asks"})
        served = Served(journal, graphs=graphs)
        await served.over(begun.json["run_id"])
        body = {"command": {"resume": "B"}, "graph": "other"}
        refused = await fetch(app, "/threads/t/runs", "POST", json_body=body)
        assert refused.status == 409
        assert "another graph" in refused.json["detail"]
        _, question = await paused(served)
        answered = await fetch(app, CHAT, "POST", json_body={**part("A", question), "graph": "other"})
        assert answered.status == 200
        [newest] = await journal.aruns("t", limit=1)
        assert newest.name == "asks"
        assert (await fetch(app, CHAT, "POST", json_body={**part("A"), "graph": "nothing"})).status == 422

    asyncio.run(main())


@needs_311
def test_of_answers_in_two_workers_one_begins(db: Path) -> None:
    """Each worker has looked before any of them began: when the second one has the thread, another question waits there."""

    async def main() -> None:
        saver = InMemorySaver()
        with RunJournal(db) as one, RunJournal(db) as two:
            first, second = attach(two_questions(saver), one), attach(two_questions(saver), two)
            served = Served(one, graphs=first)
            run, _ = await paused_after(served)
            config: Any = {"configurable": {"thread_id": "t"}}
            handle = await start_answer(run, first, Command(resume="A"), config, journal=one)
            await handle.wait()
            with pytest.raises(AnotherWaits):
                await start_answer(run, second, Command(resume="B"), config, journal=two)
            runs = await two.aruns("t")
            assert [found.status.value for found in runs] == ["paused", "completed"]
            handle = await start_answer(runs[0].run_id, second, Command(resume="C"), config, journal=two)
            assert (await handle.wait()).status == "completed"
            assert (await served.texts())[-1] == "ai: answers 'A' 'C'"

    asyncio.run(main())


async def paused_after(served: Served) -> tuple[str, str]:
    await served.say("go")
    return await paused(served)


def test_a_message_of_the_user_is_not_given_again(journal: RunJournal) -> None:
    """Without input, `before` names an answer: the message of the user would be lost, and an older answer made again."""

    async def main() -> None:
        served = Served(journal)
        for text in ("first", "second"):
            await served.say(text)
        thread = (await served.get("/threads/t/messages")).json["messages"]
        refused = await served.post("/threads/t/runs", {"before": thread[2]["id"]})
        assert refused.status == 422
        assert "a message of the user" in refused.json["detail"]
        assert len(await served.texts()) == 4

    asyncio.run(main())


def test_a_deleted_run_does_not_come_back(journal: RunJournal) -> None:
    """A page repeats its request after another tab has deleted the conversation."""

    async def main() -> None:
        served = Served(journal)
        run_id = str(uuid4())
        await served.say("hello", run_id=run_id)
        assert (await fetch(served.app, "/threads/t", "DELETE")).status == 204
        again = await served.send("hello", run_id=run_id)
        assert (again.status, (await served.get("/threads")).json["threads"]) == (409, [])

    asyncio.run(main())


def test_several_graphs_are_given_by_name(journal: RunJournal) -> None:
    """A list has no names, by which a client could choose."""
    graphs: Any = [two_questions(InMemorySaver())]
    with pytest.raises(errors.InvalidArgument, match="a mapping of names to graphs"):
        create_app(graphs, journal)
