"""The open calls of the runs that a journal captures: which call belongs to which run, and which calls have not ended.

Rule: what the tracker keeps of a call does not grow with the call, and the tracker deletes it when the call is over, also if
LangChain never reports that end. A cancelled `ainvoke` ends without any callback. LangChain holds the object of the run id
as long as the call is running, so the call is over when that object is garbage-collected (`_CallRef`). See `_holder` for ids
that the caller holds as well.

One tracker serves all handlers of a journal, so that two of them on one run do not record it twice: the handler that reports
a call first records it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from io import StringIO
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, Protocol
from uuid import UUID

from ..messages.attempts import Scope
from ..messages.message_data import RUN_ID_PREFIX, Data
from .thread_slots import ThreadSlot

if TYPE_CHECKING:
    from ..messages.answers import Answers, Spoken
    from ..messages.task_messages import Had
    from .calling_graph import Caller
    from .stopped import RunningThreads, StartedRun

logger = logging.getLogger("langchain_runjournal")

_MAX_LEFT: Final = 10_000
"""How many calls of ended runs the tracker keeps, in case something else holds the ids of all of them."""
_MAX_FAILED: Final = 1_000
"""How many failed chains the tracker keeps, because calls may still start below them."""
_MAX_FRAMES: Final = 30


class _CallRef(weakref.ref[Any]):
    """Weak reference to an object that lives as long as a call: its callback shows that the call is over."""

    __slots__ = ("key",)
    key: int


class Owner(Protocol):
    """The handler that records a node."""

    streaming: dict[int, Node]
    """The model calls whose tokens the handler records."""
    answers: Answers | None
    """The user's rule for which calls are answers, or None."""

    def on_chain_end(self, outputs: Any, *, run_id: UUID) -> Any:
        """Record that a chain has ended well."""

    def on_chain_error(self, error: BaseException, *, run_id: UUID) -> Any:
        """Record that a chain has failed."""


class Root:
    """One run."""

    def __init__(self, run_id: str, *, muted: bool) -> None:
        self.run_id = run_id
        self.muted = muted
        self.caller: Caller | None = None
        """The call of its graph, if the graph is attached."""
        self.started: StartedRun | None = None
        """Its task, if `start_run` began it in a task of its own."""
        self.left: RunningThreads | None = None
        """The calls that are still running in threads when the run has ended."""
        self.thread_id: str | None = None
        self.turn: ThreadSlot | None = None
        """Its slot on a thread, if its graph is attached and so settles the thread."""
        self.loop = _on_a_loop()
        """Whether it began on an event loop."""
        self.over = False
        """Whether the run has ended, or waits for a human. A later event is late."""
        self.paused = False
        self.asked_something = False
        """Whether its human input is known."""
        self.usage: dict[str, Data] = {}
        self.scopes: dict[str, Scope] = {}
        self.open: dict[int, Node] = {}
        self.is_graph = False
        self.requests: set[str] = set()
        """The ids of tool requests that have no result yet."""
        self.last_error = 0
        """The `id()` of the last exception that a part of the run raised."""
        self.learns_as = ""
        """The key under which facts about its nodes are filed: its graph, or else its name. If the key is empty, the journal
        learns nothing, since it could not distinguish graphs without a name."""
        self.learns_durably = False
        """Whether the store keeps those facts."""
        self.keeps: bool | None = None
        """Whether its state has `messages`; None while that is not known."""
        self.answers: Answers | None = None
        """The user's rule for which calls are answers, or None."""
        self.has_shown = False
        """Whether a task has ended without an answer that the user saw and that was cut off (see `Scope.shown`)."""
        self.given: dict[str, Data] = {}
        """The fingerprints of the answers that tasks have returned, by the ids of their messages."""

    def scope(self, namespace: str) -> Scope:
        """Return the scope of a checkpoint namespace; make it if it is new."""
        found = self.scopes.get(namespace)
        if found is None:
            found = self.scopes[namespace] = Scope()
        return found


class Node:
    """One LangChain run: a chain, a tool, or a model call."""

    __slots__ = (
        "calls",
        "counter",
        "cut",
        "endpoint",
        "had",
        "id",
        "inside",
        "is_inner",
        "is_task",
        "key",
        "message_id",
        "metadata",
        "model",
        "name",
        "namespace",
        "on_events",
        "outer",
        "owner",
        "parent",
        "partial",
        "path",
        "place",
        "raw",
        "ref",
        "root",
        "run_id",
        "said",
        "spoke",
        "spoken",
        "task",
        "thread",
        "tool_call_id",
        "unwatch",
        "usage",
    )

    def __init__(self, key: int, id: str, root: Root, parent: Node | None, namespace: str, owner: Owner) -> None:
        self.key = key
        self.id = id
        self.root = root
        self.run_id = root.run_id
        self.parent = parent
        self.namespace = namespace
        self.owner = owner
        """The handler that records it."""
        self.thread = threading.get_ident()
        self.ref: _CallRef | None = None
        self.unwatch: Callable[[], object] | None = None
        self.inside: str | None = parent.inside if parent is not None else None
        """The tool call inside of which the node runs."""
        self.task: Data = parent.task if parent is not None else {}
        """The task of the outermost graph in which the node runs, and the superstep of that task, as events record them."""
        self.name: str | None = None
        self.is_task = False
        self.is_inner = False
        """Whether the node is a task of a graph inside of a task."""
        self.path: tuple[str, ...] = parent.path if parent is not None else ()
        """The nodes of graphs in which the node runs, the outermost first."""
        self.outer: int | None = parent.outer if parent is not None else None
        """The callback run of the outermost task in which the node runs. Each attempt of the task has another one."""
        self.counter: list[int] = parent.counter if parent is not None else [0]
        """How many model calls the innermost task has made: a list of one number, which all nodes of the task share."""
        self.place: str = parent.place if parent is not None else ""
        """The `checkpoint_ns` of the task in which the node runs."""
        self.had: Had | None = None
        """For a task: the messages that the graph gave to it."""
        self.calls: dict[str, Spoken] = {}
        """The model calls below the node whose answers it has neither returned nor kept yet."""
        # Of a model call:
        self.spoken: Spoken | None = None
        self.model: str | None = None
        self.message_id: str | None = f"{RUN_ID_PREFIX}{id}"
        self.metadata: Mapping[str, Any] = {}
        self.spoke = False
        """Whether the call has any delta."""
        self.said = False
        """Whether the call has shown anything to the user."""
        self.on_events = False
        self.cut = False
        self.partial = False
        """Whether the journal has the call as partial, and so never records it as complete."""
        self.usage: Data | None = None
        self.raw = StringIO()
        """The deltas of its tool calls as JSON, one behind the other. The recorder judges them when the call has ended."""
        self.endpoint: tuple[Any, ...] = ()
        """The model that the call asks, and the address of that model."""
        # Of a tool:
        self.tool_call_id: str | None = None

    @property
    def spot(self) -> tuple[int | None, str]:
        """The place of a model call: which attempt of the outermost task, and which task of which graph inside."""
        return self.outer, self.place


def _holder() -> tuple[object | None, bool]:
    """Return an object that lives as long as the model call that begins, where that can be known: its callback manager.

    The caller may hold for ever the run id that it has chosen. So where LangChain can end a call without any callback (a
    cancelled `agenerate`, an abandoned stream of the v3 protocol), the end must be seen by another object. The functions
    that call the manager hold it until they are done. Everywhere else LangChain reports the end, and the id suffices. Return
    also whether the call runs in the current task.
    """
    manager = None
    for frame in stack(_MAX_FRAMES):
        name = frame.f_code.co_name
        if name in ("agenerate", "ensure_started"):
            return manager, manager is not None and name == "agenerate"
        if name in ("on_chat_model_start", "on_llm_start"):
            caller = frame.f_locals.get("self")
            kind = type(caller).__name__
            if kind.endswith("CallbackManager"):
                manager = caller
                if name == "on_llm_start" and kind.startswith("Async"):
                    return manager, False  # the outermost frame of a task of its own, which `agenerate` awaits
    return None, False


def stack(most: int) -> Iterator[FrameType]:
    """Yield the frame of the function that asks and the frames of its callers, the nearest first."""
    frame: FrameType | None = sys._getframe(1)
    for _ in range(most):
        if frame is None:
            break
        yield frame
        frame = frame.f_back


def _on_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def key_of(run_id: Any) -> int:
    """Return the integer that stands for a run id here. The id object itself must remain free to be garbage-collected."""
    return run_id.int if isinstance(run_id, UUID) else UUID(str(run_id)).int


class Tracker:
    """The open calls of one journal. Use it inside of `do`, except for `nodes.get`."""

    def __init__(self) -> None:
        self.nodes: dict[int, Node] = {}
        # Reentrant: the garbage collector may close a generator of the program while this thread holds the lock. LangChain
        # then calls our handler on this thread. So code under the lock first records that it does something, and then does
        # it.
        self._lock = threading.RLock()
        self._unreported: deque[int] = deque()
        self._later: deque[Callable[[], object]] = deque()
        self._left: deque[int] = deque()
        self._failed: dict[int, Node] = {}
        self.on_unreported_end: Callable[[Node], None] = lambda node: None
        """Callback that gets, under the lock, a node whose call is over although LangChain never reported its end."""

    def after_fork(self) -> None:
        """Make a new lock in a forked child: the thread that holds the old one may not exist there."""
        self._lock = threading.RLock()

    def do(self, work: Callable[[], object]) -> None:
        """Run `work` under the lock."""
        with self._lock:
            work()
        self._sweep()

    def do_later(self, work: Callable[[], object]) -> None:
        """Run `work` now if the lock is free; else the thread that holds the lock runs it. The caller gets no result."""
        self._later.append(work)
        self._sweep()

    def open(
        self, run_id: Any, parent_run_id: Any, namespace: str, owner: Owner, *, muted: bool, named: str | None = None
    ) -> Node | None:
        """Return a new node for a call that begins, or None if another handler has reported the call already. `named`: the
        id of its run, if it begins one."""
        key = key_of(run_id)
        if key in self.nodes:
            return None
        parent = self.find(parent_run_id)
        id = str(run_id)
        root = Root(named or id, muted=muted) if parent is None else parent.root
        root.is_graph = root.is_graph or bool(namespace)
        node = self.nodes[key] = root.open[key] = Node(key, id, root, parent, namespace, owner)
        held, in_its_task = _holder() if parent is None else (None, False)
        if held is not None or isinstance(run_id, UUID):
            node.ref = _CallRef(run_id if held is None else held, self._collected)
            node.ref.key = key
        if in_its_task and root.loop and (task := asyncio.current_task()) is not None:
            self._watch(node, task)
        return node

    def find(self, run_id: Any) -> Node | None:
        """Return the node with this id, also if it has failed: calls that it began may still be running."""
        if run_id is None:
            return None
        key = key_of(run_id)
        return self.nodes.get(key) or self._failed.get(key)

    def keep_failed(self, node: Node) -> None:
        """Keep a node that fails. Calls that it has begun, such as the other tools of a failed task, may still be about to
        start."""
        self._failed[node.key] = node
        while len(self._failed) > _MAX_FAILED:
            self._failed.pop(next(iter(self._failed)))

    def _watch(self, node: Node, task: asyncio.Task[Any]) -> None:
        """Report the call as over when its task is done. Something may hold the frames of the task longer than that: its
        exception, or, on Python 3.10, the task itself."""

        def done(_: object) -> None:
            node.ref, node.unwatch = None, None
            self._unreported.append(node.key)
            self._sweep()

        task.add_done_callback(done)
        node.unwatch = lambda: task.remove_done_callback(done)

    def close(self, node: Node) -> None:
        """Forget a node that has ended: LangChain reports nothing of it any more."""
        if node.unwatch is not None:
            node.unwatch()
        node.ref, node.unwatch = None, None
        self._forget(node.key)
        node.root.open.pop(node.key, None)

    def leave(self, root: Root) -> list[Node]:
        """Mark a run as over, and return its calls that have not ended. They may still report tokens, or may never do so."""
        root.over = True
        root.scopes.clear()
        root.requests.clear()
        left = list(root.open.values())
        root.open.clear()
        self._left.extend(node.key for node in left)
        while len(self._left) > _MAX_LEFT:
            self._forget(self._left.popleft())
        return left

    def _forget(self, key: int) -> None:
        node = self.nodes.pop(key, None)
        if node is not None:
            node.owner.streaming.pop(key, None)

    def _collected(self, ref: weakref.ref[Any]) -> None:
        # The garbage collector calls this on any thread, also in the middle of a method of this class.
        if isinstance(ref, _CallRef):
            self._unreported.append(ref.key)
        self._sweep()

    def _sweep(self) -> None:
        while (self._unreported or self._later) and self._lock.acquire(blocking=False):
            try:
                self._next()()
            except Exception:
                logger.exception("could not record the end of a call")
            finally:
                self._lock.release()

    def _next(self) -> Callable[[], object]:
        # A reentrant call may have emptied the queues since `_sweep` looked: then there is nothing left to do.
        with contextlib.suppress(IndexError):
            return self._later.popleft()
        with contextlib.suppress(IndexError):
            return partial(self._end_unreported, self._unreported.popleft())
        return lambda: None

    def _end_unreported(self, key: int) -> None:
        node = self.nodes.get(key)
        if node is not None and (node.ref is None or node.ref() is None):
            self.on_unreported_end(node)
            self.close(node)
