"""Deletions that no interface of a checkpointer has: single checkpoints, and single writes beside one, by kind of saver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from langgraph.checkpoint.base import BaseCheckpointSaver


class Undo(Protocol):
    """What one kind of saver can undo."""

    async def checkpoints(self, thread_id: str, since: str) -> None:
        """Delete the checkpoints of a thread, and the writes beside them, from one on."""
        ...

    async def write(self, thread_id: str, checkpoint_id: str, task_id: str, channel: str) -> None:
        """Delete what a task has written into a channel, beside a checkpoint of the outermost graph."""
        ...


def undo_of(saver: BaseCheckpointSaver[Any]) -> Undo | None:
    """Return what undoes the writes of a saver; None for one whose tables are not known."""
    for kind in type(saver).__mro__:
        found = _KINDS.get(f"{kind.__module__}.{kind.__name__}")
        if found is not None:
            return found(saver)
    return None


class _InMemory:
    def __init__(self, saver: Any) -> None:
        self._saver = saver

    async def checkpoints(self, thread_id: str, since: str) -> None:
        saver = self._saver
        for checkpoints in saver.storage.get(thread_id, {}).values():
            for checkpoint_id in [one for one in checkpoints if one >= since]:
                del checkpoints[checkpoint_id]
        for key in [one for one in saver.writes if one[0] == thread_id and one[2] >= since]:
            del saver.writes[key]

    async def write(self, thread_id: str, checkpoint_id: str, task_id: str, channel: str) -> None:
        writes = self._saver.writes.get((thread_id, "", checkpoint_id), {})
        for key in [key for key, one in writes.items() if one[:2] == (task_id, channel)]:
            del writes[key]


class _Sqlite:
    _CHECKPOINTS: Final = (
        "DELETE FROM checkpoints WHERE thread_id = ? AND checkpoint_id >= ?",
        "DELETE FROM writes WHERE thread_id = ? AND checkpoint_id >= ?",
    )
    _WRITE: Final = (
        "DELETE FROM writes WHERE thread_id = ? AND checkpoint_ns = '' AND checkpoint_id = ? AND task_id = ? AND channel = ?"
    )

    def __init__(self, saver: Any) -> None:
        self._saver = saver

    async def checkpoints(self, thread_id: str, since: str) -> None:
        await self._execute(*((one, (thread_id, since)) for one in self._CHECKPOINTS))

    async def write(self, thread_id: str, checkpoint_id: str, task_id: str, channel: str) -> None:
        await self._execute((self._WRITE, (thread_id, checkpoint_id, task_id, channel)))

    async def _execute(self, *statements: tuple[str, tuple[str, ...]]) -> None:
        await self._saver.setup()
        async with self._saver.lock, self._saver.conn.cursor() as cursor:
            for statement, values in statements:
                await cursor.execute(statement, values)
            await self._saver.conn.commit()


class _Postgres:
    _CHECKPOINTS: Final = (
        "DELETE FROM checkpoints WHERE thread_id = %s AND checkpoint_id >= %s",
        "DELETE FROM checkpoint_writes WHERE thread_id = %s AND checkpoint_id >= %s",
    )
    _WRITE: Final = (
        "DELETE FROM checkpoint_writes WHERE thread_id = %s AND checkpoint_ns = '' AND checkpoint_id = %s"
        " AND task_id = %s AND channel = %s"
    )

    def __init__(self, saver: Any) -> None:
        self._saver = saver

    async def checkpoints(self, thread_id: str, since: str) -> None:
        await self._execute(*((one, (thread_id, since)) for one in self._CHECKPOINTS))

    async def write(self, thread_id: str, checkpoint_id: str, task_id: str, channel: str) -> None:
        await self._execute((self._WRITE, (thread_id, checkpoint_id, task_id, channel)))

    async def _execute(self, *statements: tuple[str, tuple[str, ...]]) -> None:
        # Its connections are single ones, pools or pipelines: only this method of the saver knows them all.
        async with getattr(self._saver, "_cursor")() as cursor:  # noqa: B009 - not a name of ours
            for statement, values in statements:
                await cursor.execute(statement, values)


_KINDS: Final[Mapping[str, type[_InMemory | _Sqlite | _Postgres]]] = {
    "langgraph.checkpoint.memory.InMemorySaver": _InMemory,
    "langgraph.checkpoint.sqlite.aio.AsyncSqliteSaver": _Sqlite,
    "langgraph.checkpoint.postgres.aio.AsyncPostgresSaver": _Postgres,
}
