"""An interactive chat: its answers can be stopped, and its process killed, and it goes on where it was."""

from __future__ import annotations

import io
import os
import queue
import signal
import sys
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

from ..errors import ThreadBusy
from ..events import RunStatus
from ._engine import Engine, Over
from ._keyboard import Bell, Keyboard, Lines
from ._pace import pace_of
from ._place import PROBLEMS, chat_directory, what_to_do
from ._real import one_line, real_model
from ._said import Answer, show
from ._screen import Screen, clean, complain
from ._talker import talker, weather_tool

_STOP: Final = "bold white on red"
_KILL_AFTER: Final = 12
"""How many words of an answer are shown before `/kill WORDS` kills it."""
_MOST: Final = 20
"""How many conversations are listed."""
_BUSY: Final = "This conversation is busy: another chat is answering in it. Send it again later, or say /new."
_TRY: Final = (
    "Say ",
    ("count to 100", "bold"),
    ", ",
    ("tell a story", "bold"),
    " or ",
    ("weather in Oslo, Rome and Cairo", "bold"),
    ", stop it in the middle, and say ",
    ("go on", "bold"),
    ".",
)
_HELP: Final = (
    ("Ctrl-C", "stops the answer; what it has said stays. At the prompt, twice: leaves"),
    ("a line", "typed while an answer streams stops it, and is the next message"),
    ("/kill", "kills this process with kill -9; start it again, and it goes on"),
    ("/kill WORDS", "sends the words, and kills this process in the middle of the answer"),
    ("/history", "the conversation so far, with marks where it was cut off"),
    ("/view", "writes a picture of the conversation's runs, and says where"),
    ("/new", "begins a new conversation"),
    ("/chats", "all conversations, the newest first"),
    ("/chat N", "goes on with one of them"),
    ("/quit", "leaves, as Ctrl-D does"),
)


def chat(console: Console, directory: Path | None, model: str | None, new: bool) -> int:
    """See `demo.chat`."""
    screen = Screen(console)
    bell = Bell()
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")  # whatever is typed or piped, it is no reason to end
    try:
        pace = pace_of(1.0)
        directory = chat_directory(directory)
        tools = [weather_tool(pace)]
        engine = Engine(directory, talker(pace) if model is None else real_model(model, tools), tools, bell.ring)
        engine.start()
    except KeyboardInterrupt:
        return 130
    except PROBLEMS as problem:
        bell.close()
        complain(what_to_do(problem, directory))
        return 1
    try:
        status = Chat(screen, engine, directory, bell).talk(new, model)
    except BrokenPipeError:
        raise  # nobody reads any more: not for us to talk about
    except KeyboardInterrupt:
        screen.give_up()
        status = 130
    except PROBLEMS as problem:
        screen.give_up()
        complain(what_to_do(problem, directory))
        status = 1
    finally:
        wrong = engine.close()
        bell.close()
    if wrong is not None:
        complain(wrong)
        return 1
    return status


class Chat:
    """What somebody at the keyboard sees."""

    def __init__(self, screen: Screen, engine: Engine, directory: Path, bell: Bell) -> None:
        self._screen = screen
        self._engine = engine
        self._directory = directory
        console = screen.console
        self._is_live = sys.stdin is not None and sys.stdin.isatty() and console.is_terminal
        has_colour = console.color_system is not None and not console.no_color
        self._keyboard = Keyboard(bell, has_colour) if self._is_live else Lines(bell)
        self._thread_id = ""
        self._failed = False

    def talk(self, new: bool, model: str | None) -> int:
        """Until somebody leaves. Returns the exit code."""
        last = self._engine.last_thread()
        self._thread_id = last if last is not None and not new else self._engine.new_thread()
        with self._keyboard.attended():
            self._greet(model, new)
            line = self._ask()
            while line is not None and (text := line.strip()) != "/quit":
                try:
                    line = self._turn(text)
                except BrokenPipeError:
                    raise
                except PROBLEMS as problem:
                    self._say_problem(one_line(what_to_do(problem, self._directory), 1000))
                    line = None
                line = line if line is not None else self._ask()
        return 1 if self._failed else 0

    def _turn(self, text: str) -> str | None:
        """A line of somebody's. Returns the next one, if that has come already."""
        if text.startswith("/"):
            return self._command(text)
        return self._answer(text) if text else None

    def _say_problem(self, text: str) -> None:
        self._failed = not self._is_live
        self._screen.line((text, "red"), indent=2)
        self._screen.line("")

    def _greet(self, model: str | None, new: bool) -> None:
        screen = self._screen
        screen.line("")
        about = "a model that follows a script" if model is None else clean(model)
        screen.line((f"A chat with {about}. ", "bold"), "Ctrl-C stops an answer, /kill kills this process, /help says more.")
        screen.whole((f"It is kept in {self._directory}", "dim"))
        if any(one.messages for one in self._engine.recovered):
            screen.line("")
            where = ": /chats leads to it" if new else ""
            screen.line((f"The last process was killed. What was cut off is recovered{where}.", "bold green"))
        messages = self._engine.messages(self._thread_id)
        if messages:
            show(screen, messages)
        elif model is None:
            screen.line("")
            screen.line(*_TRY)
        screen.line("")

    def _ask(self) -> str | None:
        """The next line; None if somebody leaves."""
        if not self._is_live:
            line = self._keyboard.line()
            if line:
                self._screen.begin("you")
                self._screen.words(line)
                self._screen.end()
            return line
        try:
            return self._keyboard.line()
        except KeyboardInterrupt:
            self._screen.console.print()
            self._screen.line(("Ctrl-C once more, Ctrl-D or /quit leaves.", "dim"), indent=9)
        try:
            return self._keyboard.line()
        except KeyboardInterrupt:
            self._screen.console.print()
            return None

    def _command(self, text: str) -> str | None:
        name, _, words = text.partition(" ")
        screen = self._screen
        if name == "/kill":
            if not words.strip():
                self._kill()
            return self._answer(words.strip(), kill=True)
        if name == "/new":
            self._thread_id = self._engine.new_thread()
            said = "A new conversation, kept from its first line on. /chats leads back to the others."
            screen.line((said, "dim"), indent=2)
            screen.line("")
        elif name == "/chats":
            self._list()
        elif name == "/chat":
            self._go_to(words.strip())
        elif name == "/history":
            show(screen, self._engine.messages(self._thread_id))
            screen.line("")
        elif name == "/view":
            self._view()
        else:
            if name != "/help":
                screen.line((f"There is no command {clean(name)}.", "red"), indent=2)
            for key, what in _HELP:
                screen.line((f"{key:<13}", "bold"), what, indent=2, hang=13)
            screen.line("")
        return None

    def _list(self) -> None:
        screen = self._screen
        threads = list(self._engine.threads().items())[::-1]
        for number, thread_id in threads[:_MOST]:
            first = self._engine.messages(thread_id)[:1]
            words = screen.shortened(first[0].text if first else "", screen.width - 22)
            here = (" (this one)", "dim") if thread_id == self._thread_id else ""
            screen.rows(Text.assemble((f"{number:>4}  ", "bold"), words, here))
        if len(threads) > _MOST:
            screen.line((f"and {len(threads) - _MOST} older ones, from 1 on", "dim"), indent=6)
        screen.line(("/chat N goes on with one of them." if threads else "Nothing has been said yet.", "dim"), indent=2)
        screen.line("")

    def _go_to(self, number: str) -> None:
        thread_id = self._engine.threads().get(number)
        if thread_id is None:
            self._screen.line(("Say /chat with one of the numbers that /chats shows.", "red"), indent=2)
        else:
            self._thread_id = thread_id
            show(self._screen, self._engine.messages(thread_id))
        self._screen.line("")

    def _kill(self) -> None:
        self._screen.mark("■ kill -9", _STOP)
        self._screen.end()
        self._keyboard.restore()
        sys.stdout.flush()
        os.kill(os.getpid(), signal.SIGKILL)

    def _view(self) -> None:
        from ..view import page

        journal = self._engine.journal
        runs = journal.runs(self._thread_id, limit=None)[::-1]
        if not runs:
            self._screen.line(("Nothing has been said yet.", "dim"), indent=2)
            return
        path = self._directory / f"{self._thread_id}.html"
        html = page([(run, journal.read(run.run_id)) for run in runs], title="A chat")
        path.touch(0o600)
        path.write_text(html, encoding="utf-8")
        self._screen.whole("Written to ", (str(path), "bold"), indent=2)
        self._screen.line("")

    # --- an answer ----------------------------------------------------------------------------------------------------

    def _answer(self, words: str, kill: bool = False) -> str | None:
        """Send a message, and show the answer. Returns the line that somebody has typed meanwhile, if that ended it."""
        answer = Answer(self._screen)
        with self._keyboard.listening():
            try:
                run_id = self._engine.send(self._thread_id, words)
            except ThreadBusy:
                self._say_problem(_BUSY)
                return None
            typed, over = self._listen(answer, run_id, kill)
        self._end(over)
        return typed

    def _listen(self, answer: Answer, run_id: str, kill: bool) -> tuple[str | None, Over]:
        """Until the answer is over. Gives the line that has ended it, if one has."""
        typed: str | None = None
        is_asked = False
        while True:
            over = self._drain(answer)
            if kill and (over is not None or answer.words >= _KILL_AFTER):
                self._kill()
            if over is not None:
                return typed, over
            if self._keyboard.is_stopped and not is_asked:
                is_asked = True
                self._engine.ask_to_stop(run_id)
            if self._keyboard.wait() and not is_asked:
                typed = self._meanwhile(answer)
                if typed is not None:
                    is_asked = True
                    self._engine.ask_to_stop(run_id)

    def _meanwhile(self, answer: Answer) -> str | None:
        """Somebody has begun to type. The answer waits on the screen, and goes on in its run."""
        self._screen.end()
        line = self._keyboard.line_meanwhile()
        typed = "/quit" if line is None else line.strip()
        if typed == "/kill":
            self._kill()
        if typed == "/help":
            self._command(typed)
            typed = ""
        answer.again()
        return typed or None

    def _drain(self, answer: Answer) -> Over | None:
        while True:
            try:
                chunk = self._engine.chunks.get_nowait()
            except queue.Empty:
                return None
            if isinstance(chunk, Over):
                return chunk
            answer.hear(chunk)

    def _end(self, over: Over) -> None:
        run = over.run
        if isinstance(run, Exception):
            raise run
        if run.status == RunStatus.INTERRUPTED:
            self._screen.mark("■ Stop", _STOP)
        self._screen.end()
        if run.status == RunStatus.FAILED:
            self._failed = not self._is_live
            self._screen.line((f"The answer failed: {clean(one_line(run.error, 300))}", "red"), indent=9)
        self._screen.line("")
