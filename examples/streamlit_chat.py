"""A chat in Streamlit whose Stop button works: `pip install streamlit`, `streamlit run examples/streamlit_chat.py`.

Streamlit runs this script from top to bottom for each click. It ends a running script with an exception, but only at the
next `st` call. If a graph streamed in the script, LangGraph would wait for its node, and the thread would keep the whole
answer. So `start_run` begins the run on an event loop in another thread, and the script reads the journal five times a
second.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import Any, TypeVar
from uuid import uuid4

import streamlit as st
from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, MessagesState, StateGraph

from langchain_runjournal import Run, RunJournal, attach, errors, is_partial, start_run
from langchain_runjournal.testing import ScriptedChatModel

_T = TypeVar("_T")
WHY = {"stop": "stopped", "crash": "cut off: the server was killed", "timeout": "cut off: it took too long"}
model = ScriptedChatModel(lambda messages: f"You said: {messages[-1].text}. " + "And so on, word by word. " * 20, pace=0.05)


async def answer(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
    return {"messages": [await model.ainvoke(state["messages"], config)]}  # your agent goes here


class Backend:
    """The agent and its runs, on an event loop that survives reruns of the script."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.rooms = AsyncExitStack()
        threading.Thread(target=self.loop.run_forever, name="runs", daemon=True).start()
        self.do(self.open())

    def do(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine on the loop, and wait for its result."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    async def open(self) -> None:
        saver = await self.rooms.enter_async_context(AsyncSqliteSaver.from_conn_string("threads.db"))
        self.journal = await self.rooms.enter_async_context(RunJournal("runs.db"))
        graph = StateGraph(MessagesState).add_node("answer", answer).add_edge(START, "answer")
        self.agent = attach(graph.compile(checkpointer=saver, name="agent"), self.journal)
        await self.journal.arecover(self.agent)  # settles what an earlier process left

    def say(self, thread: RunnableConfig, text: str) -> None:
        """Begin a run. Raises `ThreadBusy` if another tab was faster."""
        given = {"messages": [HumanMessage(text, id=str(uuid4()))]}
        self.do(start_run(self.agent, given, thread, stream_mode="messages"))  # "messages" makes the model stream

    def stop(self, run_id: str) -> None:
        """Stop a run, and wait until its partial answer is in the thread."""
        self.journal.stop(run_id, "stop", wait=True, timeout=30)

    def messages(self, thread: RunnableConfig, run: Run | None) -> list[BaseMessage]:
        """Return the messages of the thread, followed by what the running run has said so far."""
        said = self.journal.transcript(run.run_id) if run is not None else []
        ids = {message.id for message in said}
        there = self.agent.get_state(thread).values.get("messages", [])
        return [*(message for message in there if message.id not in ids), *said]


@st.cache_resource
def backend() -> Backend:
    """Return the one backend of this process, for all tabs and reruns."""
    return Backend()


def running(thread_id: str) -> Run | None:
    return next(iter(backend().journal.runs(thread_id, "running", 1)), None)


def say(thread: RunnableConfig) -> None:
    """Send what the user typed. Streamlit calls this before it draws the page."""
    try:
        backend().say(thread, st.session_state.said)
    except errors.ThreadBusy:
        st.toast(f"Not sent, because an answer is being given: {st.session_state.said}")


@st.fragment(run_every=0.2)
def conversation(thread: RunnableConfig, was_running: bool) -> None:
    """Draw all messages. Streamlit repeats this five times a second, so the script never waits for a token."""
    run = running(thread["configurable"]["thread_id"])
    for message in backend().messages(thread, run):
        with st.chat_message(message.type):
            st.markdown(message.text)
            if is_partial(message) and run is None:
                st.caption(WHY.get(message.additional_kwargs["runjournal"]["reason"], "cut off"))
    if run is not None:
        st.button("Stop", key="stop", on_click=backend().stop, args=(run.run_id,))
    if (run is not None) != was_running:
        st.rerun()  # draw the whole page, because its input opens or closes


if "thread" not in st.query_params:
    st.query_params["thread"] = str(uuid4())  # in the address, so that a refresh returns to the thread
thread: RunnableConfig = {"configurable": {"thread_id": st.query_params["thread"]}}
busy = running(st.query_params["thread"]) is not None
conversation(thread, busy)
st.chat_input("Say something", key="said", disabled=busy, on_submit=say, args=(thread,))
