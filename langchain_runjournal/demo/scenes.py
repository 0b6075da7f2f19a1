"""The demonstration: three scenes in which an agent is cut off, and what is left of each."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from ..common.wording import plural
from ..events import Run
from .agent import BOOK, PLAN, TRIP
from .comparison import ATTACHED, WITHOUT, show_left
from .directory import PROBLEMS, DemoFailed, advice, demo_directory
from .screen import Screen, complain
from .side_by_side import Heard, Left, Pair, cancel, open_pair, until
from .victim_process import VictimProcess

PACE: Final = "RUNJOURNAL_DEMO_PACE"
_WORDS: Final = 26
"""The number of words that the user sees before an answer is cut off."""


@dataclass
class Scene:
    """The outcome of one scene."""

    shown: str
    """The words of an answer that was cut off in the middle."""
    finished: list[str]
    """The results of the tools that had finished."""
    without: Left
    attached: Left

    def lost(self) -> bool:
        """Return whether the journal lost anything."""
        left = self.attached
        has_all = left.characters(self.shown) == len(self.shown) and left.results(self.finished) == len(self.finished)
        return left.refused is not None or bool(left.missing()) or not has_all


def play(console: Console, directory: Path | None, pace: float) -> int:
    """Play it all: see `demo.play`."""
    screen = Screen(console)
    try:
        pace *= _pace_of_environment()
        with demo_directory(directory) as place:
            return asyncio.run(Play(screen, place, pace).play())
    except BrokenPipeError:
        raise  # the reader closed the pipe: the caller exits with 141
    except KeyboardInterrupt:
        screen.end_after_error()
        return 130
    except PROBLEMS as problem:
        screen.end_after_error()
        complain(advice(problem, directory))
        return 1


def _pace_of_environment() -> float:
    given = os.environ.get(PACE, "1")
    try:
        pace = float(given)
        if not 0 <= pace <= 1000:
            raise ValueError
        return pace
    except ValueError:
        raise DemoFailed(f"{PACE} must be a number, such as 0.5 for twice as fast, and is {given!r}.") from None


class Play:
    """One run of the demonstration."""

    def __init__(self, screen: Screen, directory: Path, pace: float) -> None:
        self._screen = screen
        self._directory = directory
        self._pace = pace
        self._number = uuid.uuid4().hex[:6]
        self._threads = [f"{name}-{self._number}" for name in ("sentence", "tools", "killed")]

    async def play(self) -> int:
        """Play the three scenes. Return the exit code."""
        victim = VictimProcess(self._directory, self._threads[2], self._pace)
        try:
            async with open_pair(self._directory, self._pace) as pair:
                self._open()
                scenes = [await self._sentence(pair), await self._tools(pair), await self._kill(pair, victim)]
                self._verdict(scenes)
                runs = [(await pair.journal.aruns(thread_id, limit=None))[-1:] for thread_id in self._threads]
                self._leave(pair, [run for found in runs for run in found])
        finally:
            victim.close()
        if any(scene.lost() for scene in scenes):
            self._screen.line(
                ("The journal has lost something that was shown. This is a bug: please report it,", "bold red"),
                (f" with what is in {self._directory}.", "bold red"),
            )
            return 1
        return 0

    def _open(self) -> None:
        screen = self._screen
        screen.line("")
        screen.line(("An agent is cut off three times. What is left of what you saw?", "bold"), indent=1)
        screen.line("The same agent runs twice at the same time: as it is, and with one line more:", indent=1)
        screen.line(("agent = attach(agent, journal)", "green"), indent=5)

    async def _rest(self, seconds: float) -> None:
        await asyncio.sleep(seconds * self._pace)

    async def _scene(self, number: int, title: str, look: str, words: str) -> None:
        screen = self._screen
        screen.line("")
        heading = screen.signs(Text.assemble((f"{number} · {title}", "bold")))
        screen.console.print(Rule(heading, align="left", style="dim"), width=screen.width)
        screen.line((look, "italic"), indent=1)
        screen.line("")
        await self._rest(0.5)
        screen.begin("you")
        screen.words(words, "cyan")
        await self._rest(0.3)
        screen.begin("agent")

    def _show(self, what: str, words: str) -> None:
        if what == "words":
            self._screen.words(words)
        elif what == "result":
            self._screen.line(("✓ ", "bold green"), words, indent=9)

    async def _sentence(self, pair: Pair) -> Scene:
        await self._scene(1, "Stop in the middle of a sentence", "Look for the half answer: is it still there?", TRIP)
        heard = Heard(), Heard(self._show)
        await self._run(pair, 0, TRIP, heard, lambda: all(_words(one.text) >= _WORDS for one in heard))
        self._cut("■ Stop")
        return await self._left(pair, 0, heard[1].text, [])

    async def _tools(self, pair: Pair) -> Scene:
        await self._scene(
            2,
            "Stop while three tools are at work",
            "Two bookings are made when you press Stop: does the agent remember them?",
            BOOK,
        )
        heard = Heard(), Heard(self._show)
        await self._run(pair, 1, BOOK, heard, lambda: all(len(one.results) == 2 for one in heard), wait=0.5)
        self._screen.line(("■ Stop", "bold white on red"), (" while the car is being booked", "red"), indent=9)
        return await self._left(pair, 1, "", heard[1].results)

    async def _run(
        self,
        pair: Pair,
        scene: int,
        words: str,
        heard: tuple[Heard, Heard],
        enough: Callable[[], bool],
        wait: float = 0.0,
    ) -> None:
        tasks = await pair.say(self._threads[scene], words, heard)
        try:
            await until(enough, heard, tasks)
            await self._rest(wait)
        finally:
            await cancel(tasks)

    async def _kill(self, pair: Pair, victim: VictimProcess) -> Scene:
        await self._scene(
            3, "kill -9 in the middle of an answer", "The process ends without a word: what does the next one find?", PLAN
        )
        heard: list[str] = []

        def show(what: str, words: str) -> None:
            if what == "words":
                heard.append(words)
            self._show(what, words)

        await victim.answer(show, lambda: _words("".join(heard)) >= _WORDS)
        status = await victim.kill(show)
        self._cut("■ kill -9")
        reports = await pair.journal.arecover(pair.attached.agent)
        added = sum(len(one.messages) for one in reports)
        found = plural(added, "message")
        gone = f"It ended with {status}. The next process recovers {found}."
        self._screen.line((gone, "dim"), indent=9)
        return await self._left(pair, 2, "".join(heard), [])

    def _cut(self, sign: str) -> None:
        self._screen.mark(sign, "bold white on red")
        self._screen.end()

    async def _left(self, pair: Pair, scene: int, shown: str, finished: list[str]) -> Scene:
        await self._rest(0.7)
        without, attached = await pair.left(self._threads[scene])
        show_left(self._screen, without, attached)
        await self._rest(2.2)
        return Scene(shown, finished, without, attached)

    def _verdict(self, scenes: list[Scene]) -> None:
        screen = self._screen
        table = Table.grid(padding=(0, 3, 0, 0))
        table.add_column()
        for _ in range(2):
            table.add_column(justify="right")
        table.add_row("", Text(*WITHOUT), Text(*ATTACHED))
        shown = sum(len(one.shown) for one in scenes)
        sides = [
            [(one.shown, one.finished, left) for one in scenes for left in [side(one)]] for side in (_without, _attached)
        ]
        characters = [sum(left.characters(shown) for shown, _, left in side) for side in sides]
        done = sum(len(one.finished) for one in scenes)
        results = [sum(left.results(finished) for _, finished, left in side) for side in sides]
        refused = [sum(left.refused is not None for _, _, left in side) for side in sides]
        table.add_row(f"Of {shown} characters shown, kept", *(_of(one, shown) for one in characters))
        table.add_row(f"Of {done} tools finished, results kept", *(_of(one, done) for one in results))
        table.add_row(f"Of {len(scenes)} next messages", *(_next(one, len(scenes)) for one in refused))
        screen.line("")
        screen.console.print(Rule(Text("What was kept", style="bold"), align="left", style="dim"), width=screen.width)
        screen.console.print(Padding(table, (0, 0, 0, 1), expand=False), width=screen.width, highlight=False)
        screen.line("")

    def _leave(self, pair: Pair, runs: list[Run]) -> None:
        from ..view import page

        screen = self._screen
        screen.whole(" More of it: ", (f"{_command()} --journal {self._directory / 'runs.db'} list", "green"))
        if not runs:
            screen.line(("The journal has recorded no run, so the demonstration draws no timeline.", "red"))
            return
        path = self._directory / "timeline.html"
        html = page([(run, pair.journal.read(run.run_id)) for run in runs], title="Cut off three times")
        path.touch(0o600)
        path.write_text(html, encoding="utf-8")
        screen.whole(" The three runs, as a picture: ", (str(path), "bold"))


def _command() -> str:
    """Return what to type for the command: in a clone, `runjournal` is not on the PATH of the shell."""
    beside = Path(sys.executable).with_name("runjournal")
    return "runjournal" if shutil.which("runjournal") or not beside.exists() else os.path.relpath(beside)


def _words(text: str) -> int:
    return len(text.split())


def _without(scene: Scene) -> Left:
    return scene.without


def _attached(scene: Scene) -> Left:
    return scene.attached


def _of(kept: int, all_of: int) -> Text:
    return Text(str(kept), style="bold green" if kept == all_of else "bold red")


def _next(refused: int, all_of: int) -> Text:
    if not refused:
        return Text("all work", style="bold green")
    return Text(f"{refused} refused", style="bold red")
