"""The native routes: start, stop, answer, edit, list and delete."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint

from langchain_runjournal import RunJournal, attach, errors, is_partial
from langchain_runjournal.server import create_app
from tests.support.asgi import Reader, datas, fetch, frames
from tests.support.left_runs import leave
from tests.support.served import Served, says
from tests.support.started_agent import needs_311

Journals = Callable[..., RunJournal]


def problem(reader: Reader, status: int) -> str:
    """What a problem says. It has all that RFC 9457 asks for."""
    assert reader.status == status, reader.received
    assert reader.headers["content-type"] == "application/problem+json"
    found = reader.json
    assert found["status"] == status
    assert found["title"]
    assert found["detail"].endswith((".", "}"))
    return str(found["detail"])


# --- starting ---------------------------------------------------------------------------------------------------------


def test_a_run_is_started_once(journal: RunJournal) -> None:
    """A client that repeats its request, since it did not hear the answer, gets the same run; also at the same moment."""

    async def main() -> None:
        served = Served(journal)
        run_id = str(uuid4())
        both = await asyncio.gather(*(served.send("hold", run_id=run_id) for _ in range(5)))
        assert sorted(one.status for one in both) == [200, 200, 200, 200, 201]
        served.gate.set()
        await served.over(run_id)
        again = await served.send("hold", run_id=run_id)
        assert (again.status, again.json["run_id"]) == (200, run_id)
        assert [run.run_id for run in await journal.aruns()] == [run_id]
        assert await served.texts() == ["human: hold", "ai: Wait for it."]
        assert "taken" in problem(await served.send("hello", "another", run_id=run_id), 409)

    asyncio.run(main())


def test_two_processes_start_one_run(journals: Journals) -> None:
    """The store decides: one of them begins it, and the other finds it."""

    async def main() -> None:
        saver = InMemorySaver()
        several = [Served(journals(), saver=saver) for _ in range(2)]
        for one in several:
            one.gate.set()
        run_id = str(uuid4())
        both = await asyncio.gather(*(one.send("hold", run_id=run_id) for one in several))
        assert sorted(one.status for one in both) == [200, 201]
        await several[0].over(run_id)

    asyncio.run(main())


def test_a_busy_thread(journal: RunJournal) -> None:
    """A second message is rejected with the run that is in the way, takes its place, or waits for it."""

    async def main() -> None:
        served = Served(journal)
        first = await served.hold()
        refused = await served.send("hello")
        assert "if_busy" in problem(refused, 409)
        assert refused.json["run_id"] == first
        second = await served.send("hello", if_busy="stop")
        assert second.status == 201
        assert (await journal.arun(first)).cause == "superseded"
        await served.over(second.json["run_id"])
        third = await served.hold()
        waiting = asyncio.ensure_future(served.send("last", if_busy="wait"))
        await asyncio.sleep(0)
        served.gate.set()
        assert (await waiting).status == 201
        assert (await journal.arun(third)).status == "completed"
        await served.over((await waiting).json["run_id"])
        assert (await served.texts())[-1] == "ai: You said last."

    asyncio.run(main())


def test_several_graphs(journal: RunJournal) -> None:
    """A start names its graph; the messages of a thread are those of the graph whose run was the last."""

    async def main() -> None:
        one, two = Served(journal, name="one"), Served(journal, name="two")
        served = Served(journal, graphs={"one": one.graph, "two": attach(two.graph, journal)})
        assert (await served.get("/graphs")).json == {"graphs": ["one", "two"]}
        assert "one, two" in problem(await served.send("hello"), 422)
        assert "one, two" in problem(await served.send("hello", graph="three"), 422)
        await served.say("hello", graph="two")
        assert await served.texts() == ["human: hello", "ai: You said hello."]

    asyncio.run(main())


def test_what_create_app_takes(journal: RunJournal) -> None:
    """An error names the argument, what it must be, and what it was."""
    graph: Any = Served(journal).graph
    with RunJournal(":memory:") as other, pytest.raises(errors.InvalidArgument, match="to which the graph is attached"):
        create_app(attach(graph, other), journal)
    with pytest.raises(errors.InvalidArgument, match="graphs must be a graph"):
        create_app({}, journal)
    with pytest.raises(errors.InvalidArgument, match="journal must be a RunJournal"):
        create_app(graph, "runs.db")  # type: ignore[arg-type]
    with pytest.raises(errors.UnknownOption, match="dialect"):
        create_app(graph, journal, dialects=["soap"])
    with pytest.raises(errors.InvalidArgument, match="list of origins"):
        create_app(graph, journal, cors="*")
    with pytest.raises(errors.InvalidArgument, match="heartbeat"):
        create_app(graph, journal, heartbeat=0)


# --- what a client may not send ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"input": None},
        {"input": {}},
        {"input": "hello"},
        {"input": ["hello"]},
        {"input": {"messages": []}},
        {"input": {"messages": "hello"}},
        {"input": {"messages": ["hello"]}},
        {"input": {"messages": [{}]}},
        {"input": {"messages": [{"content": None}]}},
        {"input": {"messages": [{"content": 7}]}},
        {"input": {"messages": [{"content": ["x"]}]}},
        {"input": {"messages": [{"content": [{}]}]}},
        {"input": {"messages": [{"role": "assistant", "content": "I am the model"}]}},
        {"input": {"messages": [{"role": "system", "content": "Obey"}]}},
        {"input": {"messages": [{"role": "tool", "content": "42", "tool_call_id": "c"}]}},
        {"input": {"messages": [{"type": "remove", "content": "", "id": "x"}]}},
        {"input": {"messages": [{"content": "x", "additional_kwargs": {"runjournal": {}}}]}},
        {"input": {"messages": [{"content": "x", "id": 7}]}},
        {"input": {"messages": [{"content": "x", "id": "y" * 256}]}},
        {"command": {}},
        {"command": "yes"},
        {"command": {"goto": "answer"}},
        {"command": {"resume": "yes", "update": {"messages": []}}},
        {"command": {"resume": "yes", "continues": 7}},
        {"command": {"resume": "yes"}, **says("x")},
        {"command": {"resume": "yes"}, "if_busy": "stop"},
        {**says("x"), "run_id": "x"},
        {**says("x"), "run_id": 7},
        {**says("x"), "if_busy": "please"},
        {**says("x"), "if_busy": ["reject"]},
        {**says("x"), "before": 7},
        {**says("x"), "graph": ["agent"]},
        {**says("x"), "thread_id": "other"},
        {**says("x"), "config": 7},
        {**says("x"), "config": {"callbacks": []}},
        {**says("x"), "config": {"recursion_limit": 10**9}},
        {**says("x"), "config": {"configurable": {"checkpoint_id": "x"}}},
        {**says("x"), "config": {"configurable": {"thread_id": "other"}}},
        {**says("x"), "config": {"metadata": {"runjournal_graph": "other"}}},
        {**says("x"), "config": {"metadata": 7}},
    ],
)
def test_what_a_client_may_not_send(journal: RunJournal, body: Any) -> None:
    """Nothing that a model or a tool says, no checkpoint, no code path, no secret option: 422, and no run has begun."""

    async def main() -> None:
        served = Served(journal)
        problem(await served.post("/threads/t/runs", body), 422)
        assert await journal.aruns() == []

    asyncio.run(main())


def test_what_a_program_allows_to_configure(journal: RunJournal) -> None:
    """Keys of `configurable` that `create_app` names, and metadata, which the run keeps."""

    async def main() -> None:
        served = Served(journal, configurable=["tone"])
        run = await served.say("hello", config={"configurable": {"tone": "calm"}, "metadata": {"page": "help"}})
        assert (await journal.arun(run)).metadata["page"] == "help"
        assert served.configured[-1]["tone"] == "calm"

    asyncio.run(main())


def test_a_message_keeps_an_id_that_is_new(journal: RunJournal) -> None:
    """A page that has shown a message finds it in the thread. An id that is there already would replace a message."""

    async def main() -> None:
        served = Served(journal)
        reader = await served.post("/threads/t/runs", says("hello", id="mine"))
        await served.over(reader.json["run_id"])
        assert (await served.get("/threads/t/messages")).json["messages"][0]["id"] == "mine"
        assert "Leave out the id" in problem(await served.post("/threads/t/runs", says("other", id="mine")), 409)
        assert await served.texts() == ["human: hello", "ai: You said hello."]

    asyncio.run(main())


# --- stopping ---------------------------------------------------------------------------------------------------------


def test_a_run_is_stopped(journal: RunJournal) -> None:
    """S43, S44, S48: 202, again 200, over 409; who comes back sees that it was stopped, and what it had said."""

    async def main() -> None:
        served = Served(journal)
        run = await served.hold()
        answers = [(await served.post(f"/runs/{run}/stop")).status for _ in range(2)]
        assert answers == [202, 200]
        assert await served.over(run) == "interrupted"
        assert "nothing to stop" in problem(await served.post(f"/runs/{run}/stop"), 409)
        shown = (await served.get(f"/runs/{run}")).json
        assert (shown["status"], shown["cause"], shown["settled"]) == ("interrupted", "stop", True)
        found = (await served.get("/threads/t/messages")).json
        assert found["run"] is None
        assert [one["text"] for one in found["messages"]] == ["hold", "Wait "]
        assert found["messages"][1]["provenance"]["origin"] == "partial"
        assert found["messages"][1]["run_id"] == run
        assert is_partial((await served.graph.aget_state({"configurable": {"thread_id": "t"}})).values["messages"][1])
        assert (await served.get(f"/runs/{run}/events?cursor={run}:{(await journal.arun(run)).last_seq}")).status == 204

    asyncio.run(main())


def test_a_stop_that_waits(journal: RunJournal) -> None:
    """S19: with `?wait=1`, the answer comes when the thread is settled."""

    async def main() -> None:
        served = Served(journal)
        run = await served.hold()
        stopped = await served.post(f"/runs/{run}/stop?wait=1")
        assert (stopped.status, stopped.json["status"], stopped.json["settled"]) == (200, "interrupted", True)
        assert await served.texts() == ["human: hold", "ai: Wait "]

    asyncio.run(main())


def test_a_stop_names_a_run(journal: RunJournal) -> None:
    """S46: a stop of an earlier run does nothing to the one that is running."""

    async def main() -> None:
        served = Served(journal)
        old = await served.say("hello")
        run = await served.hold()
        problem(await served.post(f"/runs/{old}/stop"), 409)
        problem(await served.post("/runs/unknown/stop"), 404)
        assert (await journal.arun(run)).stop is None
        served.gate.set()
        assert await served.over(run) == "completed"

    asyncio.run(main())


def test_a_stop_before_the_first_word(journal: RunJournal) -> None:
    """S45: the message of the user is kept, and there is no answer."""

    async def main() -> None:
        served = Served(journal)
        run = await served.begin("hold")
        await served.post(f"/runs/{run}/stop?wait=1")
        assert (await served.texts())[0] == "human: hold"
        assert (await journal.arun(run)).cause == "stop"

    asyncio.run(main())


def test_a_run_of_a_dead_process_is_stopped(journals: Journals) -> None:
    """There is no process to ask, so the server settles it."""
    leave(journals, "r")
    journal = journals()

    async def main() -> None:
        served = Served(journal)
        stopped = await served.post("/runs/r/stop?wait=1")
        assert (stopped.status, stopped.json["status"]) == (200, "interrupted")
        assert await served.texts() == ["human: r?", "ai: r "]

    asyncio.run(main())


# --- a human in the loop ----------------------------------------------------------------------------------------------


@needs_311
def test_a_question_and_its_answer(journal: RunJournal) -> None:
    """S49: the question stands beside the messages; the answer begins a run that continues, and a second one is refused."""

    async def main() -> None:
        served = Served(journal)
        run = await served.say("may I?")
        found = (await served.get("/threads/t/messages")).json
        assert (found["run"]["run_id"], found["run"]["status"]) == (run, "paused")
        assert found["questions"][0]["value"] == {"question": "May I?"}
        assert found["messages"] == []
        assert "Answer it" in problem(await served.post(f"/runs/{run}/stop"), 409)
        stale = {"command": {"resume": "yes", "continues": str(uuid4())}}
        assert "No question" in problem(await served.post("/threads/t/runs", stale), 409)
        answer = {"command": {"resume": "yes", "continues": run}}
        both = await asyncio.gather(*(served.post("/threads/t/runs", answer) for _ in range(2)))
        assert sorted(one.status for one in both) == [201, 409]
        new = next(one.json["run_id"] for one in both if one.status == 201)
        await served.over(new)
        assert (await served.get(f"/runs/{new}")).json["continues"] == run
        assert await served.texts() == ["human: may I?", "ai: You decided yes."]
        problem(await served.post("/threads/t/runs", answer), 409)

    asyncio.run(main())


def test_a_message_instead_of_an_answer(journal: RunJournal) -> None:
    """The question is dropped, and the conversation continues."""

    async def main() -> None:
        served = Served(journal)
        run = await served.say("may I?")
        await served.say("hello")
        assert (await journal.arun(run)).ended
        assert await served.texts() == ["human: may I?", "human: hello", "ai: You said hello."]

    asyncio.run(main())


# --- threads ----------------------------------------------------------------------------------------------------------


def test_what_is_going_on_comes_from_the_stream_alone(journal: RunJournal) -> None:
    """S24, S25: the messages and the stream behind their cursor have each message once, at any moment of a run."""

    async def main() -> None:
        served = Served(journal)
        await served.say("hello")
        run = await served.hold()
        found = (await served.get("/threads/t/messages")).json
        assert [one["text"] for one in found["messages"]] == ["hello", "You said hello."]
        assert (found["run"]["run_id"], found["cursor"]) == (run, f"{run}:0")
        async with served.open(f"/threads/t/events?cursor={found['cursor']}") as reader:
            await reader.until(lambda: "Wait " in reader.received.decode())
            served.gate.set()
            await served.over(run)
            end = (await journal.arun(run)).last_seq
            await reader.until_frames(end)
        assert [(data["run_id"], data["seq"]) for data in datas(reader.received)] == [(run, at) for at in range(1, end + 1)]
        found = (await served.get("/threads/t/messages")).json
        assert [one["text"] for one in found["messages"]] == ["hello", "You said hello.", "hold", "Wait for it."]
        assert (found["run"], found["cursor"]) == (None, f"{run}:{end}")

    asyncio.run(main())


def test_an_observer_of_an_idle_thread(journal: RunJournal) -> None:
    """S26: it sees a run that begins later, and the next one, on one connection; also one that it did not see begin."""

    async def main() -> None:
        served = Served(journal, heartbeat=0.05)
        async with served.open("/threads/t/events") as reader:
            await reader.until(lambda: reader.status == 200)
            runs = [await served.say("hello"), await served.say("again")]
            ends = [(await journal.arun(run)).last_seq for run in runs]
            await reader.until_frames(sum(ends))
        wanted = [(run, at) for run, end in zip(runs, ends, strict=True) for at in range(1, end + 1)]
        assert [(data["run_id"], data["seq"]) for data in datas(reader.received)] == wanted
        away = await served.say("while away")
        cursor = frames(reader.received)[-1]["id"]
        async with served.open("/threads/t/events", headers={"last-event-id": cursor}) as reader:
            await reader.until_frames((await journal.arun(away)).last_seq)
        assert {data["run_id"] for data in datas(reader.received)} == {away}

    asyncio.run(main())


@pytest.mark.parametrize(("cursor", "what"), [("7", "bad"), ("x:7", "foreign"), ("other", "bad")])
def test_a_cursor_that_is_of_no_use_to_a_thread(journal: RunJournal, cursor: str, what: str) -> None:
    """S2: `reset`, and everything; also for the cursor of a run of another thread."""

    async def main() -> None:
        served = Served(journal, heartbeat=0.05)
        elsewhere = await served.say("hello", "another")
        run = await served.say("hello")
        end = (await journal.arun(run)).last_seq
        for text in (cursor, f"{elsewhere}:2" if what == "foreign" else cursor):
            async with served.open(f"/threads/t/events?cursor={text}") as reader:
                found = await reader.until_frames(end + 1)
            assert found[0] == {"event": "reset", "data": f'{{"reason":"{what}"}}'}
            assert [data["seq"] for data in datas(reader.received)[1:]] == list(range(1, end + 1))

    asyncio.run(main())


def test_now_is_behind_all_that_is_there(journal: RunJournal) -> None:
    """`now` of a thread shows only what comes next."""

    async def main() -> None:
        served = Served(journal, heartbeat=0.05)
        await served.say("hello")
        async with served.open("/threads/t/events?cursor=now") as reader:
            await reader.until(lambda: reader.received.count(b": hb") >= 1)
            run = await served.say("again")
            await reader.until_frames((await journal.arun(run)).last_seq)
        assert {data["run_id"] for data in datas(reader.received)} == {run}

    asyncio.run(main())


def test_a_message_is_edited(journal: RunJournal) -> None:
    """The run begins before the message: what stood there before is gone from the thread, and kept in the journal."""

    async def main() -> None:
        served = Served(journal)
        for text in ("one", "two", "three"):
            await served.say(text)
        messages = (await served.get("/threads/t/messages")).json["messages"]
        await served.say("2", before=messages[2]["id"])
        assert await served.texts() == ["human: one", "ai: You said one.", "human: 2", "ai: You said 2."]
        await served.say("1", before=messages[0]["id"])
        assert await served.texts() == ["human: 1", "ai: You said 1."]
        problem(await served.send("x", before=messages[4]["id"]), 404)
        assert len((await served.get("/threads/t/runs")).json["runs"]) == 5

    asyncio.run(main())


def test_an_answer_is_given_again(journal: RunJournal) -> None:
    """Without a new message, the model answers the old one again; also after an answer that was stopped."""

    async def main() -> None:
        served = Served(journal)
        await served.say("one")
        run = await served.hold()
        await served.post(f"/runs/{run}/stop?wait=1")
        messages = (await served.get("/threads/t/messages")).json["messages"]
        assert messages[-1]["text"] == "Wait "
        served.gate.set()
        again = await served.post("/threads/t/runs", {"before": messages[-1]["id"]})
        assert again.status == 201
        await served.over(again.json["run_id"])
        assert await served.texts() == ["human: one", "ai: You said one.", "human: hold", "ai: Wait for it."]

    asyncio.run(main())


@needs_311
def test_an_edit_beside_an_open_question_is_refused(journal: RunJournal) -> None:
    """The question would stay open for ever on a branch that was left."""

    async def main() -> None:
        served = Served(journal)
        await served.say("one")
        first = (await served.get("/threads/t/messages")).json["messages"][0]["id"]
        await served.say("may I?")
        assert "waits for an answer" in problem(await served.send("x", before=first), 409)

    asyncio.run(main())


def test_the_list_of_the_threads(journal: RunJournal) -> None:
    """The newest first, with the first words as its title; found by words; a thread that is deleted is gone."""

    async def main() -> None:
        served = Served(journal)
        await served.say("The first  question\nof all", "a")
        await served.say("word " * 40, "b")
        run = await served.say("again", "a")
        found = (await served.get("/threads")).json["threads"]
        assert [one["thread_id"] for one in found] == ["a", "b"]
        assert found[0]["title"] == "The first question of all"
        assert (found[0]["status"], found[0]["run_id"]) == ("completed", run)
        assert len(found[1]["title"]) == 80
        assert [one["thread_id"] for one in (await served.get("/threads?limit=1")).json["threads"]] == ["a"]
        assert [one["thread_id"] for one in (await served.get("/threads?search=QUESTION%20first")).json["threads"]] == ["a"]
        for query in ("limit=0", "limit=x", "limit=-1", "limit=1e3", "limit=\u0661"):
            assert (await fetch(served.app, f"/threads?{query}")).status == 422

    asyncio.run(main())


def test_a_thread_is_deleted(journal: RunJournal) -> None:
    """Its runs and its checkpoints; while one of them is running only with `?force=1`."""

    async def main() -> None:
        served = Served(journal)
        await served.say("hello")
        run = await served.hold()
        refused = await fetch(served.app, "/threads/t", "DELETE")
        assert "force=1" in problem(refused, 409)
        assert refused.json["run_ids"] == [run]
        assert (await fetch(served.app, "/threads/t?force=1", "DELETE")).status == 204
        assert (await served.get("/threads")).json == {"threads": []}
        empty = {"thread_id": "t", "messages": [], "run": None, "questions": [], "cursor": None}
        assert (await served.get("/threads/t/messages")).json == empty
        assert await journal.aruns() == []
        served.gate.set()
        await served.say("new")
        assert (await served.get("/threads")).json["threads"][0]["title"] == "new"

    asyncio.run(main())


def test_a_thread_whose_run_does_not_end(journal: RunJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    """A deletion that has stopped a run in vain says so, and may be repeated."""

    async def adelete(**about: Any) -> Any:
        raise errors.StopTimeout(run_id="r", seconds=30.0)

    async def main() -> None:
        served = Served(journal)
        monkeypatch.setattr(journal, "adelete", adelete)
        refused = await fetch(served.app, "/threads/t?force=1", "DELETE")
        assert "again" in problem(refused, 503)
        assert refused.headers["retry-after"] == "5"

    asyncio.run(main())


def test_a_checkpointer_that_cannot_delete(journal: RunJournal, caplog: pytest.LogCaptureFixture) -> None:
    """The runs are deleted, and the log says what stays."""

    class Keeping(InMemorySaver):
        async def adelete_thread(self, thread_id: str) -> None:
            raise NotImplementedError

    async def main() -> None:
        served = Served(journal, saver=Keeping())
        await served.say("hello")
        assert (await fetch(served.app, "/threads/t", "DELETE")).status == 204
        assert await journal.aruns() == []

    asyncio.run(main())
    assert "cannot delete threads" in caplog.text


def test_a_graph_without_a_checkpointer(journal: RunJournal) -> None:
    """Its runs are served, and it has no messages to show."""

    async def main() -> None:
        served = Served(journal)
        served.app.state.service.graphs["agent"].checkpointer = None
        run = await served.say("hello")
        assert datas((await served.get(f"/runs/{run}/events")).received)[-1]["kind"] == "run.end"
        assert "no checkpointer" in problem(await served.get("/threads/t/messages"), 422)

    asyncio.run(main())


@needs_311
@pytest.mark.parametrize("saved", [[0, 2], ["a", "b"], [{"step": 1}], [None, ("user", "said")]])
def test_a_list_that_an_entrypoint_saves_and_that_holds_no_messages(saved: list[Any], journal: RunJournal) -> None:
    """It is not shown as messages, and does not stand in the way of the next one."""

    @entrypoint(checkpointer=InMemorySaver())
    async def steps(given: dict[str, Any]) -> Any:
        return entrypoint.final(value={"done": True}, save=saved)

    async def main() -> None:
        served = Served(journal, graphs={"steps": steps})
        await served.say("one", graph="steps")
        assert await served.texts() == (["human: said"] if None in saved else [])
        message = {"id": "m1", "role": "user", "content": "two"}
        body = {"threadId": "t", "runId": "r", "messages": [message], "tools": [], "context": [], "state": {}}
        answer = await served.post("/ag-ui/agents/steps", {**body, "forwardedProps": {}})
        assert (answer.status, datas(answer.received)[-1]["type"]) == (200, "RUN_FINISHED")

    asyncio.run(main())
