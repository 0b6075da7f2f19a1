"""Two messages at once on a thread, in one process: one is rejected, takes the place of the other, or waits in line."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from langgraph.types import Command

from langchain_runjournal import Event, Run, RunHandle, RunStatus, attach, errors, start_run
from langchain_runjournal.capture.recorder import recorder_of
from langchain_runjournal.events.segments import pack
from langchain_runjournal.journal.core import core_of
from langchain_runjournal.runs.admission import Admission
from tests.support.agents import words
from tests.support.conversations import PATIENCE, Gate, build, story, the_rest, until, until_said
from tests.support.places import PLACES, in_places, place_of
from tests.support.started_agent import SAVERS, Talk, asking, everywhere, facts, needs_311, on, on_a_loop, say, talking

pytestmark = pytest.mark.usefixtures("place")
place = in_places(*PLACES, slow=["postgres"], storm=["redis"])
DONE = ("completed", None, True)


@pytest.mark.parametrize("saver", SAVERS)
@on_a_loop
async def test_reject(tmp_path: Path, saver: str) -> None:
    """`ThreadBusy` names the run that has the thread; nothing has begun, and that run continues. Other threads are free."""
    async with talking(tmp_path, saver) as talk:
        handle = await talk.start_held()
        for options in ({}, {"if_busy": "reject"}):
            with pytest.raises(errors.ThreadBusy) as raised:
                await talk.start("me too", **options)
            assert (raised.value.run_id, raised.value.thread_id) == (handle.run_id, "t")
        talk.model.say(words("else"))
        assert facts(await (await talk.start("elsewhere", "u")).wait()) == DONE
        other = attach(build("by hand", talk.model, talk.tools, talk.saver, "another"), talk.journal)
        assert facts(await (await start_run(other, say("hi"), on("v"))).wait()) == DONE
        talk.gate.open()
        assert facts(await handle.wait()) == DONE
        assert [run.run_id for run in await talk.journal.aruns("t")] == [handle.run_id]
        await talk.goes_on("U go", "A one two three")


@everywhere
async def test_stop(tmp_path: Path, kind: str, saver: str) -> None:
    """The other run is stopped, cause "superseded", and settled, before the model sees what it left."""
    async with talking(tmp_path, saver, kind) as talk:
        handle = await talk.start_held()
        talk.model.say(words("fi", "ne"))
        second = await talk.start("rather this", if_busy="stop")
        first = await asyncio.wait_for(handle.wait(), PATIENCE)
        assert facts(first) == ("interrupted", "superseded", True)
        assert facts(await second.wait()) == DONE
        assert story(talk.model.seen[-1]) == ["U go", "A~ one two ", "U rather this"]
        begun = (await talk.journal.arun(second.run_id)).started_at
        assert first.ended_at is not None
        assert begun >= first.started_at
        await talk.goes_on("U go", "A~ one two ", "U rather this", "A fine")


@pytest.mark.parametrize("saver", SAVERS)
@on_a_loop
async def test_wait(tmp_path: Path, saver: str) -> None:
    """Five runs that wait begin in the order in which they came, one at a time."""
    async with talking(tmp_path, saver) as talk:
        handle = await talk.start_held()
        talk.model.say(words("fine"))
        waiting = []
        for number in range(5):
            waiting.append(asyncio.create_task(talk.start(f"w{number}", if_busy="wait")))
            await asyncio.sleep(0)
        await asyncio.sleep(0.05)  # no event shows that nothing happens
        assert not any(one.done() for one in waiting)
        assert len(await talk.journal.aruns("t")) == 1
        talk.gate.open()
        handles = await asyncio.wait_for(asyncio.gather(*waiting), PATIENCE)
        assert [facts(await one.wait()) for one in (handle, *handles)] == [DONE] * 6
        assert [run.run_id for run in await talk.journal.aruns("t")] == [one.run_id for one in (handle, *handles)][::-1]
        later = [line for number in range(5) for line in (f"U w{number}", "A fine")]
        await talk.goes_on("U go", "A one two three", *later)


@on_a_loop
async def test_a_waiting_run_is_cancelled(tmp_path: Path) -> None:
    """The run leaves no trace, and hinders no other: the runs before it and after it in line begin."""
    async with talking(tmp_path) as talk:
        handle = await talk.start_held()
        talk.model.say(words("fine"))
        waiting = [asyncio.create_task(talk.start(f"w{number}", if_busy="wait")) for number in range(5)]
        await asyncio.sleep(0.05)  # no event shows that nothing happens
        for number in (0, 2, 4):
            waiting[number].cancel()
        await asyncio.wait([waiting[number] for number in (0, 2, 4)])
        assert len(await talk.journal.aruns("t")) == 1
        talk.gate.open()
        handles = await asyncio.wait_for(asyncio.gather(waiting[1], waiting[3]), PATIENCE)
        assert [facts(await one.wait()) for one in (handle, *handles)] == [DONE] * 3
        left = await talk.thread()
        assert sorted(left) == sorted(["U go", "A one two three", "U w1", "A fine", "U w3", "A fine"])
        await talk.goes_on(*left)


@on_a_loop
async def test_a_waiting_run_is_cancelled_and_the_others_stay_in_line(tmp_path: Path) -> None:
    """The runs behind it, and those that come later, still begin after the runs before it."""
    async with talking(tmp_path) as talk:
        await talk.start_held()
        talk.model.say(words("fine"))
        waiting = [asyncio.create_task(talk.start(f"w{number}", if_busy="wait")) for number in range(2)]
        for _ in range(10):
            await asyncio.sleep(0)
        waiting[1].cancel()
        await asyncio.wait(waiting[1:])
        last = asyncio.create_task(talk.start("last", if_busy="wait"))
        talk.gate.open()
        handles = await asyncio.gather(waiting[0], last)
        assert {(await one.wait()).ended for one in handles} == {True}
        asked = [line for line in await talk.thread() if line.startswith("U")]
        assert asked == ["U go", "U w0", "U last"]


@on_a_loop
async def test_some_wait_and_some_take_the_place(tmp_path: Path) -> None:
    """In any mixture, the runs begin one at a time, each whole, in the order of the line."""
    async with talking(tmp_path, "file") as talk:
        await talk.start_held()
        talk.model.say([*words("fi"), lambda: asyncio.sleep(0), *words("ne")])
        how = ["stop", "wait", "wait"] * 3
        starting = [asyncio.create_task(talk.start(f"w{number}", if_busy=how[number])) for number in range(9)]
        found = await asyncio.wait_for(asyncio.gather(*starting, return_exceptions=True), PATIENCE)
        handles: list[Any] = [one for one in found if isinstance(one, RunHandle)]
        assert len(handles) == 9
        ends = [facts(await one.wait()) for one in handles]
        assert set(ends) <= {DONE, ("interrupted", "superseded", True)}
        runs = await talk.journal.aruns("t")
        assert facts(runs[-1]) == ("interrupted", "superseded", True)
        asked = [line for line in await talk.thread() if line.startswith("U")]
        assert asked[0] == "U go"
        assert sorted(asked[1:]) == asked[1:]
        for run, after in zip(runs[1:], runs, strict=False):
            # The clock of the journal counts milliseconds.
            assert (run.ended_at or 0) <= (await talk.journal.aread(after.run_id))[0].at + 0.001


@pytest.mark.parametrize("how", ["stop", "wait"])
@on_a_loop
async def test_the_one_that_is_waited_for_is_stopped_or_paused(tmp_path: Path, how: str) -> None:
    """The thread is free when any process has stopped the run. A stop of that run does not reach the run that waited."""
    async with talking(tmp_path) as talk:
        handle = await talk.start_held()
        talk.model.say([talk.gate.apass, *words("fine")])
        starting = asyncio.create_task(talk.start("next", if_busy=how))
        stops = await asyncio.gather(*[handle.stop("timeout") for _ in range(3)])
        assert {facts(run)[0] for run in stops} == {"interrupted"}
        second = await asyncio.wait_for(starting, PATIENCE)
        await handle.stop()
        assert (await talk.journal.arun(second.run_id)).stop is None
        talk.gate.open()
        assert facts(await second.wait()) == DONE
        await talk.goes_on("U go", "A~ one two ", "U next", "A fine")


@on_a_loop
async def test_a_run_without_start_run_counts(tmp_path: Path) -> None:
    """A plain `astream` of the attached graph has its thread as well: `start_run` rejects the next message, or waits for the
    end."""
    async with talking(tmp_path) as talk:
        talk.model.say([*words("one "), talk.gate.apass, *words("two")])

        async def plain() -> None:
            async for _ in talk.agent.astream(say("plain"), on("t")):
                pass

        going = asyncio.create_task(plain())
        await asyncio.wait_for(talk.gate.reached.wait(), PATIENCE)
        with pytest.raises(errors.ThreadBusy) as raised:
            await talk.start("me too")
        assert [run.run_id for run in await talk.journal.aruns("t")] == [raised.value.run_id]
        waiting = asyncio.create_task(talk.start("later", if_busy="wait"))
        await asyncio.sleep(0.05)  # no event shows that nothing happens
        assert not waiting.done()
        talk.model.say(words("fine"))
        talk.gate.open()
        await going
        assert facts(await (await asyncio.wait_for(waiting, PATIENCE)).wait()) == DONE
        await talk.goes_on("U plain", "A one two", "U later", "A fine")


@on_a_loop
async def test_to_take_the_place_where_others_wait(tmp_path: Path) -> None:
    """The run that has the thread is stopped at once, and not only when the runs before in line have run."""
    async with talking(tmp_path) as talk:
        handle = await talk.start_held()
        talk.model.say(words("fine"))
        starting = [asyncio.create_task(talk.start(how, if_busy=how)) for how in ("wait", "stop")]
        try:
            run = await asyncio.wait_for(handle.wait(), 1.0)
            assert facts(run) == ("interrupted", "superseded", True)
        finally:
            talk.gate.open()
            handles = await asyncio.gather(*starting)
            assert {(await one.wait()).ended for one in handles} == {True}


@on_a_loop
async def test_a_run_that_waits_while_the_journal_is_closed(tmp_path: Path) -> None:
    """It raises `JournalClosed`, or the journal stops it as well: no run is left behind that seems to be running."""
    async with talking(tmp_path) as talk:
        journal = place_of(tmp_path).open()
        cleaning = Gate()

        async def cleans_up() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                await cleaning.apass()

        ours = Talk(journal, talk.saver)
        try:
            ours.model.say([*words("long"), cleans_up])
            long = await ours.start("long", "u", grace=PATIENCE)
            await until_said(journal, long.run_id, "llm.ai.delta")
            handle = await ours.start_held()
            waiting = asyncio.create_task(ours.start("later", if_busy="wait"))
            closing = asyncio.create_task(journal.aclose())
            await asyncio.wait_for(cleaning.reached.wait(), PATIENCE)
            assert facts(await handle.wait()) == ("interrupted", "shutdown", True)
            # It begins or raises while the journal waits for the node that cleans up.
            await asyncio.wait([waiting], timeout=3.0)
            cleaning.open()
            await closing
            await asyncio.wait([waiting], timeout=PATIENCE)
            assert waiting.exception() is None or isinstance(waiting.exception(), errors.JournalClosed)
            runs = [(run.ended, run.settled) for run in await talk.journal.aruns()]
            assert set(runs) == {(True, True)}
        finally:
            ours.gate.open()
            await the_rest()


VICTIM = """
import asyncio, sys
from pathlib import Path
from tests.support.started_agent import talking

async def main():
    async with talking(Path(sys.argv[1]), "file") as talk:
        handle = await talk.start_held()
        await talk.journal.aflush()
        print(handle.run_id, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.parametrize("if_busy", ["reject", "stop", "wait"])
@on_a_loop
async def test_the_run_of_a_dead_owner(tmp_path: Path, if_busy: str) -> None:
    """It does not make the thread busy: the next run settles it, cause "crash", before it begins."""
    process = subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, "-c", VICTIM, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    try:
        assert process.stdout is not None
        run_id = (await asyncio.get_running_loop().run_in_executor(None, process.stdout.readline)).strip()
        async with talking(tmp_path, "file") as talk:
            with pytest.raises(errors.ThreadBusy, match=run_id):
                await talk.start("too early")
            process.kill()
            process.wait()
            talk.model.say(words("fine"))
            handle = await asyncio.wait_for(talk.start("next", if_busy=if_busy), PATIENCE)
            assert facts(await handle.wait()) == DONE
            assert facts(await talk.journal.arun(run_id)) == ("interrupted", "crash", True)
            assert story(talk.model.seen[-1]) == ["U go", "A~ one two ", "U next"]
            await talk.goes_on("U go", "A~ one two ", "U next", "A fine")
    finally:
        process.kill()
        process.communicate()


@on_a_loop
async def test_many_at_the_same_moment(tmp_path: Path) -> None:
    """Exactly one run begins, and the other calls raise `ThreadBusy` with its id."""
    async with talking(tmp_path) as talk:
        talk.model.say([talk.gate.apass, *words("fine")])
        found = await asyncio.gather(*[talk.start(f"m{number}") for number in range(20)], return_exceptions=True)
        begun: list[Any] = [one for one in found if isinstance(one, RunHandle)]
        busy = [one for one in found if isinstance(one, errors.ThreadBusy)]
        assert (len(begun), len(busy)) == (1, 19)
        assert {one.run_id for one in busy} == {begun[0].run_id}
        await until(talk.gate.held.is_set)
        talk.gate.open()
        assert facts(await begun[0].wait()) == DONE
        assert len(await talk.journal.aruns("t")) == 1


@needs_311
@on_a_loop
async def test_an_answer_that_comes_too_late_resumes_nothing(tmp_path: Path) -> None:
    """Of several answers, one resumes the paused run and names it; the others find no run that waits."""
    async with talking(tmp_path) as talk:
        agent = asking(talk)
        paused = await (await start_run(agent, say("go"), on("t"))).wait()
        talk.model.say(words("fine"))
        answers = [start_run(agent, Command(resume=str(n)), on("t"), if_busy="wait") for n in range(3)]
        runs = [await handle.wait() for handle in await asyncio.gather(*answers)]
        assert sorted(str(run.continues) for run in runs) == sorted(["None", "None", paused.run_id])


@on_a_loop
async def test_a_run_whose_settlement_is_about_to_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is over keeps its thread until it is settled, also in the moment before its settlement begins."""
    async with talking(tmp_path) as talk:
        handle = await talk.start_held()
        talk.model.say(words("fine"))
        seen, loop = asyncio.Event(), asyncio.get_running_loop()
        looks = iter([True])

        def is_idle(*_: str) -> bool:
            found = next(looks, False)
            if not found:
                loop.call_soon_threadsafe(seen.set)
            return found

        monkeypatch.setattr(recorder_of(talk.journal).threads, "is_idle", is_idle)
        starting = asyncio.create_task(talk.start("next", if_busy="wait"))
        await asyncio.wait({starting, asyncio.create_task(seen.wait())}, return_when=asyncio.FIRST_COMPLETED)
        assert not starting.done()
        talk.gate.open()
        assert facts(await handle.wait()) == DONE
        assert facts(await (await asyncio.wait_for(starting, PATIENCE)).wait()) == DONE


@on_a_loop
async def test_a_run_that_is_being_recovered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A journal has claimed the run of a dead owner, and settles it: the next message waits for that, and is not refused."""
    async with talking(tmp_path) as talk:
        talk.model.say(words("hello"))
        before = await (await talk.start()).wait()
        store, me = core_of(talk.journal).store, talk.journal.owner_id
        left = replace(before, run_id="left", status=RunStatus.RUNNING, owner="a dead owner", ended_at=None, last_seq=0)
        assert store.begin(left, ()) == []
        assert store.claim("left", me, 1)
        asked, loop = asyncio.Event(), asyncio.get_running_loop()
        patience_with = Admission._patience_with

        def ask(admission: Admission, running: Run) -> float:
            found = patience_with(admission, running)
            loop.call_soon_threadsafe(asked.set)
            return found

        monkeypatch.setattr(Admission, "_patience_with", ask)
        talk.model.say(words("fine"))
        starting = asyncio.create_task(talk.start("next"))
        await asyncio.wait_for(asked.wait(), PATIENCE)
        end = Event(run_id="left", kind="run.end", data={"status": "interrupted", "cause": "crash"}, seq=1, at=1.0)
        store.append(me, [pack("left", 2, [end])])
        run = await (await asyncio.wait_for(starting, PATIENCE)).wait()
        assert facts(run) == ("completed", None, True)
