"""Pure: what of one answer a page has been shown, and the chunks that show more of it or take it back.

Rule: a part that was shown cannot be removed in the schema that all clients share. So a withdrawn part, which no longer
stands, is named in a `data-withdrawn` part: a page leaves it out. A page that does not know of this shows an earlier attempt
as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ....messages.message_data import Data
from ...frames import Payload
from ..answer import (
    Flow,
    Kind,
    Output,
    Piece,
    ToolInput,
    Words,
    attachments_of,
    call_pieces,
    delta_pieces,
    tool_inputs,
    words_of,
)
from .chunks import RUNJOURNAL, chunk, data, delta

CUT_CALL: Final = "The answer was cut off before this call was complete."
NOT_VALID: Final = "The arguments of this call are not valid JSON."
NO_RESULT: Final = "The run ended before this tool returned a result."


@dataclass(slots=True)
class _Part:
    id: str
    kind: Kind
    pieces: list[str]

    @property
    def words(self) -> Words:
        return Words(self.kind, "".join(self.pieces))


@dataclass(slots=True)
class _Tool:
    """A tool request as a page knows it."""

    id: str | None = None
    """The id on the page; None until the page knows the call."""
    given: str | None = None
    """The id in the answer."""
    name: str | None = None
    held: str = ""
    """Arguments that arrived before the name and the id."""
    args: list[str] = field(default_factory=list)
    is_whole: bool = False
    output: Output | None = None


def partial_data(mark: Mapping[str, Any]) -> Data:
    """Return what a page gets to know of an answer that was cut off, from the mark of its message."""
    found: Data = {"cause": mark.get("reason") or "error"}
    calls = mark.get("calls")
    return {**found, "calls": calls} if calls else found


class Ids:
    """The ids of the parts of one run: the same ones in each replay."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self._parts = 0
        self._tools: set[str] = set()

    def part(self) -> str:
        """Return the id of the next part."""
        self._parts += 1
        return f"{self.run_id}:{self._parts - 1}"

    def tool(self, given: str) -> str:
        """Return the id of a tool call on the page: its own, or, if an earlier call of the run has that, another."""
        id, count = given, 1
        while id in self._tools:
            count += 1
            id = f"{given}~{count}"
        self._tools.add(id)
        return id


class ShownAnswer:
    """One answer on the page."""

    def __init__(self, ids: Ids, put: Callable[[Payload], None], open_step: Callable[[], None]) -> None:
        self._ids = ids
        self._put = put
        self._open_step = open_step
        self._flow = Flow()
        self._parts: list[_Part] = []
        self._open: _Part | None = None
        self._streamed: dict[object, _Tool] = {}
        """The tool requests by their place in the stream."""
        self._tools: dict[str, _Tool] = {}
        """The tool requests by the id that the model gave them."""
        self._attached: list[tuple[Data, str | None]] = []
        """The sources, with the id of each, and the files, which have none."""
        self._notes: list[str] = []
        """The ids of the data parts that say that it was cut off."""
        self.message: Mapping[str, Any] | None = None
        """The whole message that the page shows; None while it streams."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing of it is on the page."""
        return not self._parts and not self._tools

    # --- while it streams ---------------------------------------------------------------------------------------------

    def stream(self, bare: str | Mapping[str, Any]) -> None:
        """Show what a delta adds."""
        if not isinstance(bare, str) and bare.get("restart"):
            self.withdraw()
        for piece in delta_pieces(bare):
            self._say(piece)
        if isinstance(bare, str):
            return
        for call in call_pieces(bare):
            self._ask(call)

    def _say(self, piece: Piece) -> None:
        added = self._flow.add(piece)
        if added is not None:
            begins, text = added
            if begins or self._open is None:
                self._begin(piece.kind)
            self._add(text)

    def _begin(self, kind: Kind) -> None:
        self.close()
        self._open = part = _Part(self._ids.part(), kind, [])
        self._parts.append(part)
        self._open_step()
        self._put(chunk(f"{kind}-start", id=part.id, providerMetadata={RUNJOURNAL: {"part": part.id}}))

    def _add(self, text: str) -> None:
        part = self._open
        if part is not None and text:
            part.pieces.append(text)
            self._put(delta(part.kind, part.id, text))

    def close(self) -> None:
        """End the part that is open."""
        part, self._open = self._open, None
        if part is not None:
            self._put(chunk(f"{part.kind}-end", id=part.id))

    def cut_off(self) -> None:
        """End what is open: nothing more will come. The step must be open: version 7 looks for a tool call only there."""
        self.close()
        for tool in self._tools.values():
            self._break(tool)

    def _break(self, tool: _Tool) -> None:
        if not tool.is_whole:
            tool.is_whole = True
            raw = "".join(tool.args)
            self._put(chunk("tool-input-error", toolCallId=tool.id, toolName=tool.name, input=raw, errorText=CUT_CALL))

    def _ask(self, call: Mapping[str, Any]) -> None:
        place, given, name, args = call.get("index"), call.get("id"), call.get("name"), call.get("args")
        tool = self._streamed.get(place) if place is not None else None
        if tool is None or (given and tool.given and tool.given != given):
            tool = self._streamed[place] = _Tool()
        tool.given = tool.given or (given if isinstance(given, str) and given else None)
        tool.name = tool.name or (name if isinstance(name, str) and name else None)
        if isinstance(args, str):
            tool.held += args
        if tool.given is None or tool.name is None:
            return
        if tool.id is None:
            if tool.given in self._tools:
                return
            self._tools[tool.given] = tool
            tool.id = self._ids.tool(tool.given)
            self._open_step()
            self._put(chunk("tool-input-start", toolCallId=tool.id, toolName=tool.name))
        if tool.held and not tool.is_whole:
            tool.args.append(tool.held)
            self._put(chunk("tool-input-delta", toolCallId=tool.id, inputTextDelta=tool.held))
            tool.held = ""

    # --- when it is whole, or cut off ---------------------------------------------------------------------------------

    def become(self, fields: Mapping[str, Any], *, asks: bool = True) -> None:
        """Show this message, and nothing else. `asks`: its tool requests count."""
        self.message = fields
        self._become_words(words_of(fields))
        inputs = tool_inputs(fields) if asks else []
        gone = [id for id in self._tools if id not in {one.id for one in inputs}]
        self._withdraw([], gone)
        for one in inputs:
            self._complete(one)
        self._attach(attachments_of(fields))

    def _attach(self, wanted: list[Data]) -> None:
        gone = [id for found, id in self._attached if id is not None and found not in wanted]
        self._withdraw([], [], gone)
        there = [found for found, _ in self._attached]
        for found in wanted:
            if found not in there:
                id = None if found["type"] == "file" else self._ids.part()
                self._attached.append((found, id))
                self._put(chunk(**found, sourceId=id))

    def _become_words(self, wanted: list[Words]) -> None:
        shown = [part.words for part in self._parts]
        kept = _subsequence(wanted, shown)
        if kept is not None:
            self._withdraw([part for at, part in enumerate(self._parts) if at not in kept], [])
            self.close()
            return
        common = len(shown) - 1
        grows = 0 <= common < len(wanted) and shown[:common] == wanted[:common]
        last, rest = (shown[common], wanted[common]) if grows else (Words("text", ""), Words("text", ""))
        if grows and (last == rest or (self._open and last.kind == rest.kind and rest.text.startswith(last.text))):
            self._add(rest.text[len(last.text) :])
            wanted = wanted[common + 1 :]
        else:
            self._withdraw(list(self._parts), [])
        for kind, text in wanted:
            self._begin(kind)
            self._add(text)
        self.close()

    def _complete(self, one: ToolInput) -> None:
        tool = self._tools.get(one.id)
        if tool is None:
            tool = self._tools[one.id] = _Tool(id=self._ids.tool(one.id), given=one.id)
            self._open_step()
        tool.name = tool.name or one.name
        if tool.is_whole or tool.id is None:
            return
        tool.is_whole = True
        about = {"toolCallId": tool.id, "toolName": tool.name, "input": {} if one.input is None else one.input}
        if one.is_valid:
            self._put(chunk("tool-input-available", **about))
        else:
            self._put(chunk("tool-input-error", **about, errorText=NOT_VALID))

    def answer(self, given: str, output: Output) -> None:
        """Show the result of a tool request."""
        tool = self._tools.get(given)
        if tool is not None and tool.id is not None and tool.is_whole and tool.output != output:
            tool.output = output
            show_output(self._put, tool.id, output)

    def note_cut(self, part_id: str, mark: Mapping[str, Any]) -> None:
        """Say that it was cut off."""
        self._notes.append(part_id)
        self._put(data("partial", part_id, partial_data(mark)))

    def abandon(self) -> None:
        """Say of each tool request without a result that it will have none."""
        for given in list(self._tools):
            if self._tools[given].output is None:
                self.answer(given, Output(NO_RESULT, True))

    def withdraw(self) -> None:
        """Take all of it back."""
        self.close()
        sources, self._notes = [*self._notes, *(id for _, id in self._attached if id is not None)], []
        self._withdraw(list(self._parts), list(self._tools), sources)
        self._flow, self._streamed, self.message = Flow(), {}, None

    def _withdraw(self, parts: list[_Part], tools: list[str], sources: Sequence[str] = ()) -> None:
        if not parts and not tools and not sources:
            return
        if self._open in parts:
            self.close()
        found = [tool for given in tools if (tool := self._tools.pop(given)).id is not None]
        for tool in found:
            self._break(tool)
        self._parts = [part for part in self._parts if part not in parts]
        self._attached = [one for one in self._attached if one[1] not in sources]
        named = {"parts": [*(part.id for part in parts), *sources], "tools": [tool.id for tool in found]}
        self._put(data("withdrawn", self._ids.part(), named))


def show_output(put: Callable[[Payload], None], id: str, output: Output) -> None:
    """Show the result of a tool call that the page knows."""
    if output.failed:
        put(chunk("tool-output-error", toolCallId=id, errorText=output.error_text))
    else:
        put(chunk("tool-output-available", toolCallId=id, output="" if output.value is None else output.value))


def _subsequence(wanted: list[Words], shown: list[Words]) -> set[int] | None:
    """Return the places of `wanted` in `shown`, in order; None if something is missing there."""
    found, at = set[int](), 0
    for one in wanted:
        while at < len(shown) and shown[at] != one:
            at += 1
        if at == len(shown):
            return None
        found.add(at)
        at += 1
    return found
