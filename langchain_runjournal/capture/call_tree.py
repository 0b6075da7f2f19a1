"""What is going on in the runs that a journal captures: which call belongs to which run, and what has not ended yet.

Rule: what is kept of a call does not grow with it, and is gone when it is over, also when LangChain never says so. A
cancelled `ainvoke` ends without any callback; then the id of the run, an object that LangChain holds as long as somebody
works on the run, is gone, and that is how we know (`_Tie`). See `_holder` for ids that the caller holds as well.

One tracker serves all handlers of a journal, so that two of them on one run do not record it twice: whoever sees a call
begin records it.
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

_MOST_LEFT: Final = 10_000
"""How many calls of ended runs are waited for, should something else hold the ids of all of them."""
_MOST_FAILED: Final = 1_000
"""How many chains that failed are remembered, for what may still start below them."""
_DEEPEST: Final = 30


class _Tie(weakref.ref[Any]):
    """Notices that nobody works on a call any more."""

    __slots__ = ("key",)
    key: int


class Owner(Protocol):
    """The handler that records a node."""

    streaming: dict[int, Node]
    """The model calls whose tokens it writes down."""
    answers: Answers | None
    """Which calls answer the user, if the user has said so."""

    def on_chain_end(self, outputs: Any, *, run_id: UUID) -> Any:
        """Tell it that a chain has ended well."""

    def on_chain_error(self, error: BaseException, *, run_id: UUID) -> Any:
        """Tell it that a chain has failed."""


class Root:
    """One run."""

    def __init__(self, run_id: str, *, muted: bool) -> None:
        self.run_id = run_id
        self.muted = muted
        self.caller: Caller | None = None
        """Its graph, if that is attached."""
        self.started: StartedRun | None = None
        """Its task, if it was started in one of its own."""
        self.left: RunningThreads | None = None
        """What goes on in threads when it has ended."""
        self.thread_id: str | None = None
        self.turn: ThreadSlot | None = None
        """Its turn on a thread, if its graph is attached and so settles it."""
        self.loop = _on_a_loop()
        """Whether it began on an event loop."""
        self.over = False
        """Whether it has ended, or waits for a human: what comes now is late."""
        self.paused = False
        self.asked_something = False
        """Whether its human input is known."""
        self.usage: dict[str, Data] = {}
        self.scopes: dict[str, Scope] = {}
        self.open: dict[int, Node] = {}
        self.is_graph = False
        self.requests: set[str] = set()
        """Tool calls that were asked for and have no result yet."""
        self.last_error = 0
        """The id of the exception that came last out of a part of the run."""
        self.learns_as = ""
        """What facts about its nodes are filed under: its graph, or else its name. Empty: nothing is learned, since graphs
        without a name could not be told apart."""
        self.learns_durably = False
        """Whether they are kept in the store."""
        self.keeps: bool | None = None
        """Whether its state has `messages`; None if that is not known (yet)."""
        self.answers: Answers | None = None
        """Which calls answer the user, if the user has said so."""
        self.has_shown = False
        """Whether a task has ended without an answer that was shown and cut off (see `Scope.shown`)."""
        self.given: dict[str, Data] = {}
        """The answers that tasks have given back, by the id of their messages."""

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
        "root",
        "run_id",
        "said",
        "spoke",
        "spoken",
        "task",
        "thread",
        "tie",
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
        self.tie: _Tie | None = None
        self.unwatch: Callable[[], object] | None = None
        self.inside: str | None = parent.inside if parent is not None else None
        """The tool call in which it happens."""
        self.task: Data = parent.task if parent is not None else {}
        """The task of the outermost graph in which it happens, and the superstep of that: what events say of it."""
        self.name: str | None = None
        self.is_task = False
        self.is_inner = False
        """Whether it is a task of a graph inside of a task."""
        self.path: tuple[str, ...] = parent.path if parent is not None else ()
        self.outer: int | None = parent.outer if parent is not None else None
        """The run of the outermost task in which it happens: another one for each attempt."""
        self.counter: list[int] = parent.counter if parent is not None else [0]
        """How many model calls the innermost task has made."""
        """The nodes of graphs in which it happens, the outermost first."""
        self.place: str = parent.place if parent is not None else ""
        """The `checkpoint_ns` of the task in which it happens."""
        self.had: Had | None = None
        """Of a task: the messages that it was given."""
        self.calls: dict[str, Spoken] = {}
        """The model calls below it whose answers it has neither given back nor kept yet."""
        # Of a model call:
        self.spoken: Spoken | None = None
        self.model: str | None = None
        self.message_id: str | None = f"{RUN_ID_PREFIX}{id}"
        self.metadata: Mapping[str, Any] = {}
        self.spoke = False
        """Whether it has any delta."""
        self.said = False
        """Whether it has shown the user anything."""
        self.on_events = False
        self.cut = False
        self.partial = False
        """Whether it is recorded as partial: never as complete, then."""
        self.usage: Data | None = None
        self.raw = StringIO()
        """The deltas of its tool calls, as JSON, one behind the other: to be judged when it has ended."""
        self.endpoint: tuple[Any, ...] = ()
        """Which model at which address it asks."""
        # Of a tool:
        self.tool_call_id: str | None = None

    @property
    def spot(self) -> tuple[int | None, str]:
        """Where a model call is made: which attempt of the outermost task, and which task of which graph inside."""
        return self.outer, self.place


def _holder() -> tuple[object | None, bool]:
    """What lives as long as the model call that begins, where that can be known: its callback manager.

    The caller may keep the id of the run that he has chosen for ever. So where LangChain can end a call without any callback
    (an `agenerate` that is cancelled, a stream of the v3 protocol that is left), another object has to tell. Its callers
    keep the manager until they are done; everywhere else there is an ending to wait for, and the id will do.
    And whether the call goes on in the task that we are called in.
    """
    manager = None
    for frame in stack(_DEEPEST):
        name = frame.f_code.co_name
        if name in ("agenerate", "ensure_started"):
            return manager, manager is not None and name == "agenerate"
        if name in ("on_chat_model_start", "on_llm_start"):
            caller = frame.f_locals.get("self")
            kind = type(caller).__name__
            if kind.endswith("CallbackManager"):
                manager = caller
                if name == "on_llm_start" and kind.startswith("Async"):
                    return manager, False  # at the bottom of a task of its own, which `agenerate` waits for
    return None, False


def stack(most: int) -> Iterator[FrameType]:
    """The frame that asks and its callers, the nearest first."""
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
    """What stands for a run id here; not the object itself, which must be able to go."""
    return run_id.int if isinstance(run_id, UUID) else UUID(str(run_id)).int


class Tracker:
    """The runs of one journal that go on. Use it in `do`, but for `nodes.get`."""

    def __init__(self) -> None:
        self.nodes: dict[int, Node] = {}
        # Reentrant: the garbage collector may close somebody's generator in the middle of ourselves, and LangChain then
        # tells us, on this thread. So whatever happens under the lock first says that it has, and then does it.
        self._lock = threading.RLock()
        self._gone: deque[int] = deque()
        self._later: deque[Callable[[], object]] = deque()
        self._left: deque[int] = deque()
        self._failed: dict[int, Node] = {}
        self.on_gone: Callable[[Node], None] = lambda node: None
        """Called, under the lock, with a node that nobody works on any more and that never said that it ended."""

    def after_fork(self) -> None:
        """In a child, nobody else holds the lock."""
        self._lock = threading.RLock()

    def do(self, work: Callable[[], object]) -> None:
        """Do it, under the lock."""
        with self._lock:
            work()
        self._sweep()

    def do_later(self, work: Callable[[], object]) -> None:
        """Do it now if that needs no waiting, or else let the thread do it that has the lock. Without an answer."""
        self._later.append(work)
        self._sweep()

    def open(
        self, run_id: Any, parent_run_id: Any, namespace: str, owner: Owner, *, muted: bool, named: str | None = None
    ) -> Node | None:
        """A node that begins; None if it is known already, through another handler. `named`: as which run, if it is one."""
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
            node.tie = _Tie(run_id if held is None else held, self._untied)
            node.tie.key = key
        if in_its_task and root.loop and (task := asyncio.current_task()) is not None:
            self._watch(node, task)
        return node

    def find(self, run_id: Any) -> Node | None:
        """The node with this id, also if it has failed: what it began besides may go on."""
        if run_id is None:
            return None
        key = key_of(run_id)
        return self.nodes.get(key) or self._failed.get(key)

    def keep_failed(self, node: Node) -> None:
        """It fails. What it has begun besides, such as the other tools of a failed task, may still be about to start."""
        self._failed[node.key] = node
        while len(self._failed) > _MOST_FAILED:
            self._failed.pop(next(iter(self._failed)))

    def _watch(self, node: Node, task: asyncio.Task[Any]) -> None:
        """The task in which it goes on may be over while somebody still holds its frames: by its exception, or, on Python
        3.10, by the task itself."""

        def done(_: object) -> None:
            node.tie, node.unwatch = None, None
            self._gone.append(node.key)
            self._sweep()

        task.add_done_callback(done)
        node.unwatch = lambda: task.remove_done_callback(done)

    def close(self, node: Node) -> None:
        """It has ended: nothing more is expected of it."""
        if node.unwatch is not None:
            node.unwatch()
        node.tie, node.unwatch = None, None
        self._forget(node.key)
        node.root.open.pop(node.key, None)

    def leave(self, root: Root) -> list[Node]:
        """The run is over. What has not ended yet may still speak, or never will."""
        root.over = True
        root.scopes.clear()
        root.requests.clear()
        left = list(root.open.values())
        root.open.clear()
        self._left.extend(node.key for node in left)
        while len(self._left) > _MOST_LEFT:
            self._forget(self._left.popleft())
        return left

    def _forget(self, key: int) -> None:
        node = self.nodes.pop(key, None)
        if node is not None:
            node.owner.streaming.pop(key, None)

    def _untied(self, tie: weakref.ref[Any]) -> None:
        # Wherever the garbage collector happens to run, and be it in the middle of ourselves.
        if isinstance(tie, _Tie):
            self._gone.append(tie.key)
        self._sweep()

    def _sweep(self) -> None:
        while (self._gone or self._later) and self._lock.acquire(blocking=False):
            try:
                self._next()()
            except Exception:
                logger.exception("could not record the end of a call")
            finally:
                self._lock.release()

    def _next(self) -> Callable[[], object]:
        # Somebody else may be faster, in the middle of ourselves: then there is nothing left to do.
        with contextlib.suppress(IndexError):
            return self._later.popleft()
        with contextlib.suppress(IndexError):
            return partial(self._let_go, self._gone.popleft())
        return lambda: None

    def _let_go(self, key: int) -> None:
        node = self.nodes.get(key)
        if node is not None and (node.tie is None or node.tie() is None):
            self.on_gone(node)
            self.close(node)
