"""Pure: the dialect of AG-UI. The events of a run as events of that protocol.

Rule: a stream is a legal one from its first event on, for a client that was there from the beginning and for one that comes
late. A late one gets what there is as snapshots, then what is open begins again, then what follows.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ....common import strict_json
from ....events import Event, Run
from ....events.encoding import encode_text
from ....messages.cut_answers import marked_as_cut
from ....messages.message_data import RUN_ID_PREFIX, Data
from ....messages.transcript import TranscriptCall
from ...frames import Payload, encodable, one_line
from ..answer_fold import AnswerFold
from ..protocol import Control
from .messages import Names, result_message, ui_messages
from .page import Page
from .shown import ShownMessage

PROTOCOL: Final = "1.0"
"""The version of the protocol whose events these are."""
NAMED: Final = "ag_ui_run_id"
"""The metadata of a run that has the id that the client gave it, if that is not a UUID."""
FAILED: Final = "The run failed. Its journal has the error."
LOST: Final = "The process of the run has died. Connect again to get what the run has kept."
CUT_OFF: Final = "The run was cut off before it was complete."
REASON: Final = "langgraph:interrupt"
ASKED: Final = "on_interrupt"
"""The name of the custom event by which older clients learn of a question."""
_CANCELLED: Final = ("stop", "disconnect", "shutdown", "superseded")
_WORDS: Final = ("message", "question", "description")


@dataclass(frozen=True, slots=True)
class ThreadState:
    """A thread as it stands."""

    messages: Sequence[Data]
    """LangChain's own dicts."""
    values: Any
    """What the state of the graph holds beside them, as JSON."""


Reader = Callable[[], Awaitable[ThreadState | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """What a client gets first."""

    history: Sequence[Data] = ()
    """The messages that the thread had before the run: LangChain's own dicts."""
    greeting: Sequence[Data] = ()
    """What the page shows above it, in the form of AG-UI."""
    attach: int = 0
    """The last event that the run had when the client came; 0 for a client that is there from the beginning."""
    values: Any = None
    """The state of the graph as the run found it, for a client that comes late; None to send none."""
    is_behind: bool = False
    """Whether a client that is there from the beginning does not hold the history as it is."""
    is_older: bool = False
    """Whether the client is older than version 1.0, which refuses outcomes that it does not know."""
    read_end: Reader | None = None
    """Returns the thread as the run has left it; None if it has gone on."""


class AgUiProjector(AnswerFold[ShownMessage]):
    """Turns the events of one run into events of AG-UI."""

    def __init__(self, run: Run, opening: Opening) -> None:
        super().__init__(run)
        self._opening = opening
        self._names = Names()
        self._history = [*opening.greeting, *ui_messages(run.thread_id, opening.history, self._names)]
        self._page = Page(self._put, self._history)
        self._out: list[Payload] = []
        self._is_silent = True
        self._customs: list[Data] = []
        """What the program reported before the client came."""
        self._steps: dict[str, set[str]] = {}
        """By the name of a step that is open, the tasks that are in it."""
        self._own: dict[int, str] = {}
        """The ids of messages that nodes have written without one, by the identity of what the reader keeps."""
        self._questions: list[Data] = []
        self._status, self._cause = "running", ""
        self._has_ended = False
        self._end_state: ThreadState | None = None
        self.run_id = str(run.metadata.get(NAMED) or run.run_id)

    def event(self, event: Event) -> Sequence[Payload]:
        """Return the events for one event of the run."""
        self._out = []
        if not self._has_ended:
            try:
                self._read(event)
            except Exception:  # noqa: BLE001, S110 - a program may append events that hold any JSON
                pass
        is_first = self._opening.is_behind and event.kind == "run.start"  # its input comes next
        if self._is_silent and event.seq >= self._opening.attach and not is_first:
            self._enter()
        return self._out

    async def before(self, what: Control) -> None:
        """Read the thread as the run has left it, before a stream ends."""
        if what in ("over", "paused") and self._opening.read_end is not None:
            self._end_state = await self._opening.read_end()

    def control(self, what: Control, detail: str | None = None) -> Sequence[Payload]:
        """Return the end of a stream whose run is over, waits for a human, or has lost its process."""
        self._out = []
        if what == "reset":
            return ()
        if self._is_silent:
            self._enter()
        if what == "interrupted":
            self._reader.given_reason = "crash"
        self._close_all()
        self._page.end_all()
        if self._end_state is not None:
            self._names.release({str(one["data"].get("id")) for one in self._end_state.messages})
            thread = ui_messages(self._run.thread_id, self._end_state.messages, self._names)
            messages = [*self._opening.greeting, *thread]
            self._put("STATE_SNAPSHOT", snapshot=self._end_state.values)
        else:
            messages = self._standing(is_over=True)
        self._page.replace(messages)
        self._finish(what, messages)
        return self._out

    # --- events -------------------------------------------------------------------------------------------------------

    def _put(self, kind: str, **fields: Any) -> None:
        if self._is_silent:
            return
        if kind == "TEXT_MESSAGE_CONTENT":  # nearly every token
            id, delta = encode_text(fields["messageId"]), encode_text(fields["delta"])
            self._out.append(Payload(one_line(f'{{"type":"{kind}","messageId":{id},"delta":{delta}}}')))
            return
        self._out.append(_line({"type": kind, **{key: value for key, value in fields.items() if value is not None}}))

    def _enter(self) -> None:
        """Begin the stream: with all that there is, for a client that comes late."""
        self._is_silent, opening = False, self._opening
        about = {"threadId": self._run.thread_id or "", "runId": self.run_id, "protocolVersion": PROTOCOL}
        self._put("RUN_STARTED", **about)
        if opening.attach or opening.is_behind:
            if opening.values is not None:
                self._put("STATE_SNAPSHOT", snapshot=opening.values)
            self._page.send_all()
        for one in self._customs:
            self._put_custom(one)
        self._page.open_again()

    # --- answers ------------------------------------------------------------------------------------------------------

    def _new_answer(self, call: TranscriptCall) -> ShownMessage:
        return ShownMessage(self._page, self._names, self._message_id(call), self._sync)

    def _message_id(self, call: TranscriptCall) -> str:
        """Return the id of an answer that brings none."""
        if call.call_id:
            return f"{RUN_ID_PREFIX}{call.call_id}"
        return self._own.setdefault(id(call), f"{self._run.run_id}:{len(self._own)}")

    def _give(self, shown: ShownMessage, given: str, result: Data) -> None:
        shown.answer(given, result)

    def _give_earlier(self, given: str, begun: Mapping[str, Any] | None, result: Data) -> None:
        message = result_message(result["data"], self._names.last(given))
        if self._page.message(message["id"]) is None:
            self._page.add_result(message)
        else:
            self._sync()

    def _note_cut(self, call: TranscriptCall, shown: ShownMessage, fields: Mapping[str, Any]) -> None:
        """Do nothing: the last snapshot has the mark of each answer."""

    def _show_custom(self, event: Event) -> None:
        data = event.data
        value = data["value"] if "value" in data else {key: data.get(key) for key in ("dropped", "size")}
        named = value.get("type") if isinstance(value, Mapping) else None
        name = next((one for one in (data.get("name"), named) if isinstance(one, str) and one), "custom")
        about: Data = {"name": name, "value": value, "metadata": {"runjournal": {"seq": event.seq}}}
        if self._is_silent:
            self._customs.append(about)
        else:
            self._put_custom(about)

    def _put_custom(self, about: Data) -> None:
        # `null` is a value, and not a field that is missing.
        self._out.append(_line({"type": "CUSTOM", **about}))

    def _ask(self, about: Mapping[str, Any]) -> None:
        asked = [one for one in about.get("interrupts", ()) if isinstance(one, Mapping)]
        self._questions = [_interrupt(one, f"{self._run.run_id}:question:{at}") for at, one in enumerate(asked)]

    def _end(self, about: Mapping[str, Any]) -> None:
        self._has_ended = True  # the last snapshot has what stands
        self._status, self._cause = str(about.get("status", "completed")), str(about.get("cause") or "")
        self._end_calls()

    # --- steps --------------------------------------------------------------------------------------------------------

    def _has_read(self, event: Event) -> None:
        if event.kind == "llm.human.input":
            self._hear(ui_messages(self._run.thread_id, [event.data["message"]]))
        self._step(event)

    def _hear(self, said: list[Data]) -> None:
        """Take note of a message of the user. The client that has sent it holds it."""
        if self._is_silent or not (self._opening.attach or self._opening.is_behind):
            self._page.hold(said)
        else:
            self._sync()

    def _step(self, event: Event) -> None:
        """Show the steps. A step is a node of the graph, from its first model call or tool on."""
        task, node = event.data.get("task"), event.data.get("node")
        if not isinstance(task, str) or event.data.get("inside"):
            return
        if event.kind in ("llm.start", "tool.start"):
            name = node if isinstance(node, str) and node else task.partition(":")[0]
            if not any(task in tasks for tasks in self._steps.values()):
                self._steps.setdefault(name, set()).add(task)
                if len(self._steps[name]) == 1:
                    self._page.start_step(name)
        elif event.kind == "task.end":
            for name in [one for one, tasks in self._steps.items() if task in tasks]:
                self._steps[name].discard(task)
                if not self._steps[name]:
                    del self._steps[name]
                    self._page.end_step(name)

    # --- what stands --------------------------------------------------------------------------------------------------

    def _sync(self) -> None:
        """Send what stands, since it cannot be said by adding. At the end, that comes anyway."""
        if not self._has_ended:
            self._page.replace(self._standing(is_over=False))

    def _standing(self, *, is_over: bool) -> list[Data]:
        """Return the messages of the thread, with those of the run so far."""
        reader, names = self._reader, self._names
        found = ui_messages(self._run.thread_id, reader.inputs, names)
        for part in reader.parts:
            shown = self._shown.get(id(part))
            if not reader.stands(part):
                continue
            if part.message is None and shown is not None and not is_over:
                found += shown.messages()
                continue
            messages = reader.messages_of(part)
            if part.cut and messages:
                fields = marked_as_cut(messages[0]["data"], part.cut, self._run.run_id)
                messages = [{**messages[0], "data": fields}, *messages[1:]]
            own = self._message_id(part)
            found += ui_messages(own, [_with_id(one, own) for one in messages], names)
        ids = {one["id"] for one in found}
        return [*(one for one in self._history if one["id"] not in ids), *found]

    # --- the end ------------------------------------------------------------------------------------------------------

    def _finish(self, what: Control, messages: list[Data]) -> None:
        about = {"threadId": self._run.thread_id or "", "runId": self.run_id}
        if what == "interrupted":
            self._put("RUN_ERROR", message=LOST, code="crash")
        elif what == "paused" and self._questions:
            for one in self._questions:
                raw = one["metadata"]["langgraph"]["raw"]
                self._put_custom({"name": ASKED, "value": raw if isinstance(raw, str) else strict_json.dumps(raw)})
            self._put("RUN_FINISHED", **about, outcome={"type": "interrupt", "interrupts": self._questions})
        elif self._status == "failed":
            self._put("RUN_ERROR", message=FAILED, code="failed")
        elif self._status == "interrupted" and self._cause not in _CANCELLED:
            self._put("RUN_ERROR", message=CUT_OFF, code=self._cause or "interrupted")
        elif self._status == "interrupted":
            self._put("RUN_FINISHED", **about, outcome=None if self._opening.is_older else {"type": "cancelled"})
        else:
            pending = _unanswered(messages)
            is_named = pending and not self._opening.is_older
            outcome = {"type": "success", "pendingToolCallIds": pending} if is_named else None
            self._put("RUN_FINISHED", **about, outcome=outcome)


def _line(event: Data) -> Payload:
    return Payload(one_line(encodable(strict_json.dumps(event))))


def _with_id(message: Data, id: str) -> Data:
    """Return a message of a call with the id under which it was streamed, if it brings none."""
    if message["data"].get("id") or message["type"] != "ai":
        return message
    return {**message, "data": {**message["data"], "id": id}}


def _interrupt(asked: Mapping[str, Any], otherwise: str) -> Data:
    """Return a question in the form of AG-UI, whose `metadata` have what the graph asked."""
    value = strict_json.plain(asked.get("value"))
    words = value if isinstance(value, str) else None
    if isinstance(value, Mapping):
        words = next((value[key] for key in _WORDS if isinstance(value.get(key), str)), None)
    found: Data = {"id": str(asked.get("id") or otherwise), "reason": REASON, "metadata": {"langgraph": {"raw": value}}}
    return {**found, "message": words} if words else found


def _unanswered(messages: Sequence[Data]) -> list[str]:
    """Return the calls behind the last message of the user that have no result: the graph leaves them to the page."""
    last = max((at for at, one in enumerate(messages) if one["role"] == "user"), default=0)
    answered = {one["toolCallId"] for one in messages[last:] if one["role"] == "tool"}
    asked = [call["id"] for one in messages[last:] for call in one.get("toolCalls", ())]
    return [one for one in asked if one not in answered]


@dataclass(frozen=True, slots=True)
class AgUi:
    """The dialect of `HttpAgent` of the package `@ag-ui/client`. Each stream has its own opening."""

    opening: Opening = field(default_factory=Opening)
    name: str = "ag-ui"
    has_ids: bool = False
    folds: bool = True
    holds: bool = False

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of its streams, beside those that every stream has."""
        return {}

    def projector(self, run: Run) -> AgUiProjector:
        """Return a projector for one run."""
        return AgUiProjector(run, self.opening)
