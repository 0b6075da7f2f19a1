"""The look of the demonstration: plain words, little colour, and nothing that moves the cursor."""

from __future__ import annotations

import contextlib
import re
import sys
import unicodedata
from typing import Final

from langchain_core.messages import AIMessage, BaseMessage
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from .. import is_partial, is_synthetic

SPEAKERS: Final = {"human": "you", "ai": "agent", "tool": "tool", "system": "system"}
STYLES: Final = {"you": "bold cyan", "agent": "bold", "tool": "magenta", "system": "dim"}
_PLAIN: Final = str.maketrans(
    {"■": "#", "✓": "+", "✗": "x", "…": "...", "✂": "#", "◇": "*", "▸": ">", "·": "-", "“": '"', "”": '"'}
)


def complain(problem: object) -> None:
    """Write a problem to stderr, in one line and without control characters."""
    said = " ".join(str(problem).split()) or type(problem).__name__
    sys.stderr.write(f"runjournal: {''.join(one for one in said if unicodedata.category(one)[0] != 'C')[:1000]}\n")


class Screen:
    """A console that shows an answer word by word, wrapped at whole words."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._column = 0
        self._margin = 0
        self._spaces = 0
        self._is_ascii = console.options.ascii_only

    @property
    def width(self) -> int:
        """The columns to write in; at most 140, since longer lines are hard to read."""
        return min(self.console.width, 140)

    def signs(self, text: Text) -> Text:
        """Replace what this terminal cannot show."""
        if self._is_ascii:
            text.plain = text.plain.translate(_PLAIN).encode("ascii", "replace").decode()
        return text

    def line(self, *parts: str | tuple[str, str], indent: int = 0) -> None:
        """Write a line of its own, or several lines where the text is wider than the screen."""
        self.end()
        for row in self.signs(Text.assemble(*parts)).wrap(self.console, max(20, self.width - indent - 1)):
            row.rstrip()
            self._put(Text(" " * indent) + row, "\n")

    def whole(self, *parts: str | tuple[str, str]) -> None:
        """Write a line that is never broken, however long, so that a user can copy it."""
        self.end()
        self._put(self.signs(Text.assemble(*parts)), "\n")

    def begin(self, speaker: str) -> None:
        """Start a new line for a speaker."""
        self.end()
        self._margin = 9
        self._put(Text.assemble("  ", (f"{speaker:<7}", STYLES.get(speaker, ""))))
        self._column = self._margin

    def words(self, text: str, style: str = "") -> None:
        """Add words to the line, and break it before a word that does not fit."""
        for one in re.findall(r"\s+|\S+", text):
            if one.isspace():
                self._spaces = 1
                continue
            if self._column + self._spaces + cell_len(one) > self.width - 1 and self._column > self._margin:
                self._break()
            self._put(self.signs(Text(" " * self._spaces + one, style)))
            self._column += self._spaces + cell_len(one)
            self._spaces = 0

    def mark(self, sign: str, style: str) -> None:
        """Add a sign right after the words."""
        if not self._column:
            self.begin("")
        if self._column + cell_len(sign) + 1 > self.width - 1:
            self._break()
        self._put(self.signs(Text.assemble("" if self._column == self._margin else " ", (sign, style))))
        self._column += cell_len(sign) + 1

    def _break(self) -> None:
        self._put(Text("\n" + " " * self._margin))
        self._column, self._spaces = self._margin, 0

    def end(self) -> None:
        """End the current line, if one was begun."""
        if self._column:
            self._put(Text("\n"))
        self._column, self._spaces = 0, 0

    def end_after_error(self) -> None:
        """End the current line like :meth:`end`; ignore an error of writing, which may be the error to report."""
        with contextlib.suppress(OSError):
            self.end()

    def marked(self, text: str, mark: str, style: str, width: int) -> Text:
        """Join a text and its mark; put the mark on a new line where it would be broken."""
        last = Text(text).wrap(self.console, width)[-1] if text else Text()
        last.rstrip()
        space = "" if not (mark and text) else " " if cell_len(f"{last.plain} {mark}") <= width else "\n"
        return self.signs(Text.assemble(text + space, (mark, style)))

    def _put(self, text: Text, end: str = "") -> None:
        self.console.print(text, end=end, soft_wrap=True, highlight=False)


def tool_requests(message: BaseMessage) -> str:
    """Name the tools that a message requests, with their arguments."""
    named: dict[str, list[str]] = {}
    for call in message.tool_calls if isinstance(message, AIMessage) else []:
        named.setdefault(call["name"], []).append(" ".join(str(value) for value in call["args"].values()))
    return " · ".join(f"{name} {', '.join(given)}" for name, given in named.items())


def summary(message: BaseMessage, room: int) -> tuple[str, str, str]:
    """Return a message in at most `room` columns, a mark (cut off, filled in, tool requests), and the mark's style."""
    text, mark, style = message.text.strip(), "", ""
    if is_partial(message):
        mark, style = "✂ cut off", "bold yellow"
    elif is_synthetic(message):
        # The first clause is enough for a person; the rest is for the model.
        text, mark, style = text.partition(";")[0], "◇ filled in", "bold yellow"
    elif requested := tool_requests(message):
        mark, style = f"▸ {requested}", "magenta"
    room -= cell_len(mark) + 1 if mark else 0
    if style == "magenta" and cell_len(text) > room:
        text = ""
    return shortened(text, max(12, room), keep_end=is_partial(message)), mark, style


def shortened(text: str, room: int, keep_end: bool = False) -> str:
    """Cut a text to `room` columns with an ellipsis: at its end, or with `keep_end` in the middle if there is room."""
    if cell_len(text) <= room:
        return text
    if keep_end and room > 40:
        half = (room - 3) // 2
        return text[:half].rpartition(" ")[0] + " … " + text[-half:].partition(" ")[2]
    kept = text[: room - 1]
    return (kept.rpartition(" ")[0] or kept).rstrip(",.;:") + "…"


def speaker_of(message: BaseMessage) -> str:
    """Name the speaker of a message, as a user would."""
    return SPEAKERS.get(message.type, message.type)
