"""What capture records of answers that were cut off, and how the handler of an attached graph refuses their tool calls.

Rule: capture judges an answer when the answer has ended, by the deltas that it has recorded. The handler refuses a tool that
would run with cut arguments when LangChain reports its start, before the tool runs: `ToolNode` makes the result from the
exception.
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

_MAX_CALLS: Final = 1_000
"""How many of these calls are remembered. The graph answers them at once, except those that wait for a human."""

_RUNS_BACK: Final = 2
"""How many runs of a thread may contain the requests that a new run resumes: the newest run, and the new one itself."""

logger = logging.getLogger("langchain_runjournal")


@dataclass(frozen=True, slots=True)
class _Refused:
    """A tool call that does not run, as LangChain's parser has read it."""

    known: CallKnowledge
    name: str | None
    args: Any

    def is_meant_by(self, name: str | None, args: Any) -> bool:
        """Return whether a tool that is about to run is this call, and not another one with its id: a human has edited it,
        or the id came again elsewhere. Arguments that the program adds to those of the model (for example a user's id) do
        not make it another call."""
        if name is not None and self.name is not None and name != self.name:
            return False
        if not isinstance(args, Mapping) or not isinstance(self.args, Mapping):
            return True
        if not self.args:
            return not args
        return all(dumps(args[key]) == dumps(value) for key, value in self.args.items() if key in args)


class CutCalls:
    """The calls that do not run, by their thread or, without one, by their run: another run resumes a run that waits for a
    human."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], _Refused] = {}

    def __bool__(self) -> bool:
        return bool(self._known)

    def judge(self, node: Node, response: Any) -> Cut | None:
        """Return what was cut off of the answer of a model call, or None. If so, its tool calls are refused from now on.
        Does not raise."""
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
                del self._known[place, str(call.get("id"))]  # the model asks for this very call again
        if cut is not None:
            requests = {call.get("id"): call for call in fields.get("tool_calls") or ()}
            for one in cut.calls:
                args = (requests.get(one.id) or {}).get("args")
                self._known[place, str(one.id)] = _Refused(known_of(one.id, cut), one.name, args)
        while len(self._known) > _MAX_CALLS:
            self._known.pop(next(iter(self._known)))

    def recall(self, journal: RunJournal, thread_id: str) -> None:
        """Learn from the journal which calls of a thread do not run: a run may resume what another process has begun."""
        for run in reversed(journal.runs(thread_id, limit=_RUNS_BACK)):
            for event in journal.read(run.run_id):
                if event.kind == "llm.ai.response":
                    fields = event.data["message"]["data"]
                    self._note(_of_thread(thread_id), fields, recorded_cut(fields, event.data.get("cut")))
                elif event.kind == "task.end":
                    for message in event.data.get("messages", ()):
                        self._allow(_of_thread(thread_id), message["data"].get("additional_kwargs"))

    def allow(self, root: Root, messages: Iterable[Any]) -> None:
        """Allow the calls that run by a guard's decision, in messages that a task has returned. Where a guard has marked an
        answer as cut off, it has decided which calls of the answer run: those that it left without a result and that arrived
        whole."""
        for message in messages:
            self._allow(_place(root), getattr(message, "additional_kwargs", None))

    def _allow(self, place: str, kwargs: Any) -> None:
        for call in (decided_in(kwargs) or {}).get("calls") or ():
            if call.get("final"):
                self._known.pop((place, call.get("id")), None)

    def refused(self, root: Root, call_id: str, name: str | None, args: Any) -> CallKnowledge | None:
        """Return what is known of a call that does not run. Return None if it may run, also because it is not what the model
        asked for."""
        found = self._known.get((_place(root), call_id))
        return found.known if found is not None and found.is_meant_by(name, args) else None


def _place(root: Root) -> str:
    thread = root.caller.thread_id if root.caller is not None else None
    return root.run_id if thread is None else _of_thread(thread)


def _of_thread(thread_id: str) -> str:
    return f"thread {thread_id}"


def keep(node: Node, delta: Mapping[str, Any], written: str) -> None:
    """Keep the JSON of a delta (`written`) until the call has ended, if the delta is about tool calls."""
    if is_of_calls(delta):
        node.raw.write(f"{written},")


class Refusing:
    """A handler that can refuse the start of a tool."""

    refuses_cut = False
    """Whether it refuses calls that were cut off. A handler that only records changes nothing."""
    _tracker: Tracker
    _capture: Recorder

    @property
    def raise_error(self) -> bool:
        """Whether LangChain lets an exception of this handler through: only a refusal. LangChain reads this while it handles
        one."""
        return getattr(sys.exc_info()[1], "is_refusal", False)

    @raise_error.setter
    def raise_error(self, value: bool) -> None:
        raise AttributeError("raise_error is decided by the handler")

    def refused(self, serialized: Any, about: Mapping[str, Any]) -> CallKnowledge | None:
        """Return why the tool that LangChain reports with these arguments does not run, or None if it may run."""
        call_id, parent = about.get("tool_call_id"), about.get("parent_run_id")
        if not self.refuses_cut or call_id is None or parent is None:
            return None
        node = self._tracker.find(parent)
        name = serialized.get("name") if isinstance(serialized, Mapping) else None
        return self._capture.cut_calls.refused(node.root, call_id, name, about.get("inputs")) if node is not None else None


def refusing(method: Callable[..., None]) -> Callable[..., None]:
    """Return `on_tool_start` for a handler that can refuse a tool."""

    @functools.wraps(method)
    def checked(self: Refusing, serialized: Any, input_str: str, **about: Any) -> None:
        known = self.refused(serialized, about)
        if known is not None:
            from ..guard.refusal import refusal

            raise refusal(known, str(name_of(serialized, about)), about.get("tool_call_id"), about.get("inputs"))
        method(self, serialized, input_str, **about)

    return checked
