"""What the demonstration and the chat look like: plain words, little colour, and nothing that needs a cursor to move.

Rule: text of a model, a tool or a user is never read as markup, and no control character of it reaches the terminal.
"""

from __future__ import annotations

import contextlib
import sys
import unicodedata
from typing import Final

from langchain_core.messages import AIMessage, BaseMessage
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from ..messages.loading import is_partial, is_synthetic
from ..messages.marks import MARK

WHO: Final = {"human": "you", "ai": "agent", "tool": "tool", "system": "system"}
STYLES: Final = {"you": "bold cyan", "agent": "bold", "tool": "magenta", "system": "dim"}
_BECAUSE: Final = {
    "stop": "you pressed Stop",
    "crash": "its process was killed",
    "shutdown": "the program was ended",
    "superseded": "a newer message came",
    "timeout": "it took too long",
    "disconnect": "the connection was lost",
}
_PLAIN: Final = str.maketrans(
    {"■": "#", "✓": "+", "✗": "x", "…": "...", "✂": "#", "◇": "*", "▸": ">", "·": "-", "“": '"', "”": '"'}
)


def clean(text: str) -> str:
    """The text without what a terminal would obey."""
    if text.isprintable():
        return text
    return "".join(" " if one in "\t\r\n" else one for one in text if one in "\t\r\n" or unicodedata.category(one)[0] != "C")


def complain(problem: object) -> None:
    """What went wrong, in one line of the standard error."""
    sys.stderr.write(f"runjournal: {clean(' '.join(str(problem).split()) or type(problem).__name__)[:1000]}\n")


class Screen:
    """A console on which an answer can appear word by word, wrapped at whole words."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._column = 0
        self._margin = 0
        self._spaces = self._lines = 0
        self._is_ascii = console.options.ascii_only

    @property
    def width(self) -> int:
        """Columns to write in: long lines are hard to read."""
        return min(self.console.width, 140)

    def signs(self, text: Text) -> Text:
        """The text as this terminal can show it."""
        if self._is_ascii:
            text.plain = text.plain.translate(_PLAIN).encode("ascii", "replace").decode()
        return text

    def line(self, *parts: str | tuple[str, str], indent: int = 0, hang: int = 0) -> None:
        """A line of its own, or a few where one is too short; those after the first `hang` columns further in."""
        self.rows(Text.assemble(*parts), indent, hang)

    def rows(self, text: Text, indent: int = 0, hang: int = 0) -> None:
        """The same with a text."""
        self.end()
        room = max(20, self.width - indent - hang - 1)
        # The first one has more room. A text that is wrapped twice keeps its styles.
        first = self.signs(text).wrap(self.console, room + hang)[0]
        first.rstrip()
        self._put(Text(" " * indent) + first, "\n")
        rest = text[len(first) :]
        if rest.plain.strip():
            for row in Text.assemble(rest[len(rest.plain) - len(rest.plain.lstrip()) :]).wrap(self.console, room):
                row.rstrip()
                self._put(Text(" " * (indent + hang)) + row, "\n")

    def whole(self, *parts: str | tuple[str, str], indent: int = 0) -> None:
        """A line that is not broken, however long: somebody may want to copy what it says."""
        self.end()
        self._put(Text(" " * indent) + self.signs(Text.assemble(*parts)), "\n")

    def begin(self, who: str) -> None:
        """Somebody is about to speak."""
        self.end()
        self._margin = 9
        self._put(Text.assemble("  ", (f"{who:<7}", STYLES.get(who, ""))))
        self._column = self._margin

    def words(self, text: str, style: str = "") -> None:
        """More of what is being said."""
        for one in _pieces(text):
            if one.isspace():
                self._lines += one.count("\n")
                indent = one.rpartition("\n")[2].expandtabs(4)
                # What begins a line of the text is kept, for it may be a program; where we have broken it, it is not.
                self._spaces = len(indent) + (0 if "\n" in one else self._spaces)
                continue
            if self._lines:
                spaces = self._spaces
                self._break(self._lines)
                self._spaces = spaces
            word = clean(one)
            if self._column + self._spaces + cell_len(word) > self.width - 1 and self._column > self._margin:
                self._break(1)
            self._put(self.signs(Text(" " * self._spaces + word, style)))
            self._column += self._spaces + cell_len(word)
            self._spaces = 0

    def mark(self, sign: str, style: str) -> None:
        """What happened to it, right behind it."""
        if not self._column:
            self.begin("")
        if self._column + cell_len(sign) + 1 > self.width - 1:
            self._break(1)
        self._put(self.signs(Text.assemble("" if self._column == self._margin else " ", (sign, style))))
        self._column += cell_len(sign) + 1

    def _break(self, lines: int) -> None:
        self._put(Text("\n" * lines + " " * self._margin))
        self._column, self._spaces, self._lines = self._margin, 0, 0

    def end(self) -> None:
        """The line is at its end, if one was begun."""
        if self._column:
            self._put(Text("\n"))
        self._column, self._spaces, self._lines = 0, 0, 0

    def give_up(self) -> None:
        """The same, when something has gone wrong: perhaps with writing itself."""
        with contextlib.suppress(OSError):
            self.end()

    def marked(self, text: str, mark: str, style: str, width: int) -> Text:
        """A text and its mark, which is not broken if it can be helped."""
        last = Text(text).wrap(self.console, width)[-1] if text else Text()
        last.rstrip()
        space = "" if not (mark and text) else " " if cell_len(f"{last.plain} {mark}") <= width else "\n"
        return self.signs(Text.assemble(text + space, (mark, style)))

    def shortened(self, text: str, room: int) -> Text:
        """The text, with an ellipsis where it is longer."""
        return Text(_shortened(clean(text), room))

    def _put(self, text: Text, end: str = "") -> None:
        self.console.print(text, end=end, soft_wrap=True, highlight=False)


def _pieces(text: str) -> list[str]:
    out: list[str] = []
    for one in text:
        if out and out[-1].isspace() == one.isspace():
            out[-1] += one
        else:
            out.append(one)
    return out


def because(message: BaseMessage) -> str:
    """Why a message was cut off."""
    reason = message.additional_kwargs.get(MARK, {}).get("reason")
    return _BECAUSE.get(str(reason), "something went wrong")


def asked(message: BaseMessage) -> str:
    """The tools that a message asks for, and with what."""
    named: dict[str, list[str]] = {}
    for call in message.tool_calls if isinstance(message, AIMessage) else []:
        named.setdefault(clean(call["name"]), []).append(" ".join(clean(str(value)) for value in call["args"].values()))
    return " · ".join(f"{name} {', '.join(given)}" for name, given in named.items())


def told(message: BaseMessage, room: int | None = None) -> tuple[str, str, str]:
    """What a message says, no longer than `room`; and a mark with its style where it was cut off, filled in, or asks."""
    text, mark, style = clean(message.text).strip(), "", ""
    if is_partial(message):
        mark, style = "✂ cut off", "bold yellow"
    elif is_synthetic(message):
        # The first clause says it all to a person; the rest is for the model.
        text, mark, style = text.partition(";")[0], "◇ filled in", "bold yellow"
    elif asks := asked(message):
        mark, style = f"▸ {asks}", "magenta"
    if room is not None:
        room -= cell_len(mark) + 1 if mark else 0
        if style == "magenta" and cell_len(text) > room:
            text = ""
        text = _shortened(text, max(12, room), keep_end=is_partial(message))
    return text, mark, style


def _shortened(text: str, room: int, keep_end: bool = False) -> str:
    """The beginning, or also the end, of a text that has no room."""
    if cell_len(text) <= room:
        return text
    if keep_end and room > 40:
        half = (room - 3) // 2
        return text[:half].rpartition(" ")[0] + " … " + text[-half:].partition(" ")[2]
    kept = text[: room - 1]
    return (kept.rpartition(" ")[0] or kept).rstrip(",.;:") + "…"


def who(message: BaseMessage) -> str:
    """Who has said it."""
    return WHO.get(message.type, message.type)
