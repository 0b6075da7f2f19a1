"""The class of a `JournalSaver` around a saver of a given class.

Rule: LangGraph and others check which methods a saver's class overrides. So each inner class gets its own subclass of
`JournalSaver`, which overrides the same methods.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import lru_cache, wraps
from typing import TYPE_CHECKING, Any

from langgraph.checkpoint.base import BaseCheckpointSaver

if TYPE_CHECKING:
    from .saver import JournalSaver


@lru_cache(maxsize=64)
def class_around(plain: type[Any], inner: type[Any], journal_saver: type[Any]) -> type[Any]:
    """Return a subclass of `plain` with the methods of the inner class. `plain` is `journal_saver` or derived from it."""
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
            members[name] = base  # the base derives it from methods that are ours, or raises
        elif name not in journal_saver.__dict__:
            members[name] = _forward(name, theirs)
    for name in ("__enter__", "__exit__", "__aenter__", "__aexit__"):
        if hasattr(inner, name):
            members[name] = _enter(name) if "enter" in name else _forward(name, getattr(inner, name))
    return type(plain.__name__, (plain,), members)


def _names_path(put_writes: Callable[..., Any]) -> bool:
    """Return whether a saver accepts the path of a task, by the check that LangGraph uses. Older savers do not."""
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
