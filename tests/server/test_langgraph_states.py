"""States of the LangGraph API: read, written and listed, by its Python SDK and by `RemoteGraph`."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.pregel.remote import RemoteGraph
from langgraph_sdk.client import LangGraphClient

from langchain_runjournal import RunJournal
from langchain_runjournal.server import create_app
from langchain_runjournal.server.langgraph import state_writes
from tests.server.test_langgraph_threads import says, status_of
from tests.support.asgi import fetch
from tests.support.langgraph_clients import http, sdk
from tests.support.langgraph_probe import Pace, probe
from tests.support.started_agent import needs_311

TASK = {"id", "name", "path", "error", "interrupts", "checkpoint", "state", "result"}
STATE = {
    "values",
    "next",
    "tasks",
    "metadata",
    "created_at",
    "checkpoint",
    "parent_checkpoint",
    "interrupts",
    "checkpoint_id",
    "parent_checkpoint_id",
}


class Probe:
    """An application with the graph of the recorded requests, and its clients."""

    def __init__(self, journal: RunJournal, **options: Any) -> None:
        self.journal = journal
        self.pace = Pace()
        self.app = create_app(probe(InMemorySaver(), pace=self.pace), journal, **options)
        self.client: LangGraphClient = sdk(self.app)
        self.remote = RemoteGraph("probe", client=self.client, sync_client=None)

    async def begin(self, text: str, thread: str) -> str:
        """Begin a run by the native dialect, and return its id."""
        body = {"input": {"messages": [{"role": "user", "content": text}]}}
        return str((await fetch(self.app, f"/threads/{thread}/runs", "POST", json_body=body)).json["run_id"])

    async def say(self, text: str, thread: str | None = None) -> str:
        """Say something, and wait until it is answered. Return the thread."""
        thread = thread or str(uuid4())
        run_id = await self.begin(text, thread)
        async for event in self.journal.afollow(run_id):
            if event.kind == "run.pause":
                break
        status = (await self.journal.arun(run_id)).status
        while status == "running":
            await asyncio.sleep(0)
            status = (await self.journal.arun(run_id)).status
        return thread


@needs_311
def test_a_state_has_all_that_clients_read(journal: RunJournal) -> None:
    """Of an empty thread, of one that asks, and of each place in its history; ids are those of the checkpoints."""

    async def main() -> None:
        served = Probe(journal)
        empty: Any = await served.client.threads.get_state((await served.client.threads.create())["thread_id"])
        assert set(empty) == STATE
        assert (empty["values"], empty["next"], empty["tasks"], empty["checkpoint"]) == ({}, [], [], None)
        thread = await served.say("interrupt me")
        state: Any = await served.client.threads.get_state(thread)
        assert set(state) == STATE
        [task] = state["tasks"]
        assert set(task) == TASK
        assert (state["next"], task["name"], task["path"]) == (["tools"], "tools", ["__pregel_pull", "tools"])
        [asked] = state["interrupts"]
        assert task["interrupts"] == [asked]
        assert asked["value"] == {"action": "danger", "args": {"what": "rm", "n": 1}, "question": "go ahead?"}
        assert state["checkpoint"] == {"thread_id": thread, "checkpoint_ns": "", "checkpoint_id": state["checkpoint_id"]}
        history: Any = await served.client.threads.get_history(thread)
        assert history[0] == state
        assert [one["parent_checkpoint_id"] for one in history] == [one["checkpoint_id"] for one in history[1:]] + [None]
        for one in history:
            by_id: Any = await served.client.threads.get_state(thread, checkpoint_id=one["checkpoint_id"])
            at: Any = await served.client.threads.get_state(thread, checkpoint=one["checkpoint"])
            assert at == by_id
            assert (by_id["values"], by_id["checkpoint"]) == (one["values"], one["checkpoint"])
        assert set(await served.client.threads.get_state(thread, select=["values", "next"])) == {"values", "next"}
        failed: Any = await served.client.threads.get_state(await served.say("boom"))
        assert [one["content"] for one in failed["values"]["messages"]] == ["boom", "Turn 1: "]

    asyncio.run(main())


@needs_311
def test_a_history_goes_back(journal: RunJournal) -> None:
    """From a checkpoint that is named in each of the ways of the clients, by metadata, and in a subgraph."""

    async def main() -> None:
        served = Probe(journal)
        thread = await served.say("tool please")
        whole: Any = await served.client.threads.get_history(thread)
        assert len(whole) == 5
        assert await served.client.threads.get_history(thread, limit=2) == whole[:2]
        before, post = whole[1], http(served.app)
        forms = [
            before["checkpoint_id"],
            before["checkpoint"],
            {"configurable": {"checkpoint_id": before["checkpoint_id"]}},
            {"checkpoint_id": before["checkpoint_id"]},
        ]
        for form in forms:
            found = await post.post(f"/threads/{thread}/history", json={"limit": 10, "before": form})
            assert found.json() == whole[2:], form
        got = await post.get(f"/threads/{thread}/history", params={"limit": 2, "before": before["checkpoint_id"]})
        assert got.json() == whole[2:4]
        inputs: Any = await served.client.threads.get_history(thread, metadata={"source": "input"})
        assert inputs == whole[-1:]
        for body in ({"limit": 0}, {"limit": "x"}, {"before": 7}, {"before": {}}, {"metadata": 7}, {"select": ["x"]}):
            assert (await post.post(f"/threads/{thread}/history", json=body)).status_code == 422, body
        sub = await served.say("sub please")
        states: Any = await served.client.threads.get_history(sub)
        [task] = next(one["tasks"] for one in states if one["next"] == ["sub"])
        inner: Any = await served.client.threads.get_history(sub, checkpoint=task["checkpoint"])
        assert [one["next"] for one in inner] == [[], ["inner"], ["__start__"]]
        assert {one["checkpoint"]["checkpoint_ns"] for one in inner} == {task["checkpoint"]["checkpoint_ns"]}
        empty = (await served.client.threads.create())["thread_id"]
        assert await served.client.threads.get_history(empty) == []

    asyncio.run(main())


@needs_311
def test_remote_graph_reads_and_writes_states(journal: RunJournal) -> None:
    """As the graph itself does: the state, one of a subgraph, the history, an update, and the drawing with its subgraph."""

    async def main() -> None:
        served = Probe(journal)
        thread = await served.say("interrupt me")
        config: Any = {"configurable": {"thread_id": thread}}
        state = await served.remote.aget_state(config)
        assert (state.next, state.tasks[0].name) == (("tools",), "tools")
        assert state.interrupts[0].value["question"] == "go ahead?"
        history = [one async for one in served.remote.aget_state_history(config)]
        assert [one.next for one in history] == [("tools",), ("agent",), ("__start__",)]
        old = await served.remote.aget_state(history[1].config)
        assert (old.values, old.config["configurable"]["checkpoint_id"]) == (
            history[1].values,
            history[1].config["configurable"]["checkpoint_id"],
        )
        written = await served.remote.aupdate_state(config, {"note": "edited"}, as_node="tools")
        again = await served.remote.aget_state(written)
        assert (again.values["note"], again.next) == ("edited", ("agent",))
        assert again.parent_config is not None
        assert again.parent_config["configurable"]["checkpoint_id"] == state.config["configurable"]["checkpoint_id"]
        drawn = await served.remote.aget_graph(xray=True)
        assert {"__start__", "agent", "tools", "sub:inner", "__end__"} <= set(drawn.nodes)
        assert any((one.source, one.target, one.conditional) == ("agent", "tools", True) for one in drawn.edges)
        sub = await served.say("sub please")
        [where] = [
            one.tasks[0].state
            async for one in served.remote.aget_state_history({"configurable": {"thread_id": sub}})
            if one.next == ("sub",)
        ]
        assert (await served.remote.aget_state(where)).values["note"] == "from the subgraph"  # type: ignore[arg-type]

    asyncio.run(main())


def test_a_client_writes_a_state(journal: RunJournal) -> None:
    """Behind the newest state or behind an older one, in the name of a node. The run that follows sees it."""

    async def main() -> None:
        served = Probe(journal)
        thread = await served.say("hello")
        threads = served.client.threads
        first: Any = await threads.get_state(thread)
        human, answer = first["values"]["messages"]
        written: Any = await threads.update_state(thread, {"messages": [{**answer, "content": "edited"}], "note": "n"})
        state: Any = await threads.get_state(thread)
        assert written["checkpoint"] == state["checkpoint"]
        assert written["configurable"] == written["checkpoint"]
        assert (says(state)[1:], state["values"]["note"]) == (["ai: edited"], "n")
        fork: Any = await threads.update_state(
            thread, {"note": "forked"}, as_node="agent", checkpoint_id=first["checkpoint_id"]
        )
        forked: Any = await threads.get_state(thread)
        assert forked["parent_checkpoint_id"] == first["checkpoint_id"]
        assert (forked["checkpoint_id"], says(forked)) == (fork["checkpoint_id"], says(first))
        await threads.update_state(thread, {"messages": [{"type": "remove", "id": human["id"], "content": ""}]})
        assert says(await threads.get_state(thread)) == says(first)[1:]
        await threads.update_state(thread, None, as_node="__end__")
        assert (await threads.get(thread))["status"] == "idle"
        await served.say("two", thread)
        assert len(says(await threads.get_state(thread))) == 3
        fresh = (await threads.create(graph_id="probe"))["thread_id"]
        asked = {"messages": [{"role": "user", "content": "hi"}]}
        await threads.update_state(fresh, asked, as_node="__start__")
        assert (await threads.get(fresh))["status"] == "interrupted"  # a step is left
        assert (await threads.get_state(fresh))["next"] == ["agent"]

    asyncio.run(main())


def test_a_write_that_cannot_be(journal: RunJournal) -> None:
    """It says why, and changes nothing."""

    async def main() -> None:
        served = Probe(journal)
        thread, other = await served.say("hello"), await served.say("the other one")
        before, foreign = [await served.client.threads.get_state(one) for one in (thread, other)]
        post, path = http(served.app), f"/threads/{thread}/state"
        elsewhere: Any = foreign["checkpoint"]
        for body, status, says_what in (
            ({"values": {"note": "x"}, "as_node": "nobody"}, 422, "agent, sub, tools"),
            ({"values": {"messages": [{"role": "nobody", "content": 7}]}, "as_node": "agent"}, 422, "does not take"),
            ({"values": {"messages": 7}, "as_node": "agent"}, 422, "does not take"),
            ({"values": 7, "as_node": "agent"}, 422, "does not take"),
            ({"values": {"note": "x"}, "as_node": 7}, 422, "as_node"),
            ({"values": {"note": "x"}, "checkpoint_id": str(uuid4())}, 404, "no such checkpoint"),
            ({"values": {"note": "x"}, "checkpoint_id": "'; --"}, 404, "no such checkpoint"),
            ({"values": {"note": "x"}, "checkpoint": elsewhere}, 404, "no such checkpoint"),
            ({"values": {"note": "x"}, "checkpoint": 7}, 422, "checkpoint"),
            ({"values": {"note": "x"}, "checkpoint": {"checkpoint_id": 7}}, 422, "checkpoint_id"),
        ):
            found = await post.post(path, json=body)
            assert (found.status_code, says_what in found.json()["detail"]) == (status, True), (body, found.text)
        assert (await post.post(f"{path}/checkpoint", json={"checkpoint": elsewhere})).status_code == 404
        assert (await post.get(f"{path}/{elsewhere['checkpoint_id']}")).status_code == 404
        nowhere = await post.post(f"{path}/checkpoint", json={"checkpoint": {"checkpoint_ns": "no:1"}})
        assert (nowhere.status_code, nowhere.json()["values"]) == (200, {})
        assert [await served.client.threads.get_state(one) for one in (thread, other)] == [before, foreign]

    asyncio.run(main())


def test_a_write_names_its_node(journal: RunJournal) -> None:
    """Where two nodes have written last, a write says in whose name it is."""

    async def main() -> None:
        def note(state: MessagesState) -> dict[str, Any]:
            return {"messages": [("ai", "noted")]}

        graph = StateGraph(MessagesState).add_node("left", note).add_node("right", note)
        graph.add_edge(START, "left").add_edge(START, "right")
        app, thread = create_app(graph.compile(checkpointer=InMemorySaver(), name="both"), journal), str(uuid4())
        run = await fetch(app, f"/threads/{thread}/runs", "POST", json_body={"input": {"messages": [{"content": "hi"}]}})
        async for _ in journal.afollow(run.json["run_id"]):
            pass
        path, values = f"/threads/{thread}/state", {"messages": [{"role": "user", "content": "more"}]}
        found = await http(app).post(path, json={"values": values})
        assert (found.status_code, found.json()["detail"]) == (
            422,
            'Say in the name of which node to write: "as_node" must be one of: left, right.',
        )
        assert (await http(app).post(path, json={"values": values, "as_node": "left"})).status_code == 200

    asyncio.run(main())


def test_a_busy_thread(journal: RunJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is there so far can be read, and nothing can be written; nor if a run begins in the middle of a write."""

    async def main() -> None:
        served = Probe(journal)
        thread = await served.say("hello")
        served.pace.is_open.clear()
        run_id = await served.begin("slow", thread)
        await served.pace.is_slow.wait()
        async for event in journal.afollow(run_id):
            if "applied" in event.data:
                break
        state: Any = await served.client.threads.get_state(thread)
        assert (says(state)[-1], state["next"]) == ("human: slow", ["agent"])
        assert state["tasks"][0]["result"] is None
        update = {"note": "x"}
        assert await status_of(served.client.threads.update_state(thread, update)) == 409
        served.pace.is_open.set()
        async for _ in journal.afollow(run_id):
            pass
        other = await served.say("hello")
        write, begun = state_writes._write, asyncio.Event()

        async def write_late(*about: Any) -> Any:
            served.pace.is_open.clear()
            await served.begin("slow", other)
            begun.set()
            return await write(*about)

        monkeypatch.setattr(state_writes, "_write", write_late)
        assert await status_of(served.client.threads.update_state(other, update, as_node="agent")) == 409
        assert begun.is_set()
        served.pace.is_open.set()

    asyncio.run(main())


def test_states_of_subgraphs(journal: RunJournal) -> None:
    """With `subgraphs`, a task has the state of its subgraph; without, where that is."""

    async def main() -> None:
        served = Probe(journal)
        thread = await served.say("sub please")
        states: Any = await served.client.threads.get_history(thread)
        place = next(one for one in states if one["next"] == ["sub"])
        [task] = place["tasks"]
        assert task["state"] is None
        assert task["checkpoint"]["checkpoint_ns"].startswith("sub:")
        whole: Any = await served.client.threads.get_state(thread, checkpoint=place["checkpoint"], subgraphs=True)
        [nested] = whole["tasks"]
        assert set(nested["state"]) == STATE
        assert nested["state"]["values"]["note"] == "from the subgraph"
        assert nested["checkpoint"] == nested["state"]["checkpoint"]
        assert (await http(served.app).get(f"/threads/{thread}/state?subgraphs=perhaps")).status_code == 422

    asyncio.run(main())
