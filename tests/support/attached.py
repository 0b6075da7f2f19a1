"""Helpers for tests of attached graphs: their handlers, their warnings, and calls that are cancelled."""

from __future__ import annotations

import asyncio
import logging
from importlib.metadata import version
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackManager

from langchain_runjournal.settle.attached_graph import attachments_of
from tests.support.agents import words

HALF = [*words("one "), RuntimeError("boom")]
SETTLED = ["U hi", "A~ one "]
# In LangGraph 1.2.4 the config of a graph that a node calls still has the outer graph's checkpointer in it.
ON_ITS_OWN = pytest.mark.skipif(
    tuple(int(part) for part in version("langgraph").split(".")[:3]) < (1, 2, 22), reason="a part of the outer graph there"
)


async def cancelled(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def handlers(agent: Any) -> list[Any]:
    """What a call of an attached graph is given."""
    return [handler for one in attachments_of(agent) for handler in (one.handler, *one.settling)]


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    records = [record for record in caplog.records if record.name == "langchain_runjournal"]
    return [record.getMessage() for record in records if record.levelno >= logging.WARNING]


def called_in_order(monkeypatch: pytest.MonkeyPatch, order: list[Any]) -> list[list[Any]]:
    """LangChain hands handlers on as a set. Have it keep to an order; and the orders in which it has called them."""
    merge, seen = BaseCallbackManager.merge, []

    def ordered(self: Any, other: Any) -> Any:
        found = merge(self, other)
        for handlers in (found.handlers, found.inheritable_handlers):
            handlers.sort(key=lambda one: order.index(one) if one in order else -1)
        seen.append([one for one in found.handlers if one in order])
        return found

    monkeypatch.setattr(BaseCallbackManager, "merge", ordered)
    return seen
