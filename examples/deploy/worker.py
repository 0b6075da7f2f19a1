"""One of several workers on one Postgres database: any worker can stop, follow and continue what another one runs.

    pip install "langchain-runjournal[postgres]" langgraph-checkpoint-postgres fastapi uvicorn
    export RUNJOURNAL_URL=postgresql://app@localhost/app RUNJOURNAL_SPOOL_DIR=spool
    uvicorn worker:app --timeout-graceful-shutdown 5                        and a second worker with --port 8001

    curl localhost:8000/threads/t1/messages --json '{"text": "Count to 1000"}'    begin a run; returns its run_id
    curl -N localhost:8001/runs/RUN_ID/events                                     follow it, in any worker
    curl -X POST localhost:8001/runs/RUN_ID/stop                                  stop it, in any worker

docker-compose.yml starts a database and two workers; docs/deploying.md explains it. Add a login before you make it public.
"""

import asyncio
import json
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

from fastapi import Body, FastAPI, Header, HTTPException, Request
from fastapi.responses import JSONResponse, StreamingResponse
from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.graph import START, MessagesState, StateGraph
from psycopg import OperationalError
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool

from langchain_runjournal import RunJournal, attach, errors, is_partial, start_run
from langchain_runjournal.testing import ScriptedChatModel

URL, SPOOL_DIR = os.environ["RUNJOURNAL_URL"], Path(os.environ["RUNJOURNAL_SPOOL_DIR"])
SPOOL_DIR.mkdir(mode=0o700, exist_ok=True)  # for this user alone; an emptyDir of Kubernetes is open to all
if password := os.environ.get("DATABASE_PASSWORD_FILE"):
    os.environ["PGPASSWORD"] = Path(password).read_text().strip()  # libpq reads it, for the journal and the checkpointer


def say(messages: list[BaseMessage]) -> list[str]:
    """Return the next answer: "Count to 100" counts, and another message continues where the counting was cut off."""
    goals = [int(message.text.split()[-1]) for message in messages if message.text.startswith("Count to ")]
    counted = [0, *(int(number) for message in messages if message.type == "ai" for number in message.text.split())]
    first = 1 if messages[-1].text.startswith("Count") else counted[-1] + 1
    return ["".join(f"{number} " for number in range(first, goals[-1] + 1)) if goals else "Say: Count to 100"]


model = ScriptedChatModel(say, pace=float(os.environ.get("WORKER_PACE", "0.05")))  # your model goes here


async def answer(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
    return {"messages": [await model.ainvoke(state["messages"], config)]}


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    required = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}  # by AsyncPostgresSaver
    outages = {
        "kwargs": {**required, "connect_timeout": 3, "tcp_user_timeout": 5000},  # for a server that is silent
        "check": AsyncConnectionPool.check_connection,  # replaces connections that a restart of the database has ended
        "timeout": 3,  # the most seconds that a request waits for a connection; by default 30
        "reconnect_timeout": 3,  # by default, the pauses between two attempts grow for 5 minutes
    }
    async with AsyncConnectionPool(URL, min_size=1, max_size=8, open=False, **outages) as pool:
        saver = AsyncPostgresSaver(pool)
        async with pool.connection() as con:  # two workers that run setup() at the same time disturb each other
            # Do not wait in pg_advisory_lock(): setup() waits for all running statements, and so for that one.
            while not (await (await con.execute("SELECT pg_try_advisory_lock(7346235) AS ours")).fetchone())["ours"]:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
            await saver.setup()
            await con.execute("SELECT pg_advisory_unlock(7346235)")
        # The journal is closed before the pool: it stops the runs of this worker and settles their threads.
        async with await RunJournal.aopen(URL, spool_dir=SPOOL_DIR) as journal:
            graph = StateGraph(MessagesState).add_node("answer", answer).add_edge(START, "answer")
            app.state.journal, app.state.agent = journal, attach(graph.compile(checkpointer=saver, name="counter"), journal)
            app.state.pool = pool
            await journal.arecover(app.state.agent)  # settles what dead workers left
            yield


app = FastAPI(lifespan=lifespan)


@app.exception_handler(errors.RunNotFound)
async def not_found(request: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"detail": str(error)}, 404)


@app.exception_handler(errors.StoreFailed)  # of the journal
@app.exception_handler(OperationalError)  # of the checkpointer and its pool
async def away(request: Request, error: Exception) -> JSONResponse:
    logging.getLogger("uvicorn.error").warning("%s %s: %s", request.method, request.url.path, error)
    return JSONResponse({"detail": "The database cannot be reached. Try again."}, 503, {"retry-after": "5"})


@app.post("/threads/{thread_id}/messages")
async def send(thread_id: str, text: Annotated[str, Body(embed=True)]) -> Any:
    asked, thread = {"messages": [HumanMessage(text)]}, RunnableConfig(configurable={"thread_id": thread_id})
    try:
        return {"run_id": (await start_run(app.state.agent, asked, thread, stream_mode="messages")).run_id}
    except errors.ThreadBusy as busy:
        raise HTTPException(409, {"run_id": busy.run_id}) from busy


@app.get("/runs/{run_id}/events")
async def events(run_id: str, after: int = 0, last_event_id: Annotated[int, Header()] = 0) -> StreamingResponse:
    await app.state.journal.arun(run_id)  # an error needs its status before the first line

    async def lines() -> AsyncIterator[str]:
        with suppress(errors.StoreFailed):  # ends the response: the client asks again, after the last event that it has
            async for event in app.state.journal.afollow(run_id, max(after, last_event_id)):
                yield f"id: {event.seq}\ndata: {json.dumps(event.to_dict())}\n\n"

    return StreamingResponse(lines(), media_type="text/event-stream", headers={"cache-control": "no-store"})


@app.post("/runs/{run_id}/stop")
async def stop(run_id: str) -> Any:
    try:
        return await app.state.journal.astop(run_id, wait=True, timeout=30)
    except errors.RunAbandoned:  # its worker is dead
        await app.state.journal.arecover(app.state.agent)
        return await app.state.journal.arun(run_id)


@app.get("/threads/{thread_id}")
async def thread(thread_id: str) -> Any:
    state = await app.state.agent.aget_state({"configurable": {"thread_id": thread_id}})
    return [{"text": one.text, "is_partial": is_partial(one)} for one in state.values.get("messages", [])]


@app.get("/alive")
async def alive() -> str:  # liveness asks only this process: a restart of the worker does not repair the database
    return "alive"


@app.get("/ready")
async def ready() -> str:  # readiness asks the database, without which no run can begin: for the journal, and for the
    await app.state.journal.aruns(limit=1)
    await app.state.pool.check()  # checkpointer, whose pool replaces here what an outage has broken
    async with app.state.pool.connection():
        return "ready"
