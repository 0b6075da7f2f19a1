"""The stream of a run for the clients of LangGraph Server: what LangGraph itself streams of it, live and replayed."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
from langchain_core.messages.tool import tool_call_chunk
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command

from langchain_runjournal import RunJournal
from langchain_runjournal.events import Event, Run, RunStatus
from langchain_runjournal.journal.core import core_of
from langchain_runjournal.server.frames import Frame
from langchain_runjournal.server.langgraph.feed import begun_by
from langchain_runjournal.server.langgraph.stored_steps import StepCache
from langchain_runjournal.server.langgraph.stream import final_values
from tests.support.agents import PlainText, words
from tests.support.langgraph_streams import ALL, THEIRS, LateWrites, Place, said, theirs
from tests.support.models import Gate
from tests.support.recorded_fields import FIELDS
from tests.support.stream_graphs import ASKING, GRAPHS, HELLO, answers, held, model, tool_loop

SERVERS = {"graph_id", "assistant_id", "run_id", "checkpoint", "parent_checkpoint"}
"""What a server adds to what LangGraph streams."""
UNKNOWN = {"langgraph_triggers", "langgraph_path", "lc_versions", "ls_integration", "response_schema"}
"""What neither the journal nor a checkpoint says."""
OTHER = {"timestamp", "ls_model_name", "metadata"}
"""What has another value: the time of the event, a name that the model did not report, and (see the test of it) metadata."""


NO_CONTEXT: Any = pytest.mark.skipif(
    sys.version_info < (3, 11), reason="LangGraph has no context for nodes of `astream` on Python 3.10"
)
"""For questions, and for the stream writer."""


def these(*names: str) -> list[Any]:
    """Return the names of graphs, marked where they need a newer Python."""
    return [pytest.param(name, marks=[NO_CONTEXT] if name in {*ASKING, "subgraph", "reporting"} else []) for name in names]


def alike(value: Any) -> Any:
    """Return a value without what is known to differ."""
    if isinstance(value, dict):
        return {key: alike(one) for key, one in value.items() if key not in SERVERS | UNKNOWN | OTHER}
    return [alike(one) for one in value] if isinstance(value, (list, tuple)) else value


def by_graph(found: Sequence[Any]) -> dict[str, list[Any]]:
    """Return what was streamed, by the namespace of the graph: between graphs, the order of checkpoints may differ."""
    spaces: dict[str, list[Any]] = {}
    for space, body in found:
        spaces.setdefault(space, []).append(alike(body))
    return spaces


def compare(frames: Sequence[Frame], chunks: Sequence[Any], modes: Sequence[str] = THEIRS) -> None:
    """Compare frames with what LangGraph streamed, mode by mode."""
    for mode in modes:
        ours, wanted = said(frames, mode), theirs(chunks, mode)
        assert by_graph(ours) == by_graph(wanted), mode
        if mode not in ("checkpoints", "debug"):
            assert [space for space, _ in ours] == [space for space, _ in wanted], mode


def forget(journal: RunJournal) -> None:
    """Forget all checkpoints that streams have read, as another process, which has never had them."""
    core_of(journal).extensions.get(StepCache, StepCache).after_fork()


def shown(frames: Sequence[Frame], *modes: str) -> list[Frame]:
    names = {"messages-tuple": ("messages",), "messages": ("messages/metadata", "messages/partial", "messages/complete")}
    wanted = {name for mode in modes for name in names.get(mode, (mode,))}
    return [frame for frame in frames if str(frame.event).partition("|")[0] in wanted]


@pytest.mark.parametrize("name", these(*GRAPHS))
def test_the_frames_are_what_langgraph_streams(journal: RunJournal, name: str) -> None:
    """Each mode has the same bodies in the same order, of the graph and of the graphs in it; and a reader that comes back
    with the cursor of any frame gets exactly what follows it."""

    async def main() -> None:
        place = Place(journal, GRAPHS[name]())
        run, chunks = await place.run(HELLO)
        frames = await place.frames(run.run_id)
        if name == "failing":  # beside it, the answer as far as it came, which LangGraph loses
            *_, settled = [frame for frame in frames if frame.event == "values"]
            assert json.loads(settled.data)["messages"][-1]["content"] == "Not yet"
            compare([frame for frame in frames if frame is not settled], chunks)
        else:
            compare(frames, chunks)
        assert len({frame.id for frame in frames}) == len(frames)
        for at, frame in enumerate(frames[:-1], 1):
            assert await place.frames(run.run_id, frame.id) == frames[at:]

    asyncio.run(main())


@pytest.mark.parametrize("name", these("subgraph", "called_graph", "reporting"))
def test_without_subgraphs_only_their_messages_are_shown(journal: RunJournal, name: str) -> None:
    """Their words come as `messages`, as LangGraph Server sends them; their states do not come."""

    async def main() -> None:
        place = Place(journal, GRAPHS[name]())
        run, chunks = await place.run(HELLO)
        frames = await place.frames(run.run_id, subgraphs=False)
        flat = [("", mode, body) for space, mode, body in chunks if not space or mode in ("messages", "custom")]
        flat = [((), mode, body) for _, mode, body in flat]
        compare(frames, flat)

    asyncio.run(main())


def test_a_filter_leaves_out_frames_and_changes_no_other(journal: RunJournal) -> None:
    """A join with `stream_mode` gets the frames of these modes, with the ids that they have without it: a client that
    reconnects without the filter misses nothing. A mode that the run did not ask for is served as well."""

    async def main() -> None:
        place = Place(journal, tool_loop())
        run, _ = await place.run(HELLO)
        frames = await place.frames(run.run_id)
        for modes in (["values"], ["messages-tuple", "updates"], ["messages"], ["custom", "events"]):
            assert await place.frames(run.run_id, only=modes) == shown(frames, *modes, "end")
        few = await place.frames(run.run_id, modes=["values"], only=["updates"])
        assert [frame.data for frame in few] == [frame.data for frame in shown(frames, "updates", "end")]

    asyncio.run(main())


async def _live(place: Place, given: Any, count: int = 2, **asked: Any) -> tuple[str, list[list[Frame]]]:
    handle = await place.begin(given)
    readers = [asyncio.ensure_future(place.frames(handle.run_id, **asked)) for _ in range(count)]
    return handle.run_id, list(await asyncio.gather(*readers))


@pytest.mark.parametrize("name", these(*GRAPHS, *ASKING))
def test_a_live_stream_is_what_a_replay_is(journal: RunJournal, name: str) -> None:
    """Readers that follow the run while it is running get, byte for byte, what a reader gets afterwards."""

    async def main() -> None:
        place = Place(journal, (GRAPHS | ASKING)[name]())
        run_id, (first, second) = await _live(place, HELLO)
        warm = await place.frames(run_id)
        forget(journal)
        assert first == second == warm == await place.frames(run_id)
        assert first[-1].event == "end"

    asyncio.run(main())


@pytest.mark.parametrize("name", these("tool_loop", "sends", "subgraph", "asking", "asking_beside"))
def test_what_is_stored_late_is_waited_for(journal: RunJournal, name: str) -> None:
    """LangGraph stores what tasks have written in the background, at times after the next checkpoint or the question. A live
    stream has it all the same; so has that of the run that answers the question."""

    async def main() -> None:
        place = Place(journal, (GRAPHS | ASKING)[name](), LateWrites())
        run_id, (live,) = await _live(place, HELLO, 1)
        assert live == await place.frames(run_id)
        if name in ASKING:
            questions = json.loads(shown(live, "values")[-1].data)["__interrupt__"]
            resume = {one["id"]: "yes" for one in questions}
            next_id, (live_again,) = await _live(place, Command(resume=resume), 1, command={"resume": resume})
            forget(journal)
            assert live_again == await place.frames(next_id, command={"resume": resume})
            assert live == await place.frames(run_id)

    asyncio.run(main())


def test_the_state_comes_before_the_words_of_the_next_step(journal: RunJournal) -> None:
    """LangGraph stores a checkpoint while the next step is running already. The `values` with the input come before the
    first word, and those with the results of tools before the words that follow them."""

    async def main() -> None:
        place = Place(journal, tool_loop())
        _run_id, (frames,) = await _live(place, HELLO, 1)
        kinds = [str(frame.event) for frame in shown(frames, "metadata", "values", "messages-tuple", "updates")]
        spoken = ["messages"] * 4
        expected = ["metadata", "values", *spoken, "updates", "values", "messages", "messages", "updates", "values"]
        assert kinds == [*expected, *spoken, "messages", "updates", "values"]
        values = [json.loads(frame.data)["messages"] for frame in shown(frames, "values")]
        chunks = [json.loads(frame.data)[0]["id"] for frame in shown(frames, "messages-tuple")]
        assert list(dict.fromkeys(chunks)) == [message["id"] for message in values[-1][1:]]

    asyncio.run(main())


@NO_CONTEXT
def test_a_question_and_its_answer(journal: RunJournal) -> None:
    """A run that waits ends its stream with the question. The run that continues it begins with the state, and shows what it
    does."""

    async def main() -> None:
        place = Place(journal, ASKING["asking"]())
        asked, chunks = await place.run(HELLO)
        before = await place.frames(asked.run_id)
        compare(before, chunks)
        question = json.loads(shown(before, "values")[-1].data)
        assert [one["value"] for one in question["__interrupt__"]] == [{"go": "ahead?"}]
        assert await final_values(place.service, place.graph, asked) == question
        answered, chunks = await place.run(Command(resume="yes"))
        frames = await place.frames(answered.run_id, command={"resume": "yes"})
        compare(frames, chunks)
        assert [frame.event for frame in shown(frames, "metadata", "values", "messages-tuple", "updates")] == [
            *("metadata", "values", "messages", "updates", "values")
        ]

    asyncio.run(main())


@pytest.mark.parametrize("name", these(*ASKING))
def test_a_question_stays_what_it_was_when_it_is_answered(journal: RunJournal, name: str) -> None:
    """All questions come in one frame. The run that answers them adds what its tasks have written to the same checkpoint,
    and changes nothing in the stream of the first; both can be read from any cursor on."""

    async def main() -> None:
        place = Place(journal, ASKING[name]())
        asked, _ = await place.run(HELLO)
        before = await place.frames(asked.run_id)
        questions = json.loads(shown(before, "values")[-1].data)["__interrupt__"]
        assert len(questions) == (2 if name == "asking_beside" else 1)
        resume = {one["id"]: "yes" for one in questions}
        answered, _ = await place.run(Command(resume=resume))
        forget(journal)
        assert await place.frames(asked.run_id) == before
        frames = await place.frames(answered.run_id, command={"resume": resume})
        updates = [name for space, body in said(frames, "updates") if not space for name in body]
        expected = {"asking": ["ask"], "asking_inside": ["sub"], "asking_beside": ["ask", "ask_more"]}
        assert updates == expected[name]
        for at, frame in enumerate(frames[:-1], 1):
            assert await place.frames(answered.run_id, frame.id, command={"resume": resume}) == frames[at:]

    asyncio.run(main())


@pytest.mark.parametrize("stop", [{"interrupt_before": ["tools"]}, {"interrupt_after": ["agent"]}])
def test_a_run_that_stops_at_a_node_shows_what_it_did(journal: RunJournal, stop: dict[str, Any]) -> None:
    """A breakpoint is an `__interrupt__` without questions, and no task is said to begin behind it."""

    async def main() -> None:
        place = Place(journal, tool_loop())
        run, chunks = await place.run(HELLO, **stop)
        before = await place.frames(run.run_id, **stop)
        # Older releases of LangGraph do not show the last checkpoint of such a run.
        last = [] if "interrupt_after" in stop else ["checkpoints", "debug"]
        compare(before, chunks, ["values", "updates", "messages", "tasks", *last])
        again, chunks = await place.run(None)
        compare(await place.frames(again.run_id), chunks)
        assert await place.frames(run.run_id, **stop) == before

    asyncio.run(main())


async def _until_words(frames: AsyncIterator[Sequence[Frame]], count: int) -> list[Frame]:
    found: list[Frame] = []
    async for batch in frames:
        found += batch
        if len(shown(found, "messages-tuple")) >= count:
            return found
    raise AssertionError("the stream has ended")


def test_a_stopped_answer_is_in_the_last_values(journal: RunJournal) -> None:
    """After a Stop, the last `values` frame has the answer as far as it was shown, under the id that its chunks have, and
    with a cursor. It comes before the end, and again in each replay; `join` answers with it."""

    async def main() -> None:
        gate = Gate(3)
        place = Place(journal, held(gate))
        handle = await place.begin(HELLO)
        batches = place.stream(handle.run_id).batches()
        found = await _until_words(batches, 3)
        await handle.stop()
        found += [frame async for batch in batches for frame in batch]
        *_, settled, end = found
        assert (settled.event, end.event) == ("values", "end")
        assert settled.id
        last = json.loads(settled.data)["messages"][-1]
        chunks = [json.loads(frame.data)[0] for frame in shown(found, "messages-tuple")]
        assert last["content"].split() == "".join(chunk["content"] for chunk in chunks).split() == ["w0", "w1", "w2"]
        assert {chunk["id"] for chunk in chunks} == {last["id"]}
        assert await place.frames(handle.run_id) == found
        run = await journal.arun(handle.run_id)
        assert await final_values(place.service, place.graph, run) == json.loads(settled.data)

    asyncio.run(main())


def test_an_error_is_replayed(journal: RunJournal) -> None:
    """The `error` frame has the class and the text of the error, and a cursor; `wait` and `join` answer with both."""

    async def main() -> None:
        place = Place(journal, GRAPHS["failing"]())
        run, _ = await place.run(HELLO)
        frames = await place.frames(run.run_id, modes=["values"])
        error = {"error": "ValueError", "message": "kaboom: it has failed"}
        assert [frame.event for frame in frames] == ["metadata", "values", "values", "error", "end"]
        assert json.loads(frames[3].data) == error
        assert frames[3].id
        assert await final_values(place.service, place.graph, run) == {"__error__": error}

    asyncio.run(main())


def test_partial_messages_grow(journal: RunJournal) -> None:
    """`messages` repeats each message as far as it has come, after one frame with its metadata; results of tools come whole,
    with the ids that they have in the state."""

    async def main() -> None:
        place = Place(journal, tool_loop())
        run, _ = await place.run(HELLO)
        frames = await place.frames(run.run_id, modes=["messages"])
        final = (await final_values(place.service, place.graph, run))["messages"]
        introduced = [next(iter(body)) for _, body in said(frames, "messages/metadata")]
        assert introduced == [message["id"] for message in final[1:]]
        assert [body[0] for _, body in said(frames, "messages/complete")] == final[2:4]
        partial = [body[0] for _, body in said(frames, "messages/partial")]
        assert [one["content"] for one in partial[-4:]] == ["Both", "Both are", "Both are sunny.", "Both are sunny."]
        assert [call["args"] for call in partial[2]["tool_calls"]] == [{"q": "Oslo"}, {"q": "Rome"}]
        assert {one["type"] for one in partial} == {"ai"}

    asyncio.run(main())


def test_calls_that_langgraph_does_not_stream_stay_unsaid(journal: RunJournal) -> None:
    """Neither a call tagged `nostream` nor a plain text model has `messages` frames of its own. What their node gives comes
    whole."""

    async def told(state: MessagesState, config: Any) -> dict[str, Any]:
        text = await PlainText(says="abc").ainvoke("say", config)
        hidden = await model(words("x", "y")).with_config(tags=["nostream"]).ainvoke("say", config)
        return {"messages": [AIMessage(text, id="text"), hidden]}

    async def main() -> None:
        graph = StateGraph(MessagesState)
        graph.add_node("told", told)
        graph.add_edge(START, "told")
        place = Place(journal, graph)
        run, chunks = await place.run(HELLO)
        frames = await place.frames(run.run_id)
        compare(frames, chunks, ["messages"])
        assert [body[0]["content"] for _, body in said(frames, "messages")] == ["abc", "xy"]

    told.__annotations__["config"] = "RunnableConfig"
    asyncio.run(main())


def test_long_arguments_are_repeated_once(journal: RunJournal) -> None:
    """A parser that is asked for each part of long arguments would hold up all readers. In the mode that repeats messages,
    they come when they are complete."""

    async def main() -> None:
        long = {"q": "\\u00e4" * 5_000}
        text = json.dumps(long)
        parts = [
            tool_call_chunk(name="look" if at == 0 else None, args=text[at : at + 300], id=None, index=0)
            for at in range(0, len(text), 300)
        ]
        calling = [AIMessageChunk(content="", tool_call_chunks=[part]) for part in parts]
        graph = StateGraph(MessagesState)
        graph.add_node("agent", answers(model([*words("So"), *calling])))
        graph.add_edge(START, "agent")
        place = Place(journal, graph)
        run, chunks = await place.run(HELLO)
        frames = await place.frames(run.run_id)
        compare(frames, chunks, ["messages"])
        partial = [body[0] for _, body in said(frames, "messages/partial")]
        assert partial[-1] == (await final_values(place.service, place.graph, run))["messages"][-1]
        assert partial[-1]["tool_calls"][0]["args"] == long
        assert 30 < len(partial) < 40 < len(parts)

    asyncio.run(main())


@NO_CONTEXT
def test_events_have_what_ag_ui_reads(journal: RunJournal) -> None:
    """The nodes, the calls of models and tools in them, and custom events, with the ids that the other modes have."""

    async def main() -> None:
        place = Place(journal, tool_loop())
        run, _ = await place.run(HELLO)
        frames = await place.frames(run.run_id, input={"messages": []})
        events = [body for _, body in said(frames, "events")]
        words_of = [one["data"]["chunk"] for one in events if one["event"] == "on_chat_model_stream"]
        chunks = [body[0] for _, body in said(frames, "messages") if body[0]["type"] == "AIMessageChunk"]
        assert words_of == [chunk for chunk in chunks if chunk["chunk_position"] is None]
        calls = [one["run_id"] for one in events if one["event"] == "on_chat_model_start"]
        assert [f"lc_run--{call}" for call in calls] == list(dict.fromkeys(chunk["id"] for chunk in chunks))
        results = [one["data"]["output"]["tool_call_id"] for one in events if one["event"] == "on_tool_end"]
        assert sorted(results) == ["c1", "c2"]
        chains = [(one["event"], one["name"]) for one in events if one["event"].startswith("on_chain_")]
        node = lambda name: [(f"on_chain_{what}", name) for what in ("start", "stream", "end")]  # noqa: E731
        assert chains == [("on_chain_start", "g"), *node("agent"), *node("tools"), *node("agent"), ("on_chain_end", "g")]
        assert all(one["metadata"]["who"] == "me" and "parent_ids" in one for one in events)
        reporting = Place(journal, GRAPHS["reporting"]())
        run, _ = await reporting.run({"messages": [HumanMessage("hello", id="h2")]})
        custom = [body for _, body in said(await reporting.frames(run.run_id), "events")]
        assert [(one["name"], one["data"]) for one in custom if one["event"] == "on_custom_event"] == [
            ("half", {"way": True})
        ]

    asyncio.run(main())


def test_checkpoints_that_are_gone_leave_the_newest_values(journal: RunJournal) -> None:
    """Where the saver keeps only the newest state, or the run has stored only that, the stream has the words and the last
    values."""

    async def main() -> None:
        place = Place(journal, tool_loop())
        run, _ = await place.run(HELLO)
        whole = await place.frames(run.run_id, modes=["values", "messages-tuple"])
        kept = max(place.saver.storage["t"][""])
        place.saver.storage["t"][""] = {kept: place.saver.storage["t"][""][kept]}
        forget(journal)
        frames = await place.frames(run.run_id, modes=["values", "messages-tuple"])
        assert shown(frames, "values")[-1].data == shown(whole, "values")[-1].data
        assert len(shown(frames, "messages-tuple")) == len(shown(whole, "messages-tuple")) - 2  # without those of tools
        place.saver.delete_thread("t")
        forget(journal)
        gone = await place.frames(run.run_id, modes=["values", "messages-tuple"])
        assert not shown(gone, "values")
        assert gone[-1].event == "end"

    asyncio.run(main())


def test_a_run_that_stores_only_its_end(journal: RunJournal) -> None:
    """With `durability="exit"`, the words come at once, and the values at the end."""

    async def main() -> None:
        place = Place(journal, tool_loop())
        run, _ = await place.run(HELLO, durability="exit")
        frames = await place.frames(run.run_id, durability="exit")
        values = shown(frames, "values")
        assert [len(json.loads(frame.data)["messages"]) for frame in values] == [5]
        assert [frame.event for frame in shown(frames, "messages-tuple", "values")][-1] == "values"

    asyncio.run(main())


def test_a_reader_waits_for_a_run_that_has_not_begun(journal: RunJournal) -> None:
    """A join of a run that waits in line gets empty batches, from which the connection makes signs of life, and then the
    run. If the run never begins, it gets the end."""

    async def main() -> None:
        place = Place(journal, tool_loop())
        run, _ = await place.run(HELLO)
        stream, has_begun = place.stream(run.run_id), asyncio.Event()

        async def begun() -> Any:
            await has_begun.wait()
            return await journal.arun(run.run_id)

        stream._begun = begun
        batches = stream.batches()
        assert [list(await anext(batches)) for _ in range(3)] == [[], [], []]
        has_begun.set()
        frames = [frame async for batch in batches for frame in batch]
        assert frames == await place.frames(run.run_id)
        assert stream.is_complete

        async def never() -> None:
            return None

        stream = place.stream(run.run_id)
        stream._begun = never
        assert [[frame.event for frame in batch] async for batch in stream.batches()][-1] == ["end"]

    asyncio.run(main())


@pytest.mark.parametrize("cursor", ["", "-1", "0", "nonsense", "other-run:3", "\x00"])
def test_a_cursor_that_cannot_be_used_leads_to_everything(journal: RunJournal, cursor: str) -> None:
    """Nothing is missed, and nothing is said about it: these clients know no reset."""

    async def main() -> None:
        place = Place(journal, tool_loop())
        run, _ = await place.run(HELLO)
        assert await place.frames(run.run_id, cursor) == await place.frames(run.run_id)

    asyncio.run(main())


def fields_of(value: Any, path: str = "") -> set[str]:
    """Return the paths of the fields of a frame, without what an application puts in."""
    found: set[str] = set()
    if isinstance(value, list):
        return found.union(*(fields_of(one, f"{path}[]") for one in value))
    for key, one in value.items() if isinstance(value, dict) else ():
        found.add(f"{path}.{key}")
        found |= set() if key in APPLICATION else fields_of(one, f"{path}.{key}")
    return found


APPLICATION = {"messages", "values", "input", "result", "args", "value", "checkpoint_map"}
APPLICATION |= {"usage_metadata", "response_metadata", "additional_kwargs"}
PROMPT = {"events on_chat_model_end": {".data.input"}}
"""Not kept with the words of a call: the prompt."""


@NO_CONTEXT
def test_recorded_frames_have_no_field_that_ours_lack(journal: RunJournal) -> None:
    """Each field of the frames that were recorded from the reference server is in ours."""

    def by_event(frame: Frame) -> dict[str, Any]:
        event, body = str(frame.event).partition("|")[0], json.loads(frame.data)
        match event:
            case "messages":
                return {f"messages {body[0]['type']}": body[0], "messages meta": body[1]}
            case "messages/metadata":
                return {event: next(iter(body.values()))}
            case "events":
                return {f"events {body['event']}": body}
            case "tasks":
                return {f"tasks {'end' if 'result' in body else 'start'}": body}
            case "debug":
                return {f"debug {body['type']}": body}
        return {event: body}

    async def main() -> None:
        found: dict[str, set[str]] = {}
        for name in ("tool_loop", "subgraph", "failing", "asking"):
            place = Place(journal, (GRAPHS | ASKING)[name]())
            run, _ = await place.run({"messages": [HumanMessage("hello", id=name)]})
            for frame in await place.frames(run.run_id):
                for key, body in by_event(frame).items():
                    found.setdefault(key, set()).update(fields_of(body))
        for key, recorded in FIELDS.items():
            wanted = {path if path.startswith("[]") else f".{path}" for path in recorded.split()}
            assert wanted - found[key] <= PROMPT.get(key, set()), key

    asyncio.run(main())


def test_all_modes_are_known() -> None:
    """The modes that a client may ask for."""
    from langchain_runjournal.server.langgraph.modes import projector

    assert set(projector.ALL) == set(ALL)


def test_a_run_that_was_read_before_its_first_event_is_shown_alike() -> None:
    """The row of a run is there a moment before the event that begins it, and lacks most of its metadata."""
    first = Event(run_id="r", kind="run.start", seq=1, data={"thread_id": "t", "name": "agent", "metadata": {"lc": 1}})
    early = Run(run_id="r", thread_id="t", metadata={"runjournal_graph": "agent"})
    assert begun_by(early, first).metadata == {"lc": 1}
    later = Run(run_id="r", thread_id="t", metadata={"lc": 1}, last_seq=7, status=RunStatus.COMPLETED)
    assert begun_by(later, first) is later
