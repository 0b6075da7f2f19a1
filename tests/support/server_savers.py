"""Checkpointers on servers: Postgres in each way in which a program gives it connections, and Redis.

`langgraph-checkpoint-redis` needs a server with the modules RediSearch and RedisJSON; `servers.module_server` has one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver

from tests.support.places import WAYS, aopen_threads, open_threads, threads_url
from tests.support.servers import module_server_url

SAVERS = (*(f"postgres {way}" for way in WAYS), "redis")


def empty(saver: str) -> str:
    """Return the URL of a database for a checkpointer of `SAVERS`, with its tables. Skips a test without packages."""
    return module_server_url() if saver == "redis" else threads_url()


def open_saver(saver: str, url: str) -> AbstractContextManager[Any]:
    """Open a checkpointer of `SAVERS`, for calls without a loop."""
    return _redis(url) if saver == "redis" else open_threads(url, saver.split()[1])


def aopen_saver(saver: str, url: str) -> AbstractAsyncContextManager[Any]:
    """Do the same for calls on a loop."""
    return _aredis(url) if saver == "redis" else aopen_threads(url, saver.split()[1])


@contextmanager
def _redis(url: str) -> Iterator[Any]:
    from langgraph.checkpoint.redis import RedisSaver

    with RedisSaver.from_conn_string(url) as saver:
        saver.setup()
        yield saver


@asynccontextmanager
async def _aredis(url: str) -> AsyncIterator[Any]:
    from langgraph.checkpoint.redis import AsyncRedisSaver

    async with AsyncRedisSaver.from_conn_string(url) as saver:
        await saver.setup()
        yield saver


def awaited(saver: BaseCheckpointSaver[Any]) -> BaseCheckpointSaver[Any]:
    """Return a saver whose asynchronous methods call the synchronous ones of `saver`: LangGraph's conformance tests await
    everything. It overrides what the class of `saver` overrides."""
    return _awaited_class(type(saver))(saver)


def _awaited_class(inner: type[Any]) -> Callable[[Any], BaseCheckpointSaver[Any]]:
    def call(name: str) -> Any:
        async def method(self: Any, *args: Any, **options: Any) -> Any:
            return await asyncio.to_thread(getattr(self.saver, name), *args, **options)

        return method

    async def alist(self: Any, *args: Any, **options: Any) -> AsyncIterator[Any]:
        for found in await asyncio.to_thread(lambda: list(self.saver.list(*args, **options))):
            yield found

    def made(self: Any, saver: Any) -> None:
        BaseCheckpointSaver.__init__(self, serde=saver.serde)
        self.saver = saver

    names = [name for name in dir(BaseCheckpointSaver) if name[0] == "a" and hasattr(BaseCheckpointSaver, name[1:])]
    own = [name for name in names if getattr(inner, name[1:]) is not getattr(BaseCheckpointSaver, name[1:])]
    methods = {name: call(name[1:]) for name in own}
    versions = {"get_next_version": lambda self, *args: self.saver.get_next_version(*args)}
    return type("Awaited", (BaseCheckpointSaver,), {**methods, **versions, "alist": alist, "__init__": made})
