"""`JournalSaver`: a LangGraph checkpointer around another one, whose checkpoints never get ahead of the journal.

Rule: the inner saver decides what is stored and what is read. `JournalSaver` adds only *when* a checkpoint is written (after
the journal is durable, and completely, even if the caller is cancelled), and lets a settlement wait until no write is
pending.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import copy
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from langgraph.checkpoint.base import BaseCheckpointSaver

from ..capture.recorder import recorder_of
from ..capture.thread_slots import current_loop
from ..common.arguments import seconds, thread
from ..common.twins import run_async, run_sync
from ..errors import InvalidArgument
from ..journal.run_journal import RunJournal
from .fence import ready_to_write
from .pending_writes import PendingWrites, WriteDrain, any_of, await_again_if_cancelled, wait_before_the_end
from .resume import RESUME
from .saver_class import class_around
from .writing_run import record_checkpoint

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import ChannelVersions, Checkpoint, CheckpointMetadata, CheckpointTuple
    from typing_extensions import Self

logger = logging.getLogger("langchain_runjournal")

_T = TypeVar("_T")


class JournalSaver(BaseCheckpointSaver[Any]):
    """A LangGraph checkpointer that stands in the place of another one, its inner saver.

    For example, ``builder.compile(checkpointer=JournalSaver(saver, journal))``.

    Before a checkpoint is written, everything that was appended to the journal is made durable. If the journal cannot be
    written, that is logged and the checkpoint is written all the same. A write that has begun is completed, even if the task
    that awaits it is cancelled any number of times. `JournalSaver` has the methods of the inner saver, and its other
    attributes (`setup`, `conn`). It reads what the inner saver reads, unless the config asks to resume from a checkpoint
    (`RESUME`).

    `delete_runs`: `delete_thread` first deletes the thread's runs from the journal; it raises `RunAtWork`, and deletes
    nothing, while one of them is running. With False it deletes only checkpoints, and the journal keeps the text.
    """

    journal: RunJournal
    saver: BaseCheckpointSaver[Any]
    """The inner saver. Writes that bypass `JournalSaver` are not counted as pending."""
    delete_runs: bool
    """Whether `delete_thread` deletes the thread's runs as well."""
    _pending_writes: PendingWrites
    _path: bool
    _apath: bool

    def __new__(cls, saver: BaseCheckpointSaver[Any], journal: RunJournal, *, delete_runs: bool = True) -> Self:
        """Return the given saver itself if it is a `JournalSaver` for the same journal already."""
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
        # `__new__` has set all attributes. It may have returned a saver that is in use, which must not change.
        pass

    @classmethod
    def _around(
        cls, saver: BaseCheckpointSaver[Any], journal: RunJournal, pending: PendingWrites, delete_runs: bool
    ) -> Self:
        inner: Any = type(saver)
        new: Self = object.__new__(class_around(cls.__dict__.get("_plain", cls), inner, JournalSaver))
        new.saver, new.journal, new._pending_writes, new.delete_runs = saver, journal, pending, delete_runs
        return new

    def __getattr__(self, name: str) -> Any:
        # Python calls this only for names that `JournalSaver` lacks: `setup`, `conn`, `loop` and other attributes of the
        # inner saver.
        if name in ("saver", "journal", "_pending_writes", "delete_runs"):
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
        """Flush the journal, then call the inner saver. Raise `CheckpointFenced` if another process has claimed the run."""
        with self._pending_writes.write(_thread(config)):
            self._record_base(config)
            self._flush(config)
            stored = self.saver.put(config, checkpoint, metadata, new_versions)
            self._record_checkpoint(config, checkpoint, metadata)
        return stored

    async def aput(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata, new_versions: ChannelVersions
    ) -> RunnableConfig:
        """Do the same as :meth:`put`, in a task of its own, which continues if this call is cancelled."""

        async def write() -> RunnableConfig:
            stored = await self.saver.aput(config, checkpoint, metadata, new_versions)
            self._record_checkpoint(config, checkpoint, metadata)
            return stored

        self._record_base(config)
        return await self._run_shielded(config, write)

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Flush the journal, then call the inner saver. Raise `CheckpointFenced` if another process has claimed the run."""
        path = (task_path,) if self._path else ()
        with self._pending_writes.write(_thread(config)):
            self._flush(config)
            self.saver.put_writes(config, writes, task_id, *path)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Do the same as :meth:`put_writes`, in a task of its own, which continues if this call is cancelled."""
        path = (task_path,) if self._apath else ()
        await self._run_shielded(config, lambda: self.saver.aput_writes(config, writes, task_id, *path))

    async def _run_shielded(self, config: RunnableConfig, write: Callable[[], Awaitable[_T]]) -> _T:
        loop = asyncio.get_running_loop()
        thread_id = _thread(config)
        is_awaited, has_begun = True, False

        async def flush_and_write() -> tuple[_T | None, Exception | None]:
            nonlocal has_begun
            has_begun = True
            try:
                try:
                    await self._aflush(config, lambda: is_awaited)
                except asyncio.CancelledError:  # the loop is shutting down, see `await_again_if_cancelled`
                    run_sync(ready_to_write(self, thread_id, config, self._report, lambda: False))
                return await await_again_if_cancelled(write), None
            except Exception as exc:  # noqa: BLE001 - raised below, or logged if no call awaits the write any more
                return None, exc

        def start() -> asyncio.Task[tuple[_T | None, Exception | None]]:
            write_entry = self._pending_writes.begin(thread_id, loop)
            started = loop.create_task(flush_and_write())
            self._pending_writes.hold_task(write_entry, started)
            return started

        task = start()
        try:
            value, error = await asyncio.shield(task)
        except BaseException:
            is_awaited = False
            if task.cancelled() and not has_begun:  # Ctrl-C has cancelled the task before its first step
                task = start()
                await wait_before_the_end(task)
            task.add_done_callback(partial(_log_failure, thread_id))
            raise
        if error is not None:
            try:
                raise error
            finally:
                del error, task  # break the reference cycle between this frame and the exception
        return cast("_T", value)

    # --- deleting -----------------------------------------------------------------------------------------------------

    def delete_thread(self, thread_id: str) -> None:
        """Delete the thread's runs from the journal (see `delete_runs`), then call the inner saver."""
        if self.delete_runs:
            self.journal.delete(thread_id=str(thread_id))
        self.saver.delete_thread(thread_id)

    async def adelete_thread(self, thread_id: str) -> None:
        """Do the same as :meth:`delete_thread`, without blocking the loop."""
        if self.delete_runs:
            await self.journal.adelete(thread_id=str(thread_id))
        await self.saver.adelete_thread(thread_id)

    # --- the journal --------------------------------------------------------------------------------------------------

    def _flush(self, config: RunnableConfig) -> None:
        run_sync(ready_to_write(self, _thread(config), config, self._report, lambda: True))

    async def _aflush(self, config: RunnableConfig, is_awaited: Callable[[], bool]) -> None:
        await run_async(ready_to_write(self, _thread(config), config, self._report, is_awaited))

    def _report(self, problem: Exception | None) -> None:
        if problem is not None and not self._pending_writes.broken:
            logger.warning("checkpoints are written ahead of their journal, which cannot be written: %s", problem)
        self._pending_writes.broken = problem is not None

    def _record_base(self, config: RunnableConfig) -> None:
        """Record the checkpoint behind which a run of the outermost graph begins to write."""
        try:
            asked = config["configurable"]
            if not asked.get("checkpoint_ns"):
                recorder_of(self.journal).checkpoint(self, _thread(config), "base", asked.get("checkpoint_id"))
        except Exception:
            logger.exception("could not report a checkpoint to the journal")

    def _record_checkpoint(self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata) -> None:
        try:
            record_checkpoint(self, _thread(config), config, checkpoint, metadata)
        except Exception:
            logger.exception("could not report a checkpoint to the journal")

    def is_same(self, other: object) -> bool:
        """Return whether two savers count as the same one: LangGraph makes copies of its own."""
        return isinstance(other, JournalSaver) and self._pending_writes is other._pending_writes

    def drained(self, thread_id: str, timeout: float | None) -> bool:
        """Wait until no write of this saver to a thread is pending or about to begin. Return True then.

        Return False after `timeout` seconds, and at once where waiting would deadlock: on the thread of the event loop that
        has to do the write.
        """
        drain = WriteDrain(self._pending_writes, str(thread_id), seconds("timeout", timeout), here=current_loop())
        for futures, patience in drain.waits():
            concurrent.futures.wait(futures, patience)
        return drain.quiet

    async def adrained(self, thread_id: str, timeout: float | None) -> bool:
        """Do the same as :meth:`drained`, without blocking the loop. The writes may be those of any loop or thread."""
        drain = WriteDrain(
            self._pending_writes, str(thread_id), seconds("timeout", timeout), running=asyncio.get_running_loop()
        )
        for futures, patience in drain.waits():
            await any_of(futures, patience)
        return drain.quiet

    # --- reading ------------------------------------------------------------------------------------------------------

    def get(self, config: RunnableConfig) -> Checkpoint | None:
        """Read from the inner saver."""
        return self.saver.get(_place(config))

    async def aget(self, config: RunnableConfig) -> Checkpoint | None:
        """Read from the inner saver."""
        return await self.saver.aget(_place(config))

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Read from the inner saver. With `RESUME` in the config, read the checkpoint that it names."""
        read = self._take_read(config)
        return read if read is not None else self._record_resume(config, self.saver.get_tuple(_place(config)))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Read from the inner saver. With `RESUME` in the config, read the checkpoint that it names."""
        read = self._take_read(config)
        return read if read is not None else self._record_resume(config, await self.saver.aget_tuple(_place(config)))

    def _take_read(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the newest checkpoint, if this saver has just read it for the run that begins here."""
        asked, thread_id = config.get("configurable") or {}, _thread(config)
        if any(asked.get(key) for key in ("checkpoint_ns", "checkpoint_id", RESUME)):
            return None
        found: CheckpointTuple | None = recorder_of(self.journal).take_read(self, thread_id)
        return found

    def _record_resume(self, config: RunnableConfig, found: CheckpointTuple | None) -> CheckpointTuple | None:
        """Record that a run resumes from the checkpoint that its config asks for."""
        try:
            if found is not None and _place(config) is not config:
                recorder_of(self.journal).checkpoint(self, _thread(config), "resumed", config["configurable"][RESUME])
        except Exception:
            logger.exception("could not report a checkpoint to the journal")
        return found

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> BaseCheckpointSaver[Any]:
        """Wrap the inner saver's copy. LangGraph makes one for each run, so all copies count as this saver."""
        inner = self.saver.with_allowlist(extra_allowlist)
        return self if inner is self.saver else self._around(inner, self.journal, self._pending_writes, self.delete_runs)


def _log_failure(thread_id: str, task: asyncio.Task[tuple[Any, Exception | None]]) -> None:
    """Log the failure of a write that no call awaits any more."""
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
    """Return the config. If it asks to resume from a checkpoint, return one that names that checkpoint."""
    asked = config.get("configurable") or {}
    if not asked.get(RESUME) or asked.get("checkpoint_ns") or asked.get("checkpoint_id"):
        return config
    place = config.copy()
    place["configurable"] = {key: value for key, value in asked.items() if key != RESUME}
    place["configurable"]["checkpoint_id"] = asked[RESUME]
    return place


def _expected(given: Any) -> str:
    """Return what to pass instead of this value."""
    if given is None or isinstance(given, bool):
        return "a LangGraph checkpointer, such as InMemorySaver() (True, False and None only say which one to use)"
    if not isinstance(given, type) and (hasattr(given, "__enter__") or hasattr(given, "__aenter__")):
        return "a LangGraph checkpointer: enter this one first, `with SqliteSaver.from_conn_string(...) as saver`"
    return "a LangGraph checkpointer, such as InMemorySaver()"
