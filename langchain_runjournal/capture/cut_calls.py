"""What capture notes of answers that were cut off, and how the handler of an attached graph refuses their tool calls.

Rule: capture judges an answer when it has ended, by the deltas that it has written down. A tool that would run with cut
arguments is refused where LangChain reports its start, before it runs: `ToolNode` makes the result of what is raised there.
"""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ..common.strict_json import dumps
from ..messages.cut_answers import decided_in, known_of, recorded_cut
from ..messages.cut_calls import ENDPOINTS, Cut, find_cut, is_of_calls, raw_of
from .call_tree import Node, Root, Tracker
from .callback_data import name_of

if TYPE_CHECKING:
    from ..journal.run_journal import RunJournal
    from ..messages.tool_results import CallKnowledge
    from .recorder import Recorder

_MOST: Final = 1_000
"""How many such calls are remembered. They are answered at once, but for those that wait for a human."""

_RUNS_BACK: Final = 2
"""How many runs of a thread may ask for what a new one takes up: the newest, and the new one itself."""

logger = logging.getLogger("langchain_runjournal")


@dataclass(frozen=True, slots=True)
class _Refused:
    """A call that does not run, as LangChain's parser has made it."""

    known: CallKnowledge
    name: str | None
    args: Any

    def is_meant_by(self, name: str | None, args: Any) -> bool:
        """Whether a tool that is about to run is this call, and not another one under its id: a human has edited it, or an
        id came again elsewhere. Arguments that somebody adds to those of the model (a user's id, say) make no other call."""
        if name is not None and self.name is not None and name != self.name:
            return False
        if not isinstance(args, Mapping) or not isinstance(self.args, Mapping):
            return True
        if not self.args:
            return not args
        return all(dumps(args[key]) == dumps(value) for key, value in self.args.items() if key in args)


class CutCalls:
    """The calls that do not run, by their thread or, without one, by their run: a run that waits for a human is taken up by
    another one."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], _Refused] = {}

    def __bool__(self) -> bool:
        return bool(self._known)

    def judge(self, node: Node, response: Any) -> Cut | None:
        """Whether the answer of a model call was cut off. If so, its tool calls are refused from now on. Does not raise."""
        try:
            generations = response.generations[0] if response.generations else []
            message = getattr(generations[0], "message", None) if generations else None
            return self._judge(node, vars(message)) if message is not None else None
        except Exception:
            logger.exception("could not find out whether the answer of call %s is whole; treating it as whole", node.id)
            return None

    def _judge(self, node: Node, fields: Mapping[str, Any]) -> Cut | None:
        expects = ENDPOINTS.heard(node.endpoint, fields, streamed=node.spoke)
        written = node.raw.getvalue()
        cut = find_cut(fields, raw_of(written) if written else None, expects=expects)
        self._note(_place(node.root), fields, cut)
        return cut

    def _note(self, place: str, fields: Mapping[str, Any], cut: Cut | None) -> None:
        for call in (fields.get("tool_calls") or ()) if self._known else ():
            found = self._known.get((place, str(call.get("id"))))
            if found is not None and found.is_meant_by(call.get("name"), call.get("args")):
                del self._known[place, str(call.get("id"))]  # made again, and not another call under its id
        if cut is not None:
            asked = {call.get("id"): call for call in fields.get("tool_calls") or ()}
            for one in cut.calls:
                args = (asked.get(one.id) or {}).get("args")
                self._known[place, str(one.id)] = _Refused(known_of(one.id, cut), one.name, args)
        while len(self._known) > _MOST:
            self._known.pop(next(iter(self._known)))

    def recall(self, journal: RunJournal, thread_id: str) -> None:
        """Learn from the journal which calls of a thread do not run: a run takes up what another process has begun."""
        for run in reversed(journal.runs(thread_id, limit=_RUNS_BACK)):
            for event in journal.read(run.run_id):
                if event.kind == "llm.ai.response":
                    fields = event.data["message"]["data"]
                    self._note(_of_thread(thread_id), fields, recorded_cut(fields, event.data.get("cut")))
                elif event.kind == "task.end":
                    for message in event.data.get("messages", ()):
                        self._allow(_of_thread(thread_id), message["data"].get("additional_kwargs"))

    def allow(self, root: Root, messages: Iterable[Any]) -> None:
        """A task has given these messages. Where a guard has marked an answer as cut off, it has decided which of its calls
        run: those that it left without a result and that have come whole."""
        for message in messages:
            self._allow(_place(root), getattr(message, "additional_kwargs", None))

    def _allow(self, place: str, kwargs: Any) -> None:
        for call in (decided_in(kwargs) or {}).get("calls") or ():
            if call.get("final"):
                self._known.pop((place, call.get("id")), None)

    def refused(self, root: Root, call_id: str, name: str | None, args: Any) -> CallKnowledge | None:
        """What is known of a call that does not run; None if it may, also because it is not what the model asked for."""
        found = self._known.get((_place(root), call_id))
        return found.known if found is not None and found.is_meant_by(name, args) else None


def _place(root: Root) -> str:
    thread = root.caller.thread_id if root.caller is not None else None
    return root.run_id if thread is None else _of_thread(thread)


def _of_thread(thread_id: str) -> str:
    return f"thread {thread_id}"


def keep(node: Node, delta: Mapping[str, Any], written: str) -> None:
    """Keep what was `written` of a delta until the call has ended, if it speaks of tool calls."""
    if is_of_calls(delta):
        node.raw.write(written)


class Refusing:
    """A handler that can refuse the start of a tool."""

    refuses_cut = False
    """Whether it does. A handler that only records changes nothing."""
    _tracker: Tracker
    _capture: Recorder

    @property
    def raise_error(self) -> bool:
        """Whether LangChain lets an exception of this handler through: it asks while it handles one. Only a refusal."""
        return getattr(sys.exc_info()[1], "is_refusal", False)

    @raise_error.setter
    def raise_error(self, value: bool) -> None:
        raise AttributeError("raise_error is decided by the handler")

    def refused(self, serialized: Any, about: Mapping[str, Any]) -> CallKnowledge | None:
        """Why the tool that LangChain reports in these words does not run; None if it may."""
        call_id, parent = about.get("tool_call_id"), about.get("parent_run_id")
        if not self.refuses_cut or call_id is None or parent is None:
            return None
        node = self._tracker.find(parent)
        name = serialized.get("name") if isinstance(serialized, Mapping) else None
        return self._capture.cut_calls.refused(node.root, call_id, name, about.get("inputs")) if node is not None else None


def refusing(method: Callable[..., None]) -> Callable[..., None]:
    """`on_tool_start` of a handler that can refuse."""

    @functools.wraps(method)
    def asked(self: Refusing, serialized: Any, input_str: str, **about: Any) -> None:
        known = self.refused(serialized, about)
        if known is not None:
            from ..guard.refusal import refusal

            raise refusal(known, str(name_of(serialized, about)), about.get("tool_call_id"), about.get("inputs"))
        method(self, serialized, input_str, **about)

    return asked
