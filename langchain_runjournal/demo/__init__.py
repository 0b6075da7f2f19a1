"""A demonstration of what a journal does, and a chat to try it by hand, both in the terminal. Needs the extra `cli`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["chat", "play"]


def play(console: Console, *, directory: Path | None = None, pace: float = 1.0) -> int:
    """Cut an agent off three times, with a journal and without one, and show what is left: fifteen seconds at pace 1.

    All that is shown is read from what was really run. `directory` is where the threads, the journal and a timeline are
    written, and stay; by default a new one among the temporary files. The variable RUNJOURNAL_DEMO_PACE multiplies
    `pace`: 0.1 is ten times as fast. Returns the exit code: 0; 1 if the journal has lost something, or something went
    wrong; 130 after Ctrl-C.
    """
    from ._play import play

    return play(console, directory, pace)


def chat(console: Console, *, directory: Path | None = None, model: str | None = None, new: bool = False) -> int:
    """A chat in the terminal, whose answers can be stopped, and whose process can be killed, without losing a word.

    `directory` keeps the conversation; by default it is `runjournal-chat` among the user's state. `model` is a real one as
    `provider:name` (needs `langchain`), otherwise one that follows a script. `new` begins a new conversation rather than
    going on with the last one. Reads the keyboard, so it belongs in the main thread; where the input is no terminal, each
    line of it is a message. Returns the exit code: 0; 1 if the model, or the directory, cannot be used; 130 after Ctrl-C.
    """
    from ._chat import chat

    return chat(console, directory, model, new)
