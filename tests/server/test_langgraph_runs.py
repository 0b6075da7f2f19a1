"""The runs of the LangGraph API: created, waited for, joined, listed, cancelled and deleted, as its clients do it."""

from __future__ import annotations

import asyncio
import json
import operator
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.runtime import Runtime
from langgraph.types import interrupt
from typing_extensions import TypedDict

from langchain_runjournal import RunJournal
from langchain_runjournal.errors import StoreFailed
from langchain_runjournal.server.langgraph import temporary_threads, undo
from langchain_runjournal.server.langgraph.run_records import RunRecords
from langchain_runjournal.server.langgraph.temporary_threads import TemporaryThreads
from langchain_runjournal.server.langgraph.thread_rows import ThreadRows
from tests.support.asgi import PATIENCE, frames
from tests.support.langgraph_api import an_api, an_id, body
from tests.support.started_agent import needs_311


def test_a_run_and_what_is_said_of_it(journal: RunJournal) -> None:
    """It is there before the client hears of it, and its answer names it."""

    async def main() -> None:
        async with an_api(journal) as api:
            thread = await api.thread()
            made = await api.post(
                f"/threads/{thread}/runs", body("hello", metadata={"shop": 3}, multitask_strategy="enqueue")
            )
            run_id = made.json["run_id"]
            assert (made.status, made.json["status"]) == (200, "pending")
            assert made.headers["content-location"] == f"/threads/{thread}/runs/{run_id}"
            assert await api.over(thread, run_id) == "success"
            found = (await api.get(f"/threads/{thread}/runs/{run_id}")).json
            assert found["metadata"] == {
                "created_by": "system",
                "graph_id": "agent",
                "assistant_id": found["assistant_id"],
                "shop": 3,
            }
            assert (await journal.arun(run_id)).metadata["shop"] == 3
            assert await api.texts(thread) == ["human: hello", "ai: You said hello."]
            [message, _] = (await api.get(f"/threads/{thread}/state")).json["values"]["messages"]
            assert message["id"]
            about = (await api.get(f"/threads/{thread}")).json["metadata"]
            assert (about["graph_id"], about["assistant_id"]) == ("agent", found["assistant_id"])

    asyncio.run(main())


def test_a_run_that_is_waited_for(journal: RunJournal) -> None:
    """The values, or the error of the graph: with status 200, as clients look for it in the body."""

    async def main() -> None:
        async with an_api(journal, heartbeat=0.01) as api:
            thread = await api.thread()
            async with api.open(f"/threads/{thread}/runs/wait", "POST", json_body=body("hold")) as reader:
                await api.until_held()
                await reader.until(lambda: reader.received.startswith(b"\n\n"))
                run_id = reader.headers["content-location"].rpartition("/")[2]
                assert reader.headers["location"] == f"/threads/{thread}/runs/{run_id}/join"
                api.served.gate.set()
                await reader.until_over()
                assert [one["content"] for one in reader.json["messages"]] == ["hold", "Wait for it."]
            again = await api.get(f"/threads/{thread}/runs/{run_id}/join")
            assert again.json == reader.json
            failed = await api.post(f"/threads/{thread}/runs/wait", body("fail"))
            assert failed.status == 200
            assert failed.json["__error__"]["error"] == "ValueError"
            assert (await api.get(f"/threads/{thread}")).json["status"] == "error"

    asyncio.run(main())


@pytest.mark.parametrize("wait", [0, 1])
@pytest.mark.parametrize("action", ["interrupt", "rollback"])
def test_a_running_run_is_cancelled(action: str, wait: int, journal: RunJournal) -> None:
    """`interrupt` keeps what was said. `rollback` leaves the thread as it was, and the journal what was said."""

    async def main() -> None:
        async with an_api(journal) as api:
            thread = await api.thread()
            await api.over(thread, await api.run(thread, "hello"))
            before = await api.checkpoints(thread)
            run_id = await api.hold(thread)
            query = f"?wait={wait}&action={action}"
            done = await api.cancel(thread, run_id, query)
            assert (done.status, done.received) == ((200, b"{}") if wait else (202, b""))
            if not wait:
                await api.served.over(run_id)
                await api.queue.until_rolled_back(run_id, 30)
            assert (await journal.arun(run_id)).status == "interrupted"
            if action == "interrupt":
                assert await api.status(thread, run_id) == "interrupted"
                assert (await api.texts(thread))[2:] == ["human: hold", "ai: Wait "]
            else:
                assert await api.checkpoints(thread) == before
                assert [await api.status(thread, run_id), (await api.get(f"/threads/{thread}")).json["status"]] == [
                    "404",
                    "idle",
                ]
                assert "Wait" in (await journal.atranscript(run_id))[-1].text
                assert (await journal.aread(run_id))[-1].data["rolled_back"]
            assert (await api.cancel(thread, run_id, query)).status == 404
            assert await api.over(thread, await api.run(thread, "on")) == "success"

    asyncio.run(main())


@pytest.mark.parametrize("action", ["interrupt", "rollback"])
def test_a_pending_run_is_cancelled(action: str, journal: RunJournal) -> None:
    """It never begins, and those behind it do."""

    async def main() -> None:
        async with an_api(journal) as api:
            thread = await api.thread()
            first = await api.hold(thread)
            second, third = await api.run(thread, "two"), await api.run(thread, "three")
            assert await api.status(thread, second) == "pending"
            assert (await api.cancel(thread, second, f"?wait=1&action={action}")).status == 200
            assert await api.status(thread, second) == ("interrupted" if action == "interrupt" else "404")
            waited = await api.get(f"/threads/{thread}/runs/{second}/join")
            assert waited.status == 404 if action == "rollback" else "__error__" in waited.json
            api.served.gate.set()
            assert [await api.over(thread, first), await api.over(thread, third)] == ["success", "success"]
            assert [one for one in await api.texts(thread) if one.startswith("human")] == ["human: hold", "human: three"]

    asyncio.run(main())


def test_the_list_of_runs(journal: RunJournal) -> None:
    """All runs of a thread, the newest first, also those that the page began; by status, page by page."""

    async def main() -> None:
        async with an_api(journal) as api:
            thread = await api.thread()
            by_page = await api.served.say("hello", thread)
            failed = await api.run(thread, "fail")
            await api.over(thread, failed)
            running = await api.hold(thread)
            pending = await api.run(thread, "later")
            runs = (await api.get(f"/threads/{thread}/runs")).json
            assert [(one["run_id"], one["status"]) for one in runs] == [
                (pending, "pending"), (running, "running"), (failed, "error"), (by_page, "success"),
            ]  # fmt: skip
            some = (await api.get(f"/threads/{thread}/runs?limit=1&offset=1&select=run_id")).json
            assert some == [{"run_id": running}]
            assert [one["run_id"] for one in (await api.get(f"/threads/{thread}/runs?status=error")).json] == [failed]
            assert (await api.get(f"/threads/{thread}/runs?status=lost")).status == 422

    asyncio.run(main())


def test_runs_are_cancelled_and_deleted_by_their_ids(journal: RunJournal) -> None:
    """`POST /runs/cancel` and `DELETE`."""

    async def main() -> None:
        async with an_api(journal) as api:
            thread = await api.thread()
            running = await api.hold(thread)
            pending = await api.run(thread, "later")
            assert (await api.post(f"/threads/{thread}/runs/{running}", method="DELETE")).status == 409
            asked = {"thread_id": thread, "run_ids": [running, pending]}
            assert (await api.post("/runs/cancel", asked)).status == 204
            assert [await api.over(thread, one) for one in (running, pending)] == ["interrupted", "interrupted"]
            assert (await api.post("/runs/cancel", {"status": "all"})).status == 404
            for one in (running, pending):
                assert (await api.post(f"/threads/{thread}/runs/{one}", method="DELETE")).status == 204
                assert await api.status(thread, one) == "404"
            assert (await api.get(f"/threads/{thread}/runs")).json == []

    asyncio.run(main())


@needs_311
def test_a_human_is_asked(journal: RunJournal) -> None:
    """The question is in the values; an answer that comes too late, or twice, does not reach another question."""

    async def main() -> None:
        async with an_api(journal) as api:
            thread = await api.thread()
            asked = (await api.post(f"/threads/{thread}/runs/wait", body("may I?"))).json
            [question] = asked["__interrupt__"]
            assert question["value"] == {"question": "May I?"}
            [run] = (await api.get(f"/threads/{thread}/runs")).json
            assert run["status"] == "success"
            assert (await api.cancel(thread, run["run_id"])).status == 404
            answers: list[dict[str, Any]] = [
                {"command": {"resume": {question["id"]: "yes"}}},
                {"command": {"resume": "again"}, "input": {}},
            ]
            one, two = [(await api.post(f"/threads/{thread}/runs", body(**answer))).json["run_id"] for answer in answers]
            assert await api.over(thread, one) == "success"
            assert await api.over(thread, two) == "error"
            assert await api.texts(thread) == ["human: may I?", "ai: You decided yes."]

    asyncio.run(main())


@needs_311
def test_several_questions_at_once(journal: RunJournal) -> None:
    """Each answer goes to its question, together or one after the other; what the context declares reaches the nodes."""

    class State(TypedDict):
        said: Annotated[list[str], operator.add]

    @dataclass
    class Context:
        who: str = "nobody"

    async def ask(name: str, runtime: Runtime[Context]) -> State:
        return {"said": [f"{name}: {interrupt(name)} ({runtime.context.who})"]}

    async def left(state: State, runtime: Runtime[Context]) -> State:
        return await ask("left", runtime)

    async def right(state: State, runtime: Runtime[Context]) -> State:
        return await ask("right", runtime)

    builder = StateGraph(State, context_schema=Context).add_node("left", left).add_node("right", right)
    graph = builder.add_edge(START, "left").add_edge(START, "right").compile(checkpointer=InMemorySaver(), name="agent")

    async def main() -> None:
        async with an_api(journal, graphs=graph) as api:
            for together in (True, False):
                thread = await api.thread()
                asked = (await api.post(f"/threads/{thread}/runs/wait", body(input={"said": []}))).json
                ids = {one["value"]: one["id"] for one in asked["__interrupt__"]}
                answers = {ids["left"]: "L", ids["right"]: "R"}
                for resume in [answers] if together else [{key: value} for key, value in answers.items()]:
                    more: dict[str, Any] = {"command": {"resume": resume}, "context": {"who": "ada"}}
                    done = await api.post(f"/threads/{thread}/runs/wait", body(**more))
                assert sorted(done.json["said"]) == ["left: L (ada)", "right: R (ada)"]
            other = await api.post(f"/threads/{thread}/runs", body(input={"said": []}, context={"role": "admin"}))
            assert other.status == 422

    asyncio.run(main())


def test_a_fork(journal: RunJournal) -> None:
    """From a checkpoint: with another input, and, without any, once more. An input that is empty is another thing."""

    async def main() -> None:
        async with an_api(journal) as api:
            thread = await api.thread()
            await api.over(thread, await api.run(thread, "hello"))
            history = (await api.post(f"/threads/{thread}/history", {"limit": 10})).json
            before_answer = next(one["checkpoint"] for one in history if one["next"] == ["answer"])
            edited = await api.post(f"/threads/{thread}/runs/wait", body("edited", checkpoint=history[-1]["checkpoint"]))
            assert [one["content"] for one in edited.json["messages"]] == ["edited", "You said edited."]
            again = await api.post(f"/threads/{thread}/runs/wait", body(checkpoint=before_answer))
            assert [one["content"] for one in again.json["messages"]] == ["hello", "You said hello."]

    asyncio.run(main())


def refused() -> list[Any]:
    return [
        ({"assistant_id": "nobody"}, "assistant_id"),
        ({"stream_mode": ["values", "tokens"]}, "stream_mode"),
        ({"webhook": "https://hook.example"}, "webhook"),
        ({"feedback_keys": ["stars"]}, "feedback_keys"),
        ({"multitask_strategy": "both"}, "multitask_strategy"),
        ({"after_seconds": -1}, "after_seconds"),
        ({"config": {"configurable": {"admin": True}}}, "configurable.admin"),
        ({"context": {"admin": True}}, "context.admin"),
        ({"config": {"recursion_limit": 0}}, "recursion_limit"),
        ({"interrupt_before": "answer"}, "interrupt_before"),
        ({"command": {"send": 1}}, "command"),
        ({"on_completion": "delete"}, "on_completion"),
        ({"checkpoint": {"checkpoint_id": "a b"}}, "checkpoint_id"),
        ({"durability": "never"}, "durability"),
    ]


def test_what_cannot_be_done_is_refused(journal: RunJournal) -> None:
    """With a status that no client repeats, a word on what to change, and nothing left behind."""

    async def main() -> None:
        async with an_api(journal) as api:
            thread = await api.thread()
            for more, named in refused():
                reader = await api.post(f"/threads/{thread}/runs", body("hello", **more))
                assert (reader.status, named in reader.json["detail"]) == (422, True), (more, reader.received)
            assert (await api.post(f"/threads/{an_id()}/runs", body("hello"))).status == 404
            assert (await api.post("/threads/t/runs", body("hello"))).status == 422
            assert (await api.get(f"/threads/{thread}/runs/{an_id()}")).status == 404
            assert (await api.get(f"/threads/{thread}/runs")).json == []
            made = await api.post(f"/threads/{an_id()}/runs", body("hello", if_not_exists="create"))
            assert made.status == 200

    asyncio.run(main())


def test_a_run_without_a_thread(journal: RunJournal) -> None:
    """Its stream can be opened again, by the address that the answer gives."""

    async def main() -> None:
        async with an_api(journal) as api:
            made = await api.post("/runs/stream", body("hello"))
            run_id = made.headers["content-location"].removeprefix("/runs/")
            assert made.headers["location"] == f"/runs/{run_id}/stream"
            assert b"You said hello." in made.received
            assert b"You said hello." in (await api.get(made.headers["location"])).received
            assert [one["content"] for one in (await api.post("/runs/wait", body("hello"))).json["messages"]][1:] == [
                "You said hello."
            ]
            assert (await api.get(f"/runs/{an_id()}/stream")).status == 404

    asyncio.run(main())


def test_the_thread_of_a_run_without_one_is_deleted(journal: RunJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some time after the end of the run, and not before it; unless the client keeps it."""
    monkeypatch.setattr(temporary_threads, "_STAYS", 0.05)

    async def main() -> None:
        async with an_api(journal) as api:
            made = [(await api.post("/runs", body(text, **more))).json for text, more in (("hold", {}), ("hello", KEEP))]
            await api.until_held()
            await api.over(made[1]["thread_id"], made[1]["run_id"])
            assert (await journal.arun(made[0]["run_id"])).status == "running"
            api.served.gate.set()
            task = api.routes.temporary.task
            assert task is not None
            await asyncio.wait_for(task, PATIENCE)
            assert [(await api.get(f"/threads/{run['thread_id']}")).status for run in made] == [404, 200]
            assert [run.run_id for run in await journal.aruns()] == [made[1]["run_id"]]

    asyncio.run(main())


KEEP: dict[str, Any] = {"on_completion": "keep"}


@pytest.mark.parametrize("turns", [0, 1])
def test_a_rollback_with_a_checkpointer_that_cannot_delete(
    turns: int, journal: RunJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread is as it was; what was rolled back stays in the history as a branch that was left."""
    monkeypatch.setattr(undo, "_KINDS", {})

    async def main() -> None:
        async with an_api(journal) as api:
            thread = await api.thread()
            for _ in range(turns):
                await api.over(thread, await api.run(thread, "hello"))
            before = await api.texts(thread)
            run_id = await api.hold(thread)
            assert (await api.cancel(thread, run_id, "?wait=1&action=rollback")).status == 200
            assert await api.texts(thread) == before
            await api.over(thread, await api.run(thread, "again"))
            assert await api.texts(thread) == [*before, "human: again", "ai: You said again."]

    asyncio.run(main())


def test_no_failure_after_a_run_was_created_is_told_as_a_refusal(
    journal: RunJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client would send its request again, and begin a second run."""

    def fail(*_: Any, **about: Any) -> Any:
        raise StoreFailed(path="runs.db", reason="the disk is away", hint="Look for it")

    async def main() -> None:
        async with an_api(journal, cancel_after=60) as api:
            thread = await api.thread()
            monkeypatch.setattr(ThreadRows, "stamp", fail)
            monkeypatch.setattr(TemporaryThreads, "add", fail)
            monkeypatch.setattr(RunRecords, "note_reader", fail)
            for path in (f"/threads/{thread}/runs", "/runs"):
                for way in ("", "/stream", "/wait"):
                    assert (await api.post(f"{path}{way}", body("hello"))).status == 200
            runs = (await api.get(f"/threads/{thread}/runs")).json
            assert [run["status"] for run in runs] == ["success"] * 3

    asyncio.run(main())


def test_a_run_that_stops_before_a_node(journal: RunJournal) -> None:
    """`interrupt_before`: the thread waits there, and a run without input continues."""

    async def main() -> None:
        async with an_api(journal) as api:
            thread = await api.thread()
            await api.over(thread, await api.run(thread, "hello", interrupt_before=["answer"]))
            assert (await api.get(f"/threads/{thread}/state")).json["next"] == ["answer"]
            done = await api.post(f"/threads/{thread}/runs/wait", body())
            assert [one["content"] for one in done.json["messages"]] == ["hello", "You said hello."]
            fresh = await api.thread()
            await api.over(fresh, await api.run(fresh, "hello", interrupt_after="*"))
            assert await api.texts(fresh) == ["human: hello", "ai: You said hello."]

    asyncio.run(main())


def test_what_a_run_is_configured_with(journal: RunJournal) -> None:
    """What the program allows, or the graph declares, gets there; what clients send by themselves is left out."""

    async def main() -> None:
        async with an_api(journal, configurable=["model"]) as api:
            thread = await api.thread()
            sent = {"model": "small", "thread_id": "other", "langgraph_request_id": "x", "user_id": None}
            asked = body("hello", config={"configurable": sent, "tags": ["a"], "metadata": {"job": 7}}, durability="sync")
            await api.over(thread, await api.run_of(thread, asked))
            [found] = api.served.configured
            assert (found["model"], found["thread_id"]) == ("small", thread)
            assert "langgraph_request_id" not in found
            [run] = await journal.aruns(thread)
            assert run.metadata["job"] == 7
            await api.over(thread, await api.run(thread, "hello", context={"model": "large"}))
            assert api.served.configured[1]["model"] == "large"
            steps = await api.post(f"/threads/{thread}/runs/wait", body("hello", config={"recursion_limit": 1}))
            assert steps.status == 200

    asyncio.run(main())


def test_who_may_do_what(journal: RunJournal) -> None:
    """To write more than a new message needs "update". What a request may not see looks like what does not exist."""
    allowed = {"start", "read", "list"}

    async def main() -> None:
        async with an_api(journal, authorize=lambda request, action, thread: action in allowed) as api:
            thread = await api.thread()
            await api.over(thread, await api.run(thread, "hello"))
            state = (await api.get(f"/threads/{thread}/state")).json
            more: list[dict[str, Any]] = [
                {"command": {"update": {"messages": []}}},
                {"command": {"goto": "answer"}},
                {"checkpoint": state["checkpoint"]},
                {"config": {"configurable": {"checkpoint_id": state["checkpoint_id"]}}},
                {"input": {"messages": [{"role": "assistant", "content": "I said so"}]}},
                {"input": {"messages": [{"role": "user", "content": "hi"}], "other": 1}},
                {"multitask_strategy": "rollback"},
            ]
            for one in more:
                assert (await api.post(f"/threads/{thread}/runs", {**body("hello"), **one})).status == 404, one
            [first, _] = state["values"]["messages"]
            replaced = {"messages": [{"role": "user", "content": "I never said that", "id": first["id"]}]}
            assert (await api.post(f"/threads/{thread}/runs", body(input=replaced))).status == 409
            assert (await api.texts(thread))[0] == "human: hello"
            run_id = (await api.get(f"/threads/{thread}/runs")).json[0]["run_id"]
            assert (await api.cancel(thread, run_id)).status == 404
            allowed.add("stop")
            held = await api.run(thread, "hold")
            await api.until_held()
            rollback = f"/threads/{thread}/runs/{held}/cancel?action=rollback"
            assert (await api.post(rollback, {})).status == 404
            many = {"thread_id": thread, "run_ids": [held]}
            assert (await api.post("/runs/cancel?action=rollback", many)).status == 404
            assert await api.status(thread, held) == "running"
            assert (await api.post("/runs/cancel", many)).status == 204
            await api.over(thread, held)
            allowed.remove("read")
            assert await api.status(thread, run_id) == "404"
            assert (await api.get(f"/runs/{run_id}/stream")).status == 404

    asyncio.run(main())


def test_the_stream_of_a_thread(journal: RunJournal) -> None:
    """Its runs one after the other, with the frames and the ids of their own streams; and it stays open."""

    async def main() -> None:
        async with an_api(journal, heartbeat=0.05) as api:
            thread = await api.thread()
            ids = [await api.run(thread, "one")]
            await api.over(thread, ids[0])
            own = frames((await api.get(f"/threads/{thread}/runs/{ids[0]}/stream")).received)
            path = f"/threads/{thread}/stream"
            async with api.open(path, headers={"last-event-id": "-1"}) as all_runs, api.open(path) as new_runs:
                await all_runs.until(lambda: b"run_done" in all_runs.received)
                await new_runs.until(lambda: b": hb" in new_runs.received)
                ids.append(await api.run(thread, "two"))
                await all_runs.until(lambda: all_runs.received.count(b"run_done") == 2)
                await new_runs.until(lambda: b"run_done" in new_runs.received)
            assert own[-1]["event"] == "end"
            assert frames(all_runs.received)[: len(own) - 1] == own[:-1]
            done = [one["data"] for one in frames(all_runs.received) if "run_done" in one["data"]]
            assert [json.loads(one)["run_id"] for one in done] == ids
            seen = frames(new_runs.received)
            assert {one["id"].partition(":")[0] for one in seen if "id" in one} == {ids[1]}
            place = frames(all_runs.received)[1]["id"]
            async with api.open(path, headers={"last-event-id": place}) as later:
                await later.until(lambda: later.received.count(b"run_done") == 2)
            assert frames(later.received) == frames(all_runs.received)[2:]

    asyncio.run(main())
