"""What callbacks mean for a run: which events they become, when a run begins and ends.

Rule: a run is what its root does. It begins with the first callback that has no parent here, and ends when that one ends;
what happens to a model call or a tool in it never ends it. LangChain's callbacks come in by `JournalCallbackHandler`, which
also writes down the tokens; everything else is here, under the lock of the tracker.
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
from ..messages import task_messages as _given
from ..messages.cut_calls import asks_again, endpoint_of
from ..messages.message_data import Data
from ..messages.tool_requests import request_ids
from . import callback_data as _translate
from .because import said
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
    """All handlers of one journal."""

    def __init__(self, journal: RunJournal) -> None:
        super().__init__(journal)
        self.tracker.on_gone = self._gone

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
        """Something begins; a run with it, if it has no parent here or is an attached graph on its own thread. None
        if another handler records it."""
        metadata = metadata or _NOTHING
        # Of the task of the outermost graph: what is tried again there is everything in it.
        namespace = str(metadata.get("langgraph_checkpoint_ns") or "").partition("|")[0]
        # An update of a graph's state reports itself as a chain. It is no run.
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
        """The id under which the run of a caller is recorded: the one that the caller gives, if no run of the journal has
        it.

        A program that tries again under one id (LangGraph Server does, after it was killed) makes a run of each attempt.
        """
        found, attempt = str(run_id), 1
        while caller.saver is not None and self._core.local_runs.get(key_of(run_id)) is None and self._is_used(found):
            attempt += 1
            found = str(uuid5(UUID(str(run_id)), f"attempt {attempt}"))
        return found

    def _is_used(self, run_id: str) -> bool:
        buffer = self._core.appender.buffers.get(run_id)
        if buffer is not None:
            return bool(buffer.ended)
        try:
            run = off_the_loop(partial(self._core.store.run, run_id))
        except Exception:
            logger.exception("could not look up whether run id %s is in use", run_id)
            return False
        return run is not None and run.status != RunStatus.PAUSED  # what waits for a human may go on under its own id

    def chain(self, node: Node, inputs: Any, metadata: Mapping[str, Any] | None, name: str | None) -> None:
        """A chain begins: the root, a task of a graph, or anything in between."""
        metadata = metadata or _NOTHING
        node.name = name
        if node.parent is None and node.root.caller is not None:
            metadata = {**metadata, "thread_id": node.root.caller.thread_id}
        if node.parent is not None:
            # What a task does may be called as the task is: it has its namespace.
            if name and metadata.get("langgraph_node") == name and metadata.get("langgraph_checkpoint_ns") != node.place:
                self.enter(node, inputs, metadata)
            return
        messages = _translate.input_messages(inputs)
        if messages is not None:
            # All that is put into a thread is new to it. Without a thread, it is what was said before as well.
            self._input(node.root, messages if metadata.get("thread_id") else _translate.newest(messages))
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
        """A model call begins."""
        metadata, root = metadata or _NOTHING, node.root
        if not root.asked_something and "langgraph_node" not in metadata:
            # Nobody has said what was asked but the model itself. A graph's state says it, or nobody should.
            asked = _translate.newest(_translate.input_messages(messages) or [])
            self._input(root, [message for message in asked if message["type"] == "human"])
        node.model = _translate.model_name(serialized, metadata, params)
        node.endpoint = endpoint_of(serialized, metadata)
        spoken = self.listen(node, metadata, tags or (), options)
        data: Data = {"model": node.model, "role": spoken.role, **_translate.place_of(metadata), **node.task}
        if node.inside is not None:
            data["inside"] = node.inside
        if metadata.get("ls_provider"):
            data["provider"] = metadata["ls_provider"]
        data.update(root.scope(node.namespace).begin_call(node.id, node.spot))
        self._put(root, "llm.start", data, node.id)

    def tool(self, node: Node, name: str | None, args: Any, tool_call_id: str | None, metadata: Any) -> None:
        """A tool begins."""
        place = {**_translate.place_of(metadata or _NOTHING), **node.task}
        data: Data = {"tool_call_id": tool_call_id, "name": name, "args": args, **place}
        if node.inside is not None:
            data["inside"] = node.inside
        self._put(node.root, "tool.start", data, node.id)
        node.tool_call_id = tool_call_id
        # What happens below it happens inside of it.
        node.inside = tool_call_id or node.id

    def _input(self, root: Root, messages: list[Data]) -> None:
        root.asked_something = True
        for message in messages:
            self._put(root, "llm.human.input", {"message": message})

    # --- endings ------------------------------------------------------------------------------------------------------

    def respond(self, node: Node, response: Any) -> None:
        """A model call is complete."""
        root = node.root
        data = _translate.response_data(response, node.id)
        usage = data.get("usage") or data["message"]["data"].get("usage_metadata")
        if node.partial:
            # Its partial message stands, and the words that came since are there. What it has cost is still news.
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
        """A model call is over without an answer."""
        if not node.cut:
            if not _translate.is_abort(error):
                self._put(node.root, "llm.error", {"error": _translate.error_text(error)}, node.id)
            ending = _translate.ending(error, self._why(node.root), from_within=True)
            if node.parent is not None and ending["status"] == "interrupted":
                ending["cause"] = self._why(node.root)  # else only the root will know: this may be a limit of time
            self._cut(node, ending)

    def result(self, node: Node, output: Any) -> None:
        """A tool has ended well."""
        root = node.root
        data = _given.result_data(output, node.tool_call_id)
        self._result(root, data, node.id, node.parent.inside if node.parent is not None else None)
        if root.over and root.turn is not None and "message" in data:
            self.threads.came_late(root.turn, root.run_id)
        if node.namespace and not root.over and "message" in data:
            for message in _given.tool_messages(output):
                root.scope(node.namespace).results[message.tool_call_id] = message

    def tool_error(self, node: Node, error: BaseException) -> None:
        """A tool has ended with an error, or waits for a human."""
        data: Data = {"tool_call_id": node.tool_call_id, "error": _translate.error_text(error)}
        if _translate.is_bubbling(error):
            data = {"tool_call_id": node.tool_call_id, "interrupted": True}
        self._put(node.root, "tool.error", data, node.id)

    def pause(self, event: Any) -> None:
        """A graph waits for a human."""
        root = self._root_of(event)
        if root is not None and not root.over:
            root.paused = True
            self._put(root, "run.pause", {**_translate.interrupt_data(event), "usage": root.usage})

    def resume(self, event: Any) -> None:
        """A graph goes on after it has waited for a human."""
        root = self._root_of(event)
        if root is not None:
            root.paused = False

    def _root_of(self, event: Any) -> Root | None:
        """The run whose outermost graph an event is about. A graph inside of another is none: the outer one hears of it and
        pauses as well, or goes on."""
        node = self.tracker.nodes.get(key_of(event.run_id)) if event.run_id is not None else None
        return node.root if node is not None and not event.checkpoint_ns else None

    # --- the end of a run ---------------------------------------------------------------------------------------------

    def close(self, node: Node, error: BaseException | None) -> None:
        """It is over, and if it is the root, so is the run. Does nothing the second time."""
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
            ending = _translate.ending(error, self._why(root), from_within=from_within)
            if root.started is not None and not root.started.is_asked and ending.get("cause") in ("stop", "disconnect"):
                ending["cause"] = "shutdown"  # nobody else has its task in hand: the loop ends
            if error is None and not root.is_graph and any(one.said and not one.inside for one in root.open.values()):
                # A chain whose stream is closed says that it has ended well, in the middle of its answer.
                ending = {"status": "interrupted", "cause": self._why(root) or "disconnect"}
            self._end(root, ending)

    def _end(self, root: Root, ending: Data, *, told: bool = True) -> None:
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
                    self._spend(node, None, complete=False)  # it may still end, for nobody
        problem = _why_never_settled(root, ending)
        has_lost = root.has_shown and not waits and ending["status"] == "completed"
        if waits or turn is None or problem or (ending["status"] == "completed" and not has_lost):
            if not waits:
                self._tell_end(root, {**ending, **problem})
            self.threads.leave(root)
        elif told and (turn.is_settled_at_once(ending) or (has_lost and turn.mode != "never")):
            if has_lost:  # as long as its thread is settled, and if its process is killed meanwhile, this says so
                self._put(root, "run.checkpoint", {"completed": True}, late=False)
            turn.ending = ending
            self._unsettled[turn.key] = root
        else:
            problem = {"problem": _LEFT[turn.mode]} if told and turn.mode in _LEFT else {}
            self._tell_end(root, {**ending, "settled": False, **problem})
            self.threads.leave(root)

    def _cut(self, node: Node, ending: Data) -> None:
        """A model call is cut off: it will be replaced, or its partial message stands."""
        root = node.root
        node.cut = True
        if node.said or (root.over and root.turn is not None):
            # Before the end of a run that is settled first, it also says that whatever comes now is not part of it.
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

    def _gone(self, node: Node) -> None:
        """Nobody works on it any more, and nobody has said so: a cancelled `ainvoke`, a stream that was left."""
        root = node.root
        if root.over or self.is_orphaned:
            return
        ending = {"status": "interrupted", "cause": self._asked(root) or ("stop" if root.loop else "disconnect")}
        if node.model is not None and not node.cut:
            self._cut(node, ending)
        if node.parent is None:
            self.tracker.close(node)
            self._end(root, ending, told=False)

    # --- helpers ------------------------------------------------------------------------------------------------------

    def _spend(self, node: Node, usage: Mapping[str, Any] | None, *, complete: bool) -> None:
        """Count what a call has cost: what the provider says of it, or has said before it was cut off."""
        total = node.root.usage.setdefault(node.model or "unknown", {"calls": 0})
        total["calls"] += 1
        reported = usage if complete and usage else node.usage
        if reported:
            _translate.add_usage(total, reported)
        if not (complete and reported):
            total["incomplete"] = total.get("incomplete", 0) + 1

    def _why(self, root: Root) -> str | None:
        """The cause that was given for an end that is reported now: by a stop request, or by `because` around it."""
        return self._asked(root) or said()

    def _asked(self, root: Root) -> str | None:
        asked: str | None = self._journal.stop_requested(root.run_id)
        return asked


def recorder_of(journal: RunJournal) -> Recorder:
    """Return the recorder of a journal; make it if this is the first use."""
    return core_of(journal).extensions.get(Recorder, partial(Recorder, journal))


def _why_never_settled(root: Root, ending: Data) -> Data:
    """Of a run that was cut off, why nobody will settle its thread."""
    problem = root.caller.problem if root.caller is not None else None
    if ending.pop("rolled_back", False):
        problem = "the caller took the run back, and removes its checkpoints"
    if problem is None or ending["status"] == "completed":
        return {}
    return {"settled": False, "given_up": True, "problem": problem}
