"""The keyboard, while an answer streams and while nobody speaks.

Rule: while an answer streams nothing is echoed, and Ctrl-C is noted rather than raised; with the first key that is pressed,
the line is read as at any prompt. What the terminal was like before is put back whenever we give it away, and before a kill.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import termios
from collections.abc import Iterator
from types import FrameType
from typing import Any, Final

_LFLAGS: Final = 3
_BRACKETS: Final = {True: "\033[?2004h", False: "\033[?2004l"}
"""A terminal marks what is pasted, so that its lines are not taken for lines that are typed; or does so no more."""


class Bell:
    """Wakes the thread that reads the keyboard, from any thread and from a signal handler."""

    def __init__(self) -> None:
        self._out, self._in = os.pipe()
        os.set_blocking(self._out, False)
        os.set_blocking(self._in, False)

    def ring(self) -> None:
        """Wake it, or see to it that it does not fall asleep."""
        with contextlib.suppress(BlockingIOError, OSError):  # it is full: it rings already
            os.write(self._in, b".")

    def wait(self, *others: int) -> bool:
        """Wait until somebody rings, or there is something to read; True if there is."""
        ready, _, _ = select.select([self._out, *others], [], [])
        if self._out in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._out, 4096)
        return any(other in ready for other in others)

    def close(self) -> None:
        """Nobody waits any more."""
        os.close(self._in)
        os.close(self._out)


class Keyboard:
    """A terminal that somebody sits at."""

    def __init__(self, bell: Bell, colour: bool) -> None:
        self._paste = _bracketed()
        self._bell = bell
        self._fd = sys.stdin.fileno()
        self._before: list[Any] | None = None
        self._prompt = "  \001\033[1;36m\002you\001\033[0m\002    " if colour else "  you    "
        self.is_stopped = False
        """Whether Ctrl-C has been pressed while an answer was streaming."""

    @contextlib.contextmanager
    def attended(self) -> Iterator[None]:
        """While the chat goes on: Ctrl-C raises at the prompt, and nowhere else."""
        old = signal.signal(signal.SIGINT, self._interrupt)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, old)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        self.is_stopped = True
        self._bell.ring()

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """While an answer streams."""
        self.is_stopped = False
        self._quiet()
        try:
            yield
        finally:
            self.restore()

    def _bracket(self, on: bool) -> None:
        # At the prompt readline does it: this is for a paste that comes while an answer streams.
        if self._paste:
            sys.stdout.write(_BRACKETS[on])
            sys.stdout.flush()

    def _quiet(self) -> None:
        """No echo, and every key at once."""
        self._before = termios.tcgetattr(self._fd)
        changed = termios.tcgetattr(self._fd)
        changed[_LFLAGS] &= ~(termios.ECHO | termios.ICANON)
        termios.tcsetattr(self._fd, termios.TCSADRAIN, changed)
        self._bracket(True)

    def restore(self) -> None:
        """As it was before."""
        if self._before is not None:
            termios.tcsetattr(self._fd, termios.TCSADRAIN, self._before)
            self._before = None
            self._bracket(False)

    def wait(self) -> bool:
        """Wait until something comes of the answer, or a key is pressed; True if one is."""
        return self._bell.wait(self._fd)

    def line_meanwhile(self) -> str | None:
        """The line that somebody has begun while an answer streams; "" if it is given up, None at the end of the input."""
        self.restore()
        try:
            return self.line()
        except KeyboardInterrupt:
            self.is_stopped = True
            sys.stdout.write("\n")
            return ""
        finally:
            self._quiet()

    def line(self) -> str | None:
        """The next line; None at the end of the input."""
        attended = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            return input(self._prompt)
        except EOFError:
            sys.stdout.write("\n")
            return None
        finally:
            signal.signal(signal.SIGINT, attended)


def _bracketed() -> bool:
    """Let lines be edited and called back, and what is pasted be one line however many it has; False if that cannot be."""
    try:
        import readline
    except ImportError:
        return False
    if "libedit" in (readline.__doc__ or ""):
        return False
    readline.parse_and_bind("set enable-bracketed-paste on")  # Python has turned it off
    return os.environ.get("TERM", "dumb") != "dumb"


class Lines:
    """An input that nobody sits at: each line is a message, and Ctrl-C is the end of it all."""

    is_stopped = False

    def __init__(self, bell: Bell) -> None:
        self._bell = bell

    def attended(self) -> contextlib.AbstractContextManager[None]:
        """While the chat goes on."""
        return contextlib.nullcontext()

    def listening(self) -> contextlib.AbstractContextManager[None]:
        """While an answer streams."""
        return contextlib.nullcontext()

    def restore(self) -> None:
        """Nothing was changed."""

    def wait(self) -> bool:
        """Wait until something comes of the answer."""
        return self._bell.wait()

    def line_meanwhile(self) -> str | None:
        """Nobody types."""
        return ""

    def line(self) -> str | None:
        """The next line; None at the end of the input."""
        line = sys.stdin.readline() if sys.stdin is not None else ""  # it was closed by whoever has started us
        return line.rstrip("\n") if line else None
