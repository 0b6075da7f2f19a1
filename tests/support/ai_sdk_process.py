"""The server of `ai_sdk_app`, or of another such module, as a process of its own, on files:
`python -m tests.support.ai_sdk_process HOME PORT [MODULE]`."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import uvicorn
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from starlette.applications import Starlette
from starlette.routing import Mount

from langchain_runjournal import RunJournal


def serving(home: Path, module: str = "ai_sdk_app") -> Starlette:
    application = import_module(f"tests.support.{module}").application
    routes: list[Any] = []

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with (
            AsyncSqliteSaver.from_conn_string(str(home / "threads.db")) as saver,
            await RunJournal.aopen(home / "runs.db") as journal,
        ):
            app.router.routes.append(Mount("/", application(journal, saver, heartbeat=0.2)))
            yield

    return Starlette(routes=routes, lifespan=lifespan)


if __name__ == "__main__":
    uvicorn.run(
        serving(Path(sys.argv[1]), *sys.argv[3:]), port=int(sys.argv[2]), log_level="warning", timeout_graceful_shutdown=1
    )
