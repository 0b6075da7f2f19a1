"""`JournalSaver`: a LangGraph checkpointer around another one, whose checkpoints never get ahead of the journal.

Rule: what is stored, and what is read, is the inner saver's business. Added is only *when* it is written (after the journal
is durable, and to the end, whoever was cancelled), and that a settlement can wait until nothing is being written any more.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import copy
import inspect
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import lru_cache, partial, wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

from langgraph.checkpoint.base import BaseCheckpointSaver

from ..capture.recorder import recorder_of
from ..capture.thread_slots import current_loop
from ..common.arguments import seconds, thread
from ..common.twins import run_async, run_sync
from ..errors import InvalidArgument
from ..journal.run_journal import RunJournal
from .fence import ready_to_write
from .pending_writes import PendingWrites, WriteDrain, any_of, insist
from .resume import RESUME

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import ChannelVersions, Checkpoint, CheckpointMetadata, CheckpointTuple
    from typing_extensions import Self

logger = logging.getLogger("langchain_runjournal")

_T = TypeVar("_T")


class JournalSaver(BaseCheckpointSaver[Any]):
    """Use it wherever the inner saver would go: ``builder.compile(checkpointer=JournalSaver(saver, journal))``.

    Before a checkpoint is written, all that the journal was given is durable; if the journal cannot be written, that is
    logged and the checkpoint is written all the same. A write that has begun is brought to its end, also if who awaits it
    is cancelled, any number of times. It has the methods that the inner saver has, and its other attributes (`setup`,
    `conn`); what is read is what the inner saver reads, unless the config asks for a place to go on from (`RESUME`).

    `delete_runs`: `delete_thread` deletes the thread's runs from the journal as well, first; it raises `RunAtWork`, and
    deletes nothing, while one of them is running. With False it deletes only checkpoints, and the journal keeps the text.
    """

    journal: RunJournal
    saver: BaseCheckpointSaver[Any]
    """The saver around which this one is. What is written to it directly, nobody here knows of."""
    delete_runs: bool
    """Whether `delete_thread` deletes the thread's runs as well."""
    _pending_writes: PendingWrites
    _path: bool
    _apath: bool

    def __new__(cls, saver: BaseCheckpointSaver[Any], journal: RunJournal, *, delete_runs: bool = True) -> Self:
        """Around a saver that writes to the same journal already, it is that one."""
        if not isinstance(journal, RunJournal):
            raise InvalidArgument(name="journal", expected="a RunJournal, such as RunJournal('runs.db')", value=journal)
        if not isinstance(saver, BaseCheckpointSaver):
            raise InvalidArgument(name="saver", expected=_expected(saver), value=saver)
        around: Any = saver
        while isinstance(around, JournalSaver):
            if around.journal is journal:
                if around is saver and around.delete_runs and not delete_runs:
                    return cls._around(around.saver, journal, around._pending_writes, delete_runs)
                return cast("Self", saver)
            around = around.saver
        return cls._around(saver, journal, PendingWrites(), delete_runs)

    def __init__(self, saver: BaseCheckpointSaver[Any], journal: RunJournal, *, delete_runs: bool = True) -> None:
        # `__new__` has done it. It may have given back one that is in use, which must stay as it is.
        pass

    @classmethod
    def _around(
        cls, saver: BaseCheckpointSaver[Any], journal: RunJournal, traffic: PendingWrites, delete_runs: bool
    ) -> Self:
        inner: Any = type(saver)
        new: Self = object.__new__(_class_around(cls.__dict__.get("_plain", cls), inner))
        new.saver, new.journal, new._pending_writes, new.delete_runs = saver, journal, traffic, delete_runs
        return new

    def __getattr__(self, name: str) -> Any:
        # Only reached for what is not here: `setup`, `conn`, `loop` and whatever else the inner saver has for its users.
        if name in ("saver", "journal", "_traffic", "delete_runs"):
            raise AttributeError(name)
        return getattr(self.saver, name)

    def __repr__(self) -> str:
        return f"JournalSaver({self.saver!r}, {self.journal!r})"

    def __copy__(self) -> Self:
        return self._around(self.saver, self.journal, self._pending_writes, self.delete_runs)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self._around(copy.deepcopy(self.saver, memo), self.journal, PendingWrites(), self.delete_runs)

    def __reduce__(self) -> tuple[Any, ...]:
        plain = type(self).__dict__["_plain"]
        return partial(plain, delete_runs=self.delete_runs), (self.saver, self.journal)

    # --- writing ------------------------------------------------------------------------------------------------------

    def put(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata, new_versions: ChannelVersions
    ) -> RunnableConfig:
        """The inner saver's, after a flush of the journal. Raises `CheckpointFenced` if another process has the run."""
        with self._pending_writes.write(_thread(config)):
            self._based(config)
            self._flush(config)
            stored = self.saver.put(config, checkpoint, metadata, new_versions)
            self._applied(config, checkpoint, metadata)
        return stored

    async def aput(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata, new_versions: ChannelVersions
    ) -> RunnableConfig:
        """Same as :meth:`put`, in a task of its own: cancelling this leaves the write to go on."""

        async def write() -> RunnableConfig:
            stored = await self.saver.aput(config, checkpoint, metadata, new_versions)
            self._applied(config, checkpoint, metadata)
            return stored

        self._based(config)
        return await self._to_its_end(config, write)

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """The inner saver's, after a flush of the journal. Raises `CheckpointFenced` if another process has the run."""
        path = (task_path,) if self._path else ()
        with self._pending_writes.write(_thread(config)):
            self._flush(config)
            self.saver.put_writes(config, writes, task_id, *path)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Same as :meth:`put_writes`, in a task of its own: cancelling this leaves the write to go on."""
        path = (task_path,) if self._apath else ()
        await self._to_its_end(config, lambda: self.saver.aput_writes(config, writes, task_id, *path))

    async def _to_its_end(self, config: RunnableConfig, write: Callable[[], Awaitable[_T]]) -> _T:
        loop = asyncio.get_running_loop()
        thread_id = _thread(config)

        async def run_shielded() -> tuple[_T | None, Exception | None]:
            try:
                try:
                    await self._aflush(config)
                except asyncio.CancelledError:  # see `insist`
                    self._flush(config)
                return await insist(write), None
            except Exception as exc:  # noqa: BLE001 - raised below; or logged, if nobody is there any more
                return None, exc

        under_way = self._pending_writes.begin(thread_id, loop)
        task = loop.create_task(run_shielded())
        self._pending_writes.keep(under_way, task)
        try:
            value, error = await asyncio.shield(task)
        except BaseException:
            task.add_done_callback(partial(_tell_of_failure, thread_id))
            raise
        if error is not None:
            try:
                raise error
            finally:
                del error, task  # they hold this frame, and this frame them
        return cast("_T", value)

    # --- deleting -----------------------------------------------------------------------------------------------------

    def delete_thread(self, thread_id: str) -> None:
        """The inner saver's, after the thread's runs have been deleted from the journal (see `delete_runs`)."""
        if self.delete_runs:
            self.journal.delete(thread_id=str(thread_id))
        self.saver.delete_thread(thread_id)

    async def adelete_thread(self, thread_id: str) -> None:
        """Same as :meth:`delete_thread`, without blocking the loop."""
        if self.delete_runs:
            await self.journal.adelete(thread_id=str(thread_id))
        await self.saver.adelete_thread(thread_id)

    # --- the journal --------------------------------------------------------------------------------------------------

    def _flush(self, config: RunnableConfig) -> None:
        run_sync(ready_to_write(self, _thread(config), config, self._told))

    async def _aflush(self, config: RunnableConfig) -> None:
        await run_async(ready_to_write(self, _thread(config), config, self._told))

    def _told(self, problem: Exception | None) -> None:
        if problem is not None and not self._pending_writes.broken:
            logger.warning("checkpoints are written ahead of their journal, which cannot be written: %s", problem)
        self._pending_writes.broken = problem is not None

    def _based(self, config: RunnableConfig) -> None:
        """Tell the journal behind which checkpoint a run of the outermost graph begins to write."""
        try:
            asked = config["configurable"]
            if not asked.get("checkpoint_ns"):
                recorder_of(self.journal).checkpoint(self, _thread(config), "base", asked.get("checkpoint_id"))
        except Exception:
            logger.exception("could not report a checkpoint to the journal")

    def _applied(self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata) -> None:
        """Tell the journal that a checkpoint of the outermost graph is stored, and what tasks gave is in its state now.

        LangGraph applies the writes of all tasks of a superstep at once: the checkpoint "loop" of step N holds them all.
        """
        try:
            if config["configurable"].get("checkpoint_ns"):
                return
            if metadata.get("source") == "loop":
                recorder_of(self.journal).applied(self, _thread(config), checkpoint["id"], metadata.get("step"))
            elif metadata.get("source") == "input":
                recorder_of(self.journal).checkpoint(self, _thread(config), "stored", checkpoint["id"])
        except Exception:
            logger.exception("could not report a checkpoint to the journal")

    def is_same(self, other: object) -> bool:
        """Whether both are one to its users: LangGraph makes copies of its own."""
        return isinstance(other, JournalSaver) and self._pending_writes is other._pending_writes

    def drained(self, thread_id: str, timeout: float | None) -> bool:
        """Wait until nothing is being written to a thread by this saver, or about to be: True. False after `timeout`
        seconds, and at once where waiting would be in vain: on the thread of the event loop that has to do the writing.
        """
        drain = WriteDrain(self._pending_writes, str(thread_id), seconds("timeout", timeout), here=current_loop())
        for futures, patience in drain.waits():
            concurrent.futures.wait(futures, patience)
        return drain.quiet

    async def adrained(self, thread_id: str, timeout: float | None) -> bool:
        """Same as :meth:`drained`, without blocking the loop. The writes may be those of any loop or thread."""
        drain = WriteDrain(
            self._pending_writes, str(thread_id), seconds("timeout", timeout), turning=asyncio.get_running_loop()
        )
        for futures, patience in drain.waits():
            await any_of(futures, patience)
        return drain.quiet

    # --- reading ------------------------------------------------------------------------------------------------------

    def get(self, config: RunnableConfig) -> Checkpoint | None:
        """The inner saver's."""
        return self.saver.get(_place(config))

    async def aget(self, config: RunnableConfig) -> Checkpoint | None:
        """The inner saver's."""
        return await self.saver.aget(_place(config))

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The inner saver's; with `RESUME` in the config, the one that is asked for."""
        read = self._read(config)
        return read if read is not None else self._resumed(config, self.saver.get_tuple(_place(config)))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The inner saver's; with `RESUME` in the config, the one that is asked for."""
        read = self._read(config)
        return read if read is not None else self._resumed(config, await self.saver.aget_tuple(_place(config)))

    def _read(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The newest checkpoint, if it was read for the run that begins here, and by this very saver."""
        asked, thread_id = config.get("configurable") or {}, _thread(config)
        if any(asked.get(key) for key in ("checkpoint_ns", "checkpoint_id", RESUME)):
            return None
        found: CheckpointTuple | None = recorder_of(self.journal).take_read(self, thread_id)
        return found

    def _resumed(self, config: RunnableConfig, found: CheckpointTuple | None) -> CheckpointTuple | None:
        """Tell the journal if a run goes on from a checkpoint that it has asked for."""
        try:
            if found is not None and _place(config) is not config:
                recorder_of(self.journal).checkpoint(self, _thread(config), "resumed", config["configurable"][RESUME])
        except Exception:
            logger.exception("could not report a checkpoint to the journal")
        return found

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> BaseCheckpointSaver[Any]:
        """The same around the inner saver's. LangGraph makes one for each run, so all of them count as this one."""
        inner = self.saver.with_allowlist(extra_allowlist)
        return self if inner is self.saver else self._around(inner, self.journal, self._pending_writes, self.delete_runs)


# --- the class for a saver ----------------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def _class_around(plain: type[Any], inner: type[Any]) -> type[Any]:
    """A class that has what the inner one has: LangGraph and others look which methods a saver's class overrides."""
    members: dict[str, Any] = {
        "__module__": plain.__module__,
        "__qualname__": plain.__qualname__,
        "__doc__": plain.__doc__,
        "_plain": plain,
        "_path": _names_path(inner.put_writes),
        "_apath": _names_path(inner.aput_writes),
    }
    for name in dir(BaseCheckpointSaver):
        base, theirs = getattr(BaseCheckpointSaver, name), getattr(inner, name)
        if name.startswith("_") or name == "with_allowlist":
            continue
        if not callable(base):
            members[name] = _attribute(name)
        elif theirs is base:
            members[name] = base  # it derives it from others, which are ours, or cannot do it
        elif name not in JournalSaver.__dict__:
            members[name] = _forward(name, theirs)
    for name in ("__enter__", "__exit__", "__aenter__", "__aexit__"):
        if hasattr(inner, name):
            members[name] = _enter(name) if "enter" in name else _forward(name, getattr(inner, name))
    return type(plain.__name__, (plain,), members)


def _names_path(put_writes: Callable[..., Any]) -> bool:
    """Whether a saver takes the path of a task, by the rule that LangGraph goes by. Older ones do not."""
    return "task_path" in inspect.signature(put_writes).parameters


def _attribute(name: str) -> Any:
    def get(self: JournalSaver) -> Any:
        return getattr(self.saver, name)

    def set(self: JournalSaver, value: Any) -> None:
        setattr(self.saver, name, value)

    return property(get, set)


def _forward(name: str, theirs: Callable[..., Any]) -> Any:
    @wraps(theirs)
    def forward(self: JournalSaver, *args: Any, **kwargs: Any) -> Any:
        return getattr(self.saver, name)(*args, **kwargs)

    @wraps(theirs)
    async def aforward(self: JournalSaver, *args: Any, **kwargs: Any) -> Any:
        return await getattr(self.saver, name)(*args, **kwargs)

    return aforward if inspect.iscoroutinefunction(theirs) else forward


def _enter(name: str) -> Any:
    def enter(self: JournalSaver) -> JournalSaver:
        getattr(self.saver, name)()
        return self

    async def aenter(self: JournalSaver) -> JournalSaver:
        await getattr(self.saver, name)()
        return self

    return aenter if name == "__aenter__" else enter


def _tell_of_failure(thread_id: str, task: asyncio.Task[tuple[Any, Exception | None]]) -> None:
    """Of a write for which nobody waits any more."""
    if task.cancelled():
        logger.warning("a checkpoint of thread %s may be incomplete: its event loop ended before the write did", thread_id)
        return
    error = task.exception() or task.result()[1]
    if error is not None:
        logger.error("could not write a checkpoint of thread %s: %s", thread_id, error, exc_info=error)


# --- configs ------------------------------------------------------------------------------------------------------------


def _thread(config: RunnableConfig) -> str:
    return thread("thread_id", (config.get("configurable") or {}).get("thread_id"))


def _place(config: RunnableConfig) -> RunnableConfig:
    """The config, or one that names the checkpoint which it asks to go on from."""
    asked = config.get("configurable") or {}
    if not asked.get(RESUME) or asked.get("checkpoint_ns") or asked.get("checkpoint_id"):
        return config
    place = config.copy()
    place["configurable"] = {key: value for key, value in asked.items() if key != RESUME}
    place["configurable"]["checkpoint_id"] = asked[RESUME]
    return place


def _expected(given: Any) -> str:
    """What to give instead."""
    if given is None or isinstance(given, bool):
        return "a LangGraph checkpointer, such as InMemorySaver() (True, False and None only say which one to use)"
    if not isinstance(given, type) and (hasattr(given, "__enter__") or hasattr(given, "__aenter__")):
        return "a LangGraph checkpointer: enter this one first, `with SqliteSaver.from_conn_string(...) as saver`"
    return "a LangGraph checkpointer, such as InMemorySaver()"
