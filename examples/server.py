"""A chat server with a page: its answers can be stopped from anywhere, and outlive closed tabs, restarts and crashes.

    pip install langchain-runjournal fastapi uvicorn
    python examples/server.py                 and open http://127.0.0.1:8000
    uvicorn examples.server:app --workers 2 --timeout-graceful-shutdown 5

    curl localhost:8000/threads/t1/messages --json '{"text": "Count to 100"}'     begins a run, and gives its run_id
    curl -N localhost:8000/runs/RUN_ID/events?after=0                             all it says, from any seq on, then live
    curl -X POST localhost:8000/runs/RUN_ID/stop?wait=true                        from any connection, to any worker
    curl localhost:8000/threads/t1                                                nothing that was shown is missing

The model follows a script, so that this needs no key and no network. For a real one, change two lines: import
`init_chat_model` from `langchain.chat_models`, and say `model = init_chat_model("openai:gpt-5").bind_tools(TOOLS)`.

Whoever knows the id of a thread may read it and write to it, so this answers your own machine only (see `CHAT_HOSTS`). Put a
login in front before you let others in.

When it is told to end (SIGTERM, Ctrl-C), uvicorn first waits until every response is complete, and a stream of a long answer
is not complete for long: `--timeout-graceful-shutdown` is how many seconds it waits. Then it cuts the responses off (and
logs a CancelledError for each), and ends the lifespan below: there the journal stops the runs of this process, cause
"shutdown", and settles their threads.
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
PACE = float(os.environ.get("CHAT_PACE", "0.05"))  # seconds for a word
HOSTS = os.environ.get("CHAT_HOSTS", "localhost,127.0.0.1").split(",")  # the names under which it answers
PAGE = Path(__file__).with_name("chat.html").read_text(encoding="utf-8")

# --- the model and the graph: replace these with yours --------------------------------------------------------------------

STORY = """\
Once there was a clerk who wrote down every word that was said in the town, the moment it was said, and not one moment later.

People laughed at him. Why not wait until the speech is over, they asked, and write it down then, clean and whole? He \
shrugged, and went on writing.

One evening the mayor was in the middle of the longest speech of the year when a storm took the roof off the town hall. \
Everybody ran. The mayor forgot what he had wanted to say, and so did everybody else.

In the morning the clerk stood in the ruins, with wet shoes and a dry book. He read out what had been said, up to the very \
word at which the roof had gone. "And then?" asked the people. "Then," said the clerk, "the mayor may go on."

And that is what he did."""


def answer_to(question: str, given: Sequence[BaseMessage]) -> list[Any]:
    """It counts ("Count to 100"), asks for weather ("Weather in Rome, Oslo"), tells a story, or what it has been given."""
    if counts := re.match(r"Count to (\d+)", question):
        return ["".join(f"{number} " for number in range(1, min(int(counts[1][:6]), 100_000) + 1))]
    if asks := re.match(r"Weather in (.+)", question):
        return ["Looking. ", *(Call("weather", {"city": city}) for city in re.split(", | and ", asks[1]))]
    if "story" in question:
        return [STORY]
    kinds = (f"{message.type}{' (cut off)' if is_partial(message) else ''}" for message in given)
    return ["I have been given: " + ", ".join(kinds)]


def say(messages: list[BaseMessage]) -> list[Any]:
    """What the script says next. "Go on" goes on where the answer was cut off, as a real model would."""
    asked = [at for at, message in enumerate(messages) if isinstance(message, HumanMessage)]
    fresh = [at for at in asked if not messages[at].text.startswith("Go on")] or asked[:1]
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
    """What the weather is like."""
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
    # The journal inside of the saver: when it is closed, it settles what it stops.
    async with AsyncSqliteSaver.from_conn_string(THREADS) as saver, RunJournal(RUNS) as journal:
        app.state.journal = journal
        app.state.agent = attach(graph.compile(checkpointer=saver, name="chat"), journal)
        await journal.arecover(app.state.agent)  # what servers that were killed have left behind
        yield


async def same_site(request: Request) -> None:
    """Only this server's own page may begin or stop anything: a form on any other site could send such a request as well.

    A browser says where a request comes from, by Sec-Fetch-Site or, if it is an older one, by Origin. curl sends neither.
    """
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    is_ours = site in ("same-origin", "none") if site else not origin or urlsplit(origin).netloc == request.headers["host"]
    if request.method not in ("GET", "HEAD") and not is_ours:
        raise HTTPException(403, "This request comes from another site.")


app = FastAPI(lifespan=lifespan, dependencies=[Depends(same_site)])
app.add_middleware(TrustedHostMiddleware, allowed_hosts=HOSTS)


class Message(BaseModel):
    text: str
    run_id: UUID | None = None  # chosen by who sends it, who may then send it again without saying it twice
    if_busy: Literal["reject", "stop", "wait"] = "reject"


async def start(thread_id: str, message: Message) -> RunHandle:
    # With an id of its own, so that the page finds it again in the thread.
    asked = {"messages": [HumanMessage(message.text, id=str(uuid4()))]}
    config: RunnableConfig = {"configurable": {"thread_id": thread_id}, "run_id": message.run_id}
    return await start_run(app.state.agent, asked, config, if_busy=message.if_busy, stream_mode="messages")


@app.exception_handler(errors.ThreadBusy)
@app.exception_handler(errors.RunNotFound)
async def problem(request: Request, error: errors.RunJournalError) -> Response:
    # In words of its own: the text of an error is for the log, and may name the file of the journal.
    if isinstance(error, errors.ThreadBusy):
        return JSONResponse({"detail": f"Run {error.run_id} is at work on this thread.", "run_id": error.run_id}, 409)
    return JSONResponse({"detail": f"There is no run {error.run_id}.", "run_id": error.run_id}, 404)


@app.get("/")
async def page() -> Response:
    """The page. It runs its own script and no other, and speaks to this server only."""
    script = b64encode(sha256(PAGE.partition("<script>")[2].partition("</script>")[0].encode()).digest()).decode()
    allowed = (
        f"default-src 'none'; script-src 'sha256-{script}'; style-src 'unsafe-inline'; connect-src 'self'; img-src data:"
    )
    policy = f"{allowed}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    return HTMLResponse(PAGE, headers={"content-security-policy": policy, "cache-control": "no-cache"})


@app.post("/threads/{thread_id}/messages")
async def send(thread_id: str, message: Message) -> Any:
    """Begin a run. It goes on whether or not somebody looks at it. One that has begun is not begun again."""
    if message.run_id is not None:
        with suppress(errors.RunNotFound):
            return {"run_id": (await app.state.journal.arun(str(message.run_id))).run_id}
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
        yield "retry: 1000\n\n"  # milliseconds, after a lost connection
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


@app.get("/threads/{thread_id}/runs")
async def runs(thread_id: str) -> Any:
    """The last runs of the thread: whether one is at work on it, and whether one that was asked for has come to be."""
    return await app.state.journal.aruns(thread_id, limit=10)


@app.get("/threads/{thread_id}")
async def thread(thread_id: str) -> Any:
    """The conversation."""
    state = await app.state.agent.aget_state({"configurable": {"thread_id": thread_id}})
    return [shown(message) for message in state.values.get("messages", [])]


def shown(message: BaseMessage) -> dict[str, Any]:
    mark = message.additional_kwargs.get("runjournal", {})
    about = {"id": message.id, "type": message.type, "text": message.text, "is_partial": is_partial(message)}
    if isinstance(message, ToolMessage):
        done = message.status == "success"
        return about | {"tool_call_id": message.tool_call_id, "done": done, "is_synthetic": is_synthetic(message)}
    # A model may ask with a NaN, which JSON cannot hold: the page gets the word, as it does in events.
    calls = json.loads(json.dumps(getattr(message, "tool_calls", [])), parse_constant=str)
    return about | {"calls": calls, "reason": mark.get("reason")}


if __name__ == "__main__":
    import uvicorn

    uvicorn.run(app, host="127.0.0.1", port=8000, timeout_graceful_shutdown=5)
