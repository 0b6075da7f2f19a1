"""A chat server: its answers can be stopped from anywhere, and outlive closed tabs, restarts and crashes.

    pip install langchain-runjournal fastapi uvicorn
    uvicorn examples.server:app --workers 2 --timeout-graceful-shutdown 5

    curl localhost:8000/threads/t1/messages --json '{"text": "Count to 100"}'     begins a run, and gives its run_id
    curl -N localhost:8000/runs/RUN_ID/events?after=0                             all it says, from any seq on, then live
    curl -X POST localhost:8000/runs/RUN_ID/stop?wait=true                        from any connection, to any worker
    curl localhost:8000/threads/t1                                                nothing that was shown is missing

The model follows a script, so that this needs no key and no network. For a real one, change two lines: import
`init_chat_model` from `langchain.chat_models`, and say `model = init_chat_model("openai:gpt-5").bind_tools(TOOLS)`.

When it is told to end (SIGTERM, Ctrl-C), uvicorn first waits until every response is complete, and a stream of a long answer
is not complete for long: `--timeout-graceful-shutdown` is how many seconds it waits. Then it cuts the responses off (and
logs a CancelledError for each), and ends the lifespan below: there the journal stops the runs of this process, cause
"shutdown", and settles their threads.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal

from fastapi import FastAPI, Header, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessageChunk
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from pydantic import BaseModel

from langchain_runjournal import RunHandle, RunJournal, attach, errors, is_partial, start_run

THREADS = os.environ.get("CHAT_THREADS", "threads.db")
RUNS = os.environ.get("CHAT_RUNS", "runs.db")
PACE = float(os.environ.get("CHAT_PACE", "0.05"))  # seconds for a word


@tool
async def weather(city: str) -> str:
    """What the weather is like."""
    await asyncio.sleep(10 * PACE)
    return f"sunny in {city}"


TOOLS = [weather]


class Script(BaseChatModel):
    """Counts ("Count to 100"), asks for the weather ("Weather in Rome, Oslo"), or tells what it has been given."""

    @property
    def _llm_type(self) -> str:
        return "script"

    def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
        raise NotImplementedError

    async def _astream(self, messages: list[Any], *args: Any, **kwargs: Any) -> AsyncIterator[ChatGenerationChunk]:
        asked = messages[-1].text
        if asked.startswith("Count to "):
            chunks = [AIMessageChunk(f"{number} ") for number in range(1, int(asked[9:]) + 1)]
        elif asked.startswith("Weather in "):
            chunks = [AIMessageChunk("Looking. ")]
            for at, city in enumerate(asked[11:].split(", ")):
                call = {"id": f"{len(messages)}-{at}", "name": "weather", "args": json.dumps({"city": city}), "index": at}
                chunks.append(AIMessageChunk("", tool_call_chunks=[call]))
        else:
            chunks = [AIMessageChunk("I have been given: "), AIMessageChunk(", ".join(one.type for one in messages))]
        for chunk in chunks:
            yield ChatGenerationChunk(message=chunk)
            await asyncio.sleep(PACE)


model = Script()


async def answer(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
    return {"messages": [await model.ainvoke(state["messages"], config)]}


graph = StateGraph(MessagesState)
graph.add_node("model", answer)
graph.add_node("tools", ToolNode(TOOLS))
graph.add_edge(START, "model")
graph.add_conditional_edges("model", tools_condition)
graph.add_edge("tools", "model")


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    # The journal inside of the saver: when it is closed, it settles what it stops.
    async with AsyncSqliteSaver.from_conn_string(THREADS) as saver, RunJournal(RUNS) as journal:
        app.state.journal = journal
        app.state.agent = attach(graph.compile(checkpointer=saver, name="chat"), journal)
        await journal.arecover(app.state.agent)  # what servers that were killed have left behind
        yield


app = FastAPI(lifespan=lifespan)


class Message(BaseModel):
    text: str
    if_busy: Literal["reject", "stop", "wait"] = "reject"


async def start(thread_id: str, message: Message) -> RunHandle:
    asked, config = {"messages": [("user", message.text)]}, {"configurable": {"thread_id": thread_id}}
    return await start_run(app.state.agent, asked, config, if_busy=message.if_busy, stream_mode="messages")


@app.exception_handler(errors.ThreadBusy)
@app.exception_handler(errors.RunNotFound)
async def problem(request: Request, error: errors.RunJournalError) -> Response:
    return JSONResponse({"detail": str(error), "run_id": error.run_id}, 409 if isinstance(error, errors.ThreadBusy) else 404)


@app.post("/threads/{thread_id}/messages")
async def send(thread_id: str, message: Message) -> Any:
    """Begin a run. It goes on whether or not somebody looks at it."""
    return {"run_id": (await start(thread_id, message)).run_id}


@app.post("/threads/{thread_id}/stream")
async def send_and_stream(thread_id: str, message: Message) -> Response:
    """The same for a client that wants the words of the answer, and nothing else. If it goes away, the run goes on."""
    handle = await start(thread_id, message)

    async def words() -> AsyncIterator[str]:
        async for chunk, _ in handle.stream():
            if isinstance(chunk, AIMessageChunk):
                yield chunk.text

    return StreamingResponse(words(), media_type="text/plain", headers={"x-run-id": handle.run_id})


@app.get("/runs/{run_id}/events")
async def events(run_id: str, after: int = 0, last_event_id: Annotated[int, Header()] = 0) -> Response:
    """What the run says, as server-sent events. A browser that lost the connection comes back with Last-Event-ID."""
    after = max(after, last_event_id)
    run = await app.state.journal.arun(run_id)
    if run.ended and after >= run.last_seq:
        return Response(status_code=204)  # an EventSource then stops to come back

    async def lines() -> AsyncIterator[str]:
        async for event in app.state.journal.afollow(run_id, after):
            yield f"id: {event.seq}\ndata: {json.dumps(event.to_dict())}\n\n"

    return StreamingResponse(lines(), media_type="text/event-stream", headers={"cache-control": "no-store"})


@app.post("/runs/{run_id}/stop")
async def stop(run_id: str, wait: bool = False) -> Any:
    """Ask a run to stop, in whatever process it is; with `wait`, answer when its thread is settled."""
    try:
        return await app.state.journal.astop(run_id, wait=wait, timeout=30)
    except errors.RunAbandoned:  # the process that it was in has been killed
        await app.state.journal.arecover(app.state.agent)
        return await app.state.journal.arun(run_id)


@app.get("/runs/{run_id}")
async def run(run_id: str) -> Any:
    """Its status, its cause if it was cut off, and so on."""
    return await app.state.journal.arun(run_id)


@app.get("/threads/{thread_id}")
async def thread(thread_id: str) -> Any:
    """The conversation."""
    state = await app.state.agent.aget_state({"configurable": {"thread_id": thread_id}})
    said = state.values.get("messages", [])
    return [{"type": one.type, "text": one.text, "is_partial": is_partial(one)} for one in said]
