"""Pure: what of one answer a page of AG-UI has been shown, and the events that show more of it.

Rule: what can be said by adding is said so. For anything else, the page gets a snapshot of all messages.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ....common import strict_json
from ....messages.message_data import Data
from ..answer import Flow, Piece, ToolInput, Words, call_pieces, delta_pieces, tool_inputs, words_of
from .messages import Names, reasoning_id, result_message
from .page import Page


@dataclass(slots=True)
class _Part:
    """Words of one kind that follow each other."""

    kind: str
    id: str
    pieces: list[str]

    @property
    def words(self) -> Words:
        return Words("text" if self.kind == "TEXT_MESSAGE" else "reasoning", "".join(self.pieces))


@dataclass(slots=True)
class _Tool:
    """A tool call as it streams."""

    given: str | None = None
    name: str | None = None
    id: str | None = None
    """Its id on the page; None until the page knows it."""
    held: str = ""
    """Arguments that arrived before the name and the id."""
    args: str = ""
    is_whole: bool = False


class ShownMessage:
    """One answer on the page. `sync` sends a snapshot of what stands."""

    def __init__(self, page: Page, names: Names, id: str, sync: Callable[[], None]) -> None:
        self.id = id
        self.message: Mapping[str, Any] | None = None
        self._page = page
        self._names = names
        self._sync = sync
        self._flow = Flow()
        self._parts: list[_Part] = []
        self._is_open = False
        self._places: dict[object, _Tool] = {}
        self._tools: dict[str, _Tool] = {}

    @property
    def is_empty(self) -> bool:
        """Whether nothing of it is on the page."""
        return not self._parts and not self._tools

    def messages(self) -> list[Data]:
        """Return its messages as the page holds them."""
        ids = [part.id for part in self._parts] + ([self.id] if self._tools else [])
        return [one for id in dict.fromkeys(ids) if (one := self._page.message(id)) is not None]

    # --- while it streams ---------------------------------------------------------------------------------------------

    def stream(self, bare: str | Mapping[str, Any]) -> None:
        """Show what a delta adds."""
        if not isinstance(bare, str):
            if bare.get("restart"):
                self.withdraw()
            if isinstance(bare.get("id"), str) and bare["id"] and self.is_empty:
                self.id = bare["id"]
        for piece in delta_pieces(bare):
            self._say(piece)
        if not isinstance(bare, str):
            for call in call_pieces(bare):
                self._ask(call)

    def _say(self, piece: Piece) -> None:
        added = self._flow.add(piece)
        if added is not None:
            begins, text = added
            if begins or not self._is_open:
                self._begin(piece.kind)
            self._add(text)

    def _begin(self, kind: str) -> None:
        self._close()
        if kind == "text":
            self._parts.append(_Part("TEXT_MESSAGE", self.id, []))
        else:
            number = sum(part.kind != "TEXT_MESSAGE" for part in self._parts)
            self._parts.append(_Part("REASONING_MESSAGE", reasoning_id(self.id, number), []))
        self._open()

    def _open(self) -> None:
        self._is_open, part = True, self._parts[-1]
        if part.kind == "TEXT_MESSAGE":
            self._page.start_text(part.id)
        else:
            self._page.start_reasoning(part.id)

    def _add(self, text: str) -> None:
        if not text:
            return
        if not self._is_open:
            self._open()
        part = self._parts[-1]
        part.pieces.append(text)
        if part.kind == "TEXT_MESSAGE":
            self._page.add_text(part.id, text)
        else:
            self._page.add_reasoning(part.id, text)

    def _close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._page.end(self._parts[-1].kind, self._parts[-1].id)

    def _ask(self, call: Mapping[str, Any]) -> None:
        place, given, name, args = call.get("index"), call.get("id"), call.get("name"), call.get("args")
        tool = self._places.get(place) if place is not None else None
        if tool is None or (given and tool.given and tool.given != given):
            tool = self._places[place] = _Tool()
        tool.given = tool.given or (given if isinstance(given, str) and given else None)
        tool.name = tool.name or (name if isinstance(name, str) and name else None)
        if isinstance(args, str):
            tool.held += args
        if tool.given is None or tool.name is None or tool.is_whole:
            return
        if tool.id is None:
            if tool.given in self._tools:
                return
            self._start_tool(tool, tool.given, tool.name)
        held, tool.held = tool.held, ""
        self._add_args(tool, held)

    def _start_tool(self, tool: _Tool, given: str, name: str) -> None:
        self._tools[given], tool.name = tool, name
        tool.id = self._names.of(self.id, given)
        self._page.start_call(tool.id, name, self.id)

    def _add_args(self, tool: _Tool, args: str) -> None:
        if args and tool.id is not None:
            tool.args += args
            self._page.add_args(tool.id, args, self.id)

    def cut_off(self) -> None:
        """End what is open: nothing more will come."""
        self._close()
        for tool in self._tools.values():
            self._end_tool(tool)

    def _end_tool(self, tool: _Tool) -> None:
        tool.is_whole = True
        if tool.id is not None:
            self._page.end("TOOL_CALL", tool.id)

    # --- when it is whole, or cut off ---------------------------------------------------------------------------------

    def become(self, fields: Mapping[str, Any], *, asks: bool = True) -> None:
        """Show this message, and nothing else. `asks`: its tool requests count."""
        self.message, is_same = fields, True
        id = str(fields.get("id") or self.id)
        inputs = tool_inputs(fields) if asks else []
        if id != self.id:
            is_same, self.id = self.is_empty, id
        is_same = is_same and self._become_words(words_of(fields)) and set(self._tools) <= {one.id for one in inputs}
        if is_same:
            is_same = all(self._become_call(one) for one in inputs)
        self.cut_off()
        if not is_same:
            self._sync()

    def _become_words(self, wanted: list[Words]) -> bool:
        """Show the rest of the words. Return whether that could be done."""
        shown = [part.words for part in self._parts]
        last = len(shown) - 1
        if last >= 0:
            if len(wanted) <= last or shown[:last] != wanted[:last] or shown[last].kind != wanted[last].kind:
                return False
            if not wanted[last].text.startswith(shown[last].text):
                return False
            self._add(wanted[last].text[len(shown[last].text) :])
        for kind, text in wanted[last + 1 :]:
            self._begin(kind)
            self._add(text)
        return True

    def _become_call(self, one: ToolInput) -> bool:
        """Show the rest of a tool call. Return whether that could be done."""
        tool = self._tools.get(one.id)
        whole = one.input if isinstance(one.input, str) else strict_json.dumps({} if one.input is None else one.input)
        if tool is None:
            tool = _Tool(given=one.id)
            self._start_tool(tool, one.id, one.name)
        elif tool.name != one.name:
            return False
        if tool.args == whole or _is_json_of(tool.args, one.input):
            return True
        if tool.is_whole or not whole.startswith(tool.args):
            return False
        self._add_args(tool, whole[len(tool.args) :])
        return True

    def answer(self, given: str, result: Data) -> None:
        """Show the result of a tool call."""
        tool = self._tools.get(given)
        if tool is None or tool.id is None or not tool.is_whole:
            return
        message = result_message(result["data"], tool.id)
        before = self._page.message(message["id"])
        if before is None:
            self._page.add_result(message)
        elif before.get("content") != message["content"]:
            self._sync()

    def withdraw(self) -> None:
        """Take all of it back."""
        self.cut_off()
        was_empty = self.is_empty
        self._parts, self._tools, self._places, self._flow, self.message = [], {}, {}, Flow(), None
        if not was_empty:
            self._sync()


def _is_json_of(text: str, value: Any) -> bool:
    if not text:
        return False
    try:
        return bool(json.loads(text) == ({} if value is None else value))
    except ValueError:
        return False
