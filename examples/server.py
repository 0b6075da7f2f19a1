"""A chat server with a login: `create_app`, mounted in a FastAPI. Answers survive closed tabs, restarts and crashes.

    pip install "langchain-runjournal[server]" fastapi uvicorn
    uvicorn examples.server:app --timeout-graceful-shutdown 5

    BODY='{"input": {"messages": [{"role": "user", "content": "Hi"}]}}'
    curl -u ann:secret localhost:8000/chat/threads/ann-1/runs --json "$BODY"     begin a run
    curl -u ann:secret -N localhost:8000/chat/threads/ann-1/events             all runs of the thread, then live
    curl -u ann:secret -X POST localhost:8000/chat/runs/RUN_ID/stop?wait=1     from any connection, to any worker
    curl -u ann:secret localhost:8000/chat/threads/ann-1/messages

Each user sees the threads whose ids begin with the user's name, and no others. For a page to chat on, without code:
`runjournal serve examples.server:agent`. For a real model: `model = init_chat_model("openai:gpt-5")`.
"""

import base64
import os
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException, Request
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, MessagesState, StateGraph

from langchain_runjournal import RunJournal, attach
from langchain_runjournal.server import create_app
from langchain_runjournal.testing import ScriptedChatModel

USERS = {"ann": "secret", "ben": "other secret"}  # your database goes here
model = ScriptedChatModel(lambda messages: f"You said: {messages[-1].text}", pace=0.05)  # your model goes here


async def answer(state: MessagesState, config: RunnableConfig) -> dict[str, list[object]]:
    return {"messages": [await model.ainvoke(state["messages"], config)]}


journal = RunJournal(os.environ.get("CHAT_RUNS", "runs.db"))
graph = StateGraph(MessagesState).add_node("answer", answer).add_edge(START, "answer")
agent = attach(graph.compile(name="agent"), journal)


def authorize(request: Request, action: str, thread_id: str | None) -> bool:
    """Return whether the user of a request may do that. Asked at each request, and at each reconnect."""
    kind, _, given = request.headers.get("authorization", "").partition(" ")
    try:
        name, _, password = base64.b64decode(given if kind.lower() == "basic" else "").decode().partition(":")
    except ValueError:
        name, password = "", ""
    if not secrets.compare_digest(password.encode(), USERS.get(name, secrets.token_hex()).encode()):
        raise HTTPException(401, "Log in.", {"www-authenticate": "Basic"})
    return action == "list" if thread_id is None else thread_id.startswith(f"{name}-")


chat = create_app(agent, journal, authorize=authorize)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    # The journal is closed before the saver: on closing, it stops its runs and settles their threads.
    async with AsyncSqliteSaver.from_conn_string(os.environ.get("CHAT_THREADS", "threads.db")) as saver, journal:
        agent.checkpointer = saver
        await journal.arecover(agent)  # settles what killed servers left
        yield


app = FastAPI(lifespan=lifespan)
app.mount("/chat", chat)
