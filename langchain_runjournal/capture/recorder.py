"""What callbacks mean for a run: which events they become, and when a run begins and ends.

Rule: a run is what its root does. It begins with the first callback that has no parent here, and ends when that call ends;
the end of a model call or a tool in it never ends the run. `JournalCallbackHandler` receives LangChain's callbacks and
records the tokens; everything else is here, under the lock of the tracker.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid5

from ..common.text import is_utf8
from ..common.twins import off_the_loop
from ..events import CALLED, DELTA, RunStatus
from ..journal.core import core_of
from ..messages import task_messages
from ..messages.cut_calls import asks_again, endpoint_of
from ..messages.message_data import Data
from ..messages.tool_requests import request_ids
from . import callback_data
from .because import current_cause
from .call_tree import Node, Owner, Root, key_of
from .graph_tasks import Tasks
from .stopped import RunningThreads, StartedRun

if TYPE_CHECKING:
    from ..journal.run_journal import RunJournal
    from .calling_graph import Caller

logger = logging.getLogger("langchain_runjournal")

_NOTHING: Mapping[str, Any] = {}
_NO_THREAD = "recording run %s without its thread: the id %r holds half of a surrogate pair, which cannot be stored"
_LEFT = {
    "never": "its graph is attached with settle='never': recover settles it",
    "on_stop": "it failed, and its graph is attached with settle='on_stop': the next message settles it, or recover",
}


class Recorder(Tasks):
    """The recorder that all handlers of one journal share."""

    def __init__(self, journal: RunJournal) -> None:
        super().__init__(journal)
        self.tracker.on_unreported_end = self._end_unreported

    # --- beginnings ---------------------------------------------------------------------------------------------------

    def begin(
        self,
        owner: Owner,
        run_id: Any,
        parent_run_id: Any,
        metadata: Mapping[str, Any] | None,
        name: str | None,
        caller: Caller | None = None,
    ) -> Node | None:
        """Record that a call begins, and a run with it if the call has no parent here or is an attached graph on its own
        thread. Return None if another handler records the call."""
        metadata = metadata or _NOTHING
        # The namespace of the task of the outermost graph: a retry of that task repeats everything in it.
        namespace = str(metadata.get("langgraph_checkpoint_ns") or "").partition("|")[0]
        # LangGraph reports an update of a graph's state as a chain. That is not a run.
        muted = name is not None and name.endswith("UpdateState")
        is_own = caller is not None and caller.saver is not None
        parent = None if is_own else parent_run_id
        named = self._free_id(run_id, caller) if caller is not None and caller.names_its_run else None
        node = self.tracker.open(run_id, parent, "" if is_own else namespace, owner, muted=muted, named=named)
        if node is not None and node.parent is None:
            about, thread_id = dict(metadata), metadata.get("thread_id")
            started: StartedRun | None = self._core.local_runs.get(node.key)
            if started is not None:
                started.begin(node.root)
                about.update(started.about())
            if caller is not None:
                node.root.caller, thread_id = caller, caller.thread_id
                about.update(caller.about())
                if node.root.run_id != node.id:
                    about[CALLED] = node.id
            self.introduce(node.root, owner, caller, name)
            thread = None if thread_id is None else str(thread_id)
            if thread is not None and not is_utf8(thread):
                logger.error(_NO_THREAD, node.root.run_id, thread)
                thread = None
            self.threads.record(node.root, thread)
            data: Data = {"thread_id": thread, "name": name, "metadata": about}
            if parent_run_id is not None:
                data["parent_run_id"] = str(parent_run_id)
            self._put(node.root, "run.start", data)
        return node

    def _free_id(self, run_id: Any, caller: Caller) -> str:
        """Return the id under which the run of a caller is recorded: the id that the caller gives, if no run of the journal
        has it.

        If a program tries again under one id (LangGraph Server does, after it was killed), each attempt is a run of its own.
        """
        found, attempt = str(run_id), 1
        while caller.saver is not None and self._core.local_runs.get(key_of(run_id)) is None and self._is_used(found):
            attempt += 1
            found = str(uuid5(UUID(str(run_id)), f"attempt {attempt}"))
        return found

    def _is_used(self, run_id: str) -> bool:
        buffer = self._core.appender.buffer_of(run_id)
        if buffer is not None:
            return bool(buffer.ended)
        try:
            run = off_the_loop(partial(self._core.store.run, run_id))
        except Exception:
            logger.exception("could not look up whether run id %s is in use", run_id)
            return False
        return run is not None and run.status != RunStatus.PAUSED  # a paused run may resume under its own id

    def chain(self, node: Node, inputs: Any, metadata: Mapping[str, Any] | None, name: str | None) -> None:
        """Record that a chain begins: the root, a task of a graph, or anything in between."""
        metadata = metadata or _NOTHING
        node.name = name
        if node.parent is None and node.root.caller is not None:
            metadata = {**metadata, "thread_id": node.root.caller.thread_id}
        if node.parent is not None:
            # A chain inside of a task may have the name of the task; it then has the task's namespace, which is its place.
            if name and metadata.get("langgraph_node") == name and metadata.get("langgraph_checkpoint_ns") != node.place:
                self.enter(node, inputs, metadata)
            return
        messages = callback_data.input_messages(inputs)
        if messages is not None:
            # All input of a thread is new to the thread. Without a thread, the input repeats what was said before.
            self._input(node.root, messages if metadata.get("thread_id") else callback_data.newest(messages))
        if not messages and node.root.caller is not None and node.root.caller.is_given_other(inputs):
            self._put(node.root, "run.checkpoint", {"given": "no messages"})

    def model(
        self,
        node: Node,
        serialized: Any,
        messages: Any,
        metadata: Mapping[str, Any] | None,
        tags: Iterable[str] | None,
        params: Any,
        options: Any = None,
    ) -> None:
        """Record that a model call begins."""
        metadata, root = metadata or _NOTHING, node.root
        if not root.asked_something and "langgraph_node" not in metadata:
            # Only the input of the model shows what the user asked. In a graph, only the graph's input may show it.
            asked = callback_data.newest(callback_data.input_messages(messages) or [])
            self._input(root, [message for message in asked if message["type"] == "human"])
        node.model = callback_data.model_name(serialized, metadata, params)
        node.endpoint = endpoint_of(serialized, metadata)
        spoken = self.listen(node, metadata, tags or (), options)
        data: Data = {"model": node.model, "role": spoken.role, **callback_data.place_of(metadata), **node.task}
        if node.inside is not None:
            data["inside"] = node.inside
        if metadata.get("ls_provider"):
            data["provider"] = metadata["ls_provider"]
        if callback_data.is_unstreamed(messages, tags or ()):
            data["unstreamed"] = True
        data.update(root.scope(node.namespace).begin_call(node.id, node.spot))
        self._put(root, "llm.start", data, node.id)

    def tool(self, node: Node, name: str | None, args: Any, tool_call_id: str | None, metadata: Any) -> None:
        """Record that a tool begins."""
        place = {**callback_data.place_of(metadata or _NOTHING), **node.task}
        data: Data = {"tool_call_id": tool_call_id, "name": name, "args": args, **place}
        if node.inside is not None:
            data["inside"] = node.inside
        self._put(node.root, "tool.start", data, node.id)
        node.tool_call_id = tool_call_id
        # Calls below the tool run inside of it.
        node.inside = tool_call_id or node.id

    def _input(self, root: Root, messages: list[Data]) -> None:
        root.asked_something = True
        for message in messages:
            self._put(root, "llm.human.input", {"message": message})

    # --- endings ------------------------------------------------------------------------------------------------------

    def respond(self, node: Node, response: Any) -> None:
        """Record that a model call is complete."""
        root = node.root
        data = callback_data.response_data(response, node.id)
        usage = data.get("usage") or data["message"]["data"].get("usage_metadata")
        if node.partial:
            # The partial message stands, and the journal has the words that came since. Only the usage is new.
            if usage:
                self._put(root, DELTA, {"usage": usage}, node.id)
        else:
            data.update(self.hear(node, data["message"]))
            if (cut := self.cut_calls.judge(node, response)) is not None:
                data["cut"] = cut.data()
                if cut.calls and asks_again.get() and not root.over:
                    root.scope(node.namespace).failed[node.id] = node.spot
            self._put(root, "llm.ai.response", data, node.id)
            if (scope := root.scopes.get(node.namespace)) is not None:
                scope.speak(node.id, node.spoken)
            if not root.over and node.inside is None:
                root.requests.update(request_ids(data["message"]["data"]))
        if not node.cut:
            self._spend(node, usage, complete=True)

    def fail(self, node: Node, error: BaseException) -> None:
        """Record that a model call has ended without an answer."""
        if not node.cut:
            if not callback_data.is_abort(error):
                self._put(node.root, "llm.error", {"error": callback_data.error_text(error)}, node.id)
            ending = callback_data.ending(error, self._why(node.root), from_within=True)
            if node.parent is not None and ending["status"] == "interrupted":
                ending["cause"] = self._why(node.root)  # without one, only the root knows: this may be a time limit
            self._cut(node, ending)

    def result(self, node: Node, output: Any) -> None:
        """Record that a tool has ended well."""
        root = node.root
        data = task_messages.result_data(output, node.tool_call_id)
        self._result(root, data, node.id, node.parent.inside if node.parent is not None else None)
        if root.over and root.turn is not None and "message" in data:
            self.threads.came_late(root.turn, root.run_id)
        if node.namespace and not root.over and "message" in data:
            for message in task_messages.tool_messages(output):
                root.scope(node.namespace).results[message.tool_call_id] = message

    def tool_error(self, node: Node, error: BaseException) -> None:
        """Record that a tool has ended with an error, or waits for a human."""
        data: Data = {"tool_call_id": node.tool_call_id, "error": callback_data.error_text(error)}
        if callback_data.is_bubbling(error):
            data = {"tool_call_id": node.tool_call_id, "interrupted": True}
        self._put(node.root, "tool.error", data, node.id)

    def pause(self, event: Any) -> None:
        """Record that a graph waits for a human."""
        root = self._root_of(event)
        if root is not None and not root.over:
            root.paused = True
            self._put(root, "run.pause", {**callback_data.interrupt_data(event), "usage": root.usage})

    def resume(self, event: Any) -> None:
        """Note that a graph resumes after it has waited for a human."""
        root = self._root_of(event)
        if root is not None:
            root.paused = False

    def _root_of(self, event: Any) -> Root | None:
        """Return the run whose outermost graph an event is about. Return None for a graph inside of another: LangGraph
        reports the event for the outer graph too, which then pauses or resumes as well."""
        node = self.tracker.nodes.get(key_of(event.run_id)) if event.run_id is not None else None
        return node.root if node is not None and not event.checkpoint_ns else None

    # --- the end of a run ---------------------------------------------------------------------------------------------

    def close(self, node: Node, error: BaseException | None) -> None:
        """Record that a call is over, and with it the run if the call is the root. Do nothing the second time."""
        if self.tracker.nodes.get(node.key) is not node:
            return
        self.tracker.close(node)
        root = node.root
        if root.left is not None:
            root.left.closed(node.key)
        if node.parent is not None:
            if error is not None:
                root.last_error = id(error)
        elif not root.over:
            from_within = error is not None and root.last_error == id(error)
            ending = callback_data.ending(error, self._why(root), from_within=from_within)
            if root.started is not None and not root.started.is_asked and ending.get("cause") in ("stop", "disconnect"):
                ending["cause"] = "shutdown"  # no other code can cancel its task: the event loop ends
            if error is None and not root.is_graph and any(one.said and not one.inside for one in root.open.values()):
                # LangChain reports that a chain has ended well, though its stream was closed in the middle of an answer.
                ending = {"status": "interrupted", "cause": self._why(root) or "disconnect"}
            self._end(root, ending)

    def _end(self, root: Root, ending: Data, *, reported: bool = True) -> None:
        waits = root.paused and ending["status"] == "completed"
        turn = root.turn
        left = self.tracker.leave(root)
        if root.started is not None:
            root.left = RunningThreads(left, root.started.thread)
            if root.started.is_asked:
                root.started.refuse_all(left)
        for node in left:
            if node.model is not None and not waits:
                if ending["status"] != "completed":
                    self._cut(node, ending)
                else:
                    self._spend(node, None, complete=False)  # the call may still end, but its answer reaches no reader
        problem = _why_never_settled(root, ending)
        has_lost = root.has_shown and not waits and ending["status"] == "completed"
        if waits or turn is None or problem or (ending["status"] == "completed" and not has_lost):
            if not waits:
                self._append_end(root, {**ending, **problem})
            self.threads.leave(root)
        elif reported and (turn.is_settled_at_once(ending) or (has_lost and turn.mode != "never")):
            if has_lost:  # the event says so if the process is killed before the thread is settled
                self._put(root, "run.checkpoint", {"completed": True}, late=False)
            turn.ending = ending
            self._unsettled[turn.key] = root
        else:
            problem = {"problem": _LEFT[turn.mode]} if reported and turn.mode in _LEFT else {}
            self._append_end(root, {**ending, "settled": False, **problem})
            self.threads.leave(root)

    def _cut(self, node: Node, ending: Data) -> None:
        """Record that a model call is cut off: another attempt replaces it, or its partial message stands."""
        root = node.root
        node.cut = True
        if node.said or (root.over and root.turn is not None):
            # In a run that is settled before its end, the event also says that later words are not part of the message.
            node.partial = True
            data = {"cause": ending.get("cause"), "error": ending.get("error")}
            self._put(root, "llm.ai.partial", {key: value for key, value in data.items() if value}, node.id, late=False)
        self._spend(node, None, complete=False)
        if not root.over:
            scope = root.scope(node.namespace)
            scope.failed[node.id] = node.spot
            if node.said and node.spoken is not None and ending["status"] == "failed":
                scope.cut(node.id, node.spoken)
            if node.parent is not None:
                node.parent.calls.pop(node.id, None)

    def _end_unreported(self, node: Node) -> None:
        """Record the end of a call that LangChain has not reported: a cancelled `ainvoke`, an abandoned stream."""
        root = node.root
        if root.over or self.is_orphaned:
            return
        ending = {"status": "interrupted", "cause": self._asked(root) or ("stop" if root.loop else "disconnect")}
        if node.model is not None and not node.cut:
            self._cut(node, ending)
        if node.parent is None:
            self.tracker.close(node)
            self._end(root, ending, reported=False)

    # --- helpers ------------------------------------------------------------------------------------------------------

    def _spend(self, node: Node, usage: Mapping[str, Any] | None, *, complete: bool) -> None:
        """Count what a call has cost: the usage that the provider reports, or has reported before the call was cut off."""
        total = node.root.usage.setdefault(node.model or "unknown", {"calls": 0})
        total["calls"] += 1
        reported = usage if complete and usage else node.usage
        if reported:
            callback_data.add_usage(total, reported)
        if not (complete and reported):
            total["incomplete"] = total.get("incomplete", 0) + 1

    def _why(self, root: Root) -> str | None:
        """Return the cause that was given for an end that is reported now: by a stop request, or by `because` around it."""
        return self._asked(root) or current_cause()

    def _asked(self, root: Root) -> str | None:
        asked: str | None = self._journal.stop_requested(root.run_id)
        return asked


def recorder_of(journal: RunJournal) -> Recorder:
    """Return the recorder of a journal; make it if this is the first use."""
    return core_of(journal).extensions.get(Recorder, partial(Recorder, journal))


def _why_never_settled(root: Root, ending: Data) -> Data:
    """Return why no settlement will handle the thread of a run that was cut off, or nothing."""
    problem = root.caller.problem if root.caller is not None else None
    if ending.pop("rolled_back", False):
        problem = "the caller took the run back, and removes its checkpoints"
    if problem is None or ending["status"] == "completed":
        return {}
    return {"settled": False, "given_up": True, "problem": problem}
