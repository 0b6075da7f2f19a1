"""A chat server with a page. Any client can stop an answer; answers survive closed tabs, restarts and crashes.

    pip install langchain-runjournal fastapi uvicorn
    python examples/server.py                 and open http://127.0.0.1:8000
    uvicorn examples.server:app --workers 2 --timeout-graceful-shutdown 5

    curl localhost:8000/threads/t1/messages --json '{"text": "Count to 100"}'     begin a run; the response has its run_id
    curl -N localhost:8000/runs/RUN_ID/events?after=0                             its events after any seq, then live
    curl -X POST localhost:8000/runs/RUN_ID/stop?wait=true                        from any connection, to any worker
    curl localhost:8000/threads/t1                                                all messages that were shown

The model follows a script, so the example needs no key and no network. For a real model, change two lines: import
`init_chat_model` from `langchain.chat_models`, and write `model = init_chat_model("openai:gpt-5").bind_tools(TOOLS)`.

Every client that knows the id of a thread may read it and write to it, so the server accepts only requests for this machine
(see `CHAT_HOSTS`). Add a login before you make it public.

On SIGTERM or Ctrl-C, uvicorn first waits until every response is complete, and the stream of a long answer takes long.
`--timeout-graceful-shutdown` limits this wait, in seconds. Then uvicorn cancels the responses (and logs a CancelledError
for each), and ends the lifespan below: there the journal stops the runs of this process, cause "shutdown", and settles
their threads.
"""

import asyncio
import json
import os
import re
from base64 import b64encode
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit
from uuid import UUID, uuid4

from fastapi import Depends, FastAPI, Header, HTTPException, Request, Response
from fastapi.middleware.trustedhost import TrustedHostMiddleware
from fastapi.responses import HTMLResponse, JSONResponse, StreamingResponse
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from pydantic import BaseModel

from langchain_runjournal import RunHandle, RunJournal, attach, errors, is_partial, is_synthetic, start_run
from langchain_runjournal.testing import Call, ScriptedChatModel

THREADS = os.environ.get("CHAT_THREADS", "threads.db")
RUNS = os.environ.get("CHAT_RUNS", "runs.db")
PACE = float(os.environ.get("CHAT_PACE", "0.05"))  # seconds per word
HOSTS = os.environ.get("CHAT_HOSTS", "localhost,127.0.0.1").split(",")  # the host names that it accepts
PAGE = Path(__file__).with_name("chat.html").read_text(encoding="utf-8")

# --- the model and the graph: replace these with yours --------------------------------------------------------------------

STORY = """\
Once there was a clerk who wrote down every word that was said in the town, the moment it was said, and not one moment later.

People laughed at him. Why not wait until the speech is over, they asked, and write it down then, clean and whole? He \
shrugged, and went on writing.

One evening the mayor was in the middle of the longest speech of the year when a storm took the roof off the town hall. \
Everybody ran. The mayor forgot what he had wanted to say, and so did everybody else.

In the morning the clerk stood in the ruins, with wet shoes and a dry book. He read out what had been said, up to the very \
word at which the roof had gone. "And then?" asked the people. "Then," said the clerk, "the mayor may continue."

And that is what he did."""


def answer_to(question: str, given: Sequence[BaseMessage]) -> list[Any]:
    """Count ("Count to 100"), request tools ("Weather in Rome, Oslo"), tell a story, or list the messages of the request."""
    if counts := re.match(r"Count to (\d+)", question):
        return ["".join(f"{number} " for number in range(1, min(int(counts[1][:6]), 100_000) + 1))]
    if asks := re.match(r"Weather in (.+)", question):
        return ["Looking. ", *(Call("weather", {"city": city}) for city in re.split(", | and ", asks[1]))]
    if "story" in question:
        return [STORY]
    kinds = (f"{message.type}{' (cut off)' if is_partial(message) else ''}" for message in given)
    return ["I have been given: " + ", ".join(kinds)]


def say(messages: list[BaseMessage]) -> list[Any]:
    """Return the next answer of the script. "Continue" continues where the answer was cut off, as a real model would."""
    asked = [at for at, message in enumerate(messages) if isinstance(message, HumanMessage)]
    fresh = [at for at in asked if not messages[at].text.startswith("Continue")] or asked[:1]
    since = messages[fresh[-1] + 1 :]
    found = [message.text for message in since if isinstance(message, ToolMessage) and message.status == "success"]
    if isinstance(messages[-1], ToolMessage):
        return [f"Now I know: {', '.join(found)}."]
    whole, *calls = answer_to(messages[fresh[-1]].text, messages)
    if fresh[-1] == asked[-1]:
        return [whole, *calls]
    said = "".join(message.text for message in since if isinstance(message, AIMessage))
    open_calls = [call for call in calls if not any(text.endswith(call.args["city"]) for text in found)]
    return [whole[len(said) :] or ("The others. " if open_calls else "That was all."), *open_calls]


@tool
async def weather(city: str) -> str:
    """Return the weather in a city."""
    await asyncio.sleep(len(city) * 8 * PACE)
    return f"{('sunny', 'rain', 'wind', 'snow')[sum(map(ord, city)) % 4]} in {city}"


TOOLS = [weather]
model = ScriptedChatModel(say, pace=PACE).bind_tools(TOOLS)


async def answer(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
    return {"messages": [await model.ainvoke(state["messages"], config)]}


graph = StateGraph(MessagesState)
graph.add_node("model", answer)
graph.add_node("tools", ToolNode(TOOLS))
graph.add_edge(START, "model")
graph.add_conditional_edges("model", tools_condition)
graph.add_edge("tools", "model")

# --- the server -----------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    # Close the journal before the saver: on closing, the journal stops its runs and settles their threads.
    async with AsyncSqliteSaver.from_conn_string(THREADS) as saver, RunJournal(RUNS) as journal:
        app.state.journal = journal
        app.state.agent = attach(graph.compile(checkpointer=saver, name="chat"), journal)
        await journal.arecover(app.state.agent)  # settles what killed servers left
        yield


async def same_site(request: Request) -> None:
    """Refuse a POST from the page of another site: without this check, a form there could begin or stop runs here.

    Browsers name the site of the page in Sec-Fetch-Site, older ones in Origin. curl sends neither.
    """
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    is_ours = site in ("same-origin", "none") if site else not origin or urlsplit(origin).netloc == request.headers["host"]
    if request.method not in ("GET", "HEAD") and not is_ours:
        raise HTTPException(403, "This request comes from another site.")


app = FastAPI(lifespan=lifespan, dependencies=[Depends(same_site)])
app.add_middleware(TrustedHostMiddleware, allowed_hosts=HOSTS)


class Message(BaseModel):
    text: str
    run_id: UUID | None = None  # chosen by the client, which can then retry the request: the run begins only once
    if_busy: Literal["reject", "stop", "wait"] = "reject"


async def start(thread_id: str, message: Message) -> RunHandle:
    # The message has an id of its own, so that the page can find it in the thread.
    asked = {"messages": [HumanMessage(message.text, id=str(uuid4()))]}
    config: RunnableConfig = {"configurable": {"thread_id": thread_id}, "run_id": message.run_id}
    return await start_run(app.state.agent, asked, config, if_busy=message.if_busy, stream_mode="messages")


@app.exception_handler(errors.ThreadBusy)
@app.exception_handler(errors.RunNotFound)
async def problem(request: Request, error: errors.RunJournalError) -> Response:
    # Do not send the text of the error: it is for the log, and may name the file of the journal.
    if isinstance(error, errors.ThreadBusy):
        return JSONResponse({"detail": f"Run {error.run_id} is running on this thread.", "run_id": error.run_id}, 409)
    return JSONResponse({"detail": f"Run {error.run_id} does not exist.", "run_id": error.run_id}, 404)


@app.get("/")
async def page() -> Response:
    """Return the page. Its policy allows only its own script, and only connections to this server."""
    script = b64encode(sha256(PAGE.partition("<script>")[2].partition("</script>")[0].encode()).digest()).decode()
    allowed = (
        f"default-src 'none'; script-src 'sha256-{script}'; style-src 'unsafe-inline'; connect-src 'self'; img-src data:"
    )
    policy = f"{allowed}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    return HTMLResponse(PAGE, headers={"content-security-policy": policy, "cache-control": "no-cache"})


@app.post("/threads/{thread_id}/messages")
async def send(thread_id: str, message: Message) -> Any:
    """Begin a run, which continues without a client. If a run with this id exists, return it instead."""
    if message.run_id is not None:
        with suppress(errors.RunNotFound):
            return {"run_id": (await app.state.journal.arun(str(message.run_id))).run_id}
    return {"run_id": (await start(thread_id, message)).run_id}


@app.post("/threads/{thread_id}/stream")
async def send_and_stream(thread_id: str, message: Message) -> Response:
    """Begin a run, and stream only the words of its answer. If the client disconnects, the run continues."""
    handle = await start(thread_id, message)

    async def words() -> AsyncIterator[str]:
        async for chunk, _ in handle.stream():
            if isinstance(chunk, AIMessageChunk):
                yield chunk.text

    return StreamingResponse(words(), media_type="text/plain", headers={"x-run-id": handle.run_id})


@app.get("/runs/{run_id}/events")
async def events(run_id: str, after: int = 0, last_event_id: Annotated[int, Header()] = 0) -> Response:
    """Stream the events of a run as server-sent events. A browser reconnects with Last-Event-ID."""
    after = max(after, last_event_id)
    run = await app.state.journal.arun(run_id)
    if run.ended and after >= run.last_seq:
        return Response(status_code=204)  # an EventSource then stops reconnecting

    async def lines() -> AsyncIterator[str]:
        yield "retry: 1000\n\n"  # milliseconds before the browser reconnects
        async for event in app.state.journal.afollow(run_id, after):
            yield f"id: {event.seq}\ndata: {json.dumps(event.to_dict())}\n\n"

    return StreamingResponse(lines(), media_type="text/event-stream", headers={"cache-control": "no-store"})


@app.post("/runs/{run_id}/stop")
async def stop(run_id: str, wait: bool = False) -> Any:
    """Ask a run in any process to stop; with `wait`, respond when its thread is settled."""
    try:
        return await app.state.journal.astop(run_id, wait=wait, timeout=30)
    except errors.RunAbandoned:  # the process of the run was killed
        await app.state.journal.arecover(app.state.agent)
        return await app.state.journal.arun(run_id)


@app.get("/runs/{run_id}")
async def run(run_id: str) -> Any:
    """Return a run: its status, its cause if it was cut off, and so on."""
    return await app.state.journal.arun(run_id)


@app.get("/threads/{thread_id}/runs")
async def runs(thread_id: str) -> Any:
    """Return the last runs of the thread: the page looks for a running one, and for the run of its last message."""
    return await app.state.journal.aruns(thread_id, limit=10)


@app.get("/threads/{thread_id}")
async def thread(thread_id: str) -> Any:
    """Return the messages of the thread."""
    state = await app.state.agent.aget_state({"configurable": {"thread_id": thread_id}})
    return [shown(message) for message in state.values.get("messages", [])]


def shown(message: BaseMessage) -> dict[str, Any]:
    mark = message.additional_kwargs.get("runjournal", {})
    about = {"id": message.id, "type": message.type, "text": message.text, "is_partial": is_partial(message)}
    if isinstance(message, ToolMessage):
        done = message.status == "success"
        return about | {"tool_call_id": message.tool_call_id, "done": done, "is_synthetic": is_synthetic(message)}
    # The arguments of a tool call may hold NaN, which JSON cannot represent: send the string, as in events.
    calls = json.loads(json.dumps(getattr(message, "tool_calls", [])), parse_constant=str)
    return about | {"calls": calls, "reason": mark.get("reason")}


if __name__ == "__main__":
    import uvicorn

    uvicorn.run(app, host="127.0.0.1", port=8000, timeout_graceful_shutdown=5)
