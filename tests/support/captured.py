"""Short words for what a journal has captured, and callbacks as LangChain makes them."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessageChunk, HumanMessage
from langchain_core.outputs import ChatGenerationChunk, LLMResult
from langchain_core.tools import tool

from langchain_runjournal import Event, JournalCallbackHandler, RunJournal


def config(handler: BaseCallbackHandler, thread: str | None = "t") -> dict[str, Any]:
    """Return a config with a new run id."""
    found: dict[str, Any] = {"callbacks": [handler], "run_id": uuid4()}
    if thread is not None:
        found["configurable"] = {"thread_id": thread}
    return found


def kinds(events: list[Event], without: str = "llm.ai.delta") -> list[str]:
    return [event.kind for event in events if event.kind != without]


def lines(journal: RunJournal, cfg: dict[str, Any]) -> list[tuple[str, str]]:
    """The transcript as lines."""
    return [(message.type, message.text) for message in journal.transcript(str(cfg["run_id"]))]


def events(journal: RunJournal, cfg: dict[str, Any]) -> list[Event]:
    return journal.read(str(cfg["run_id"]))


@tool
def double(x: int) -> str:
    """Twice x."""
    return str(2 * x)


@tool
def broken(x: int) -> str:
    """Fails."""
    raise ValueError("no such x")


def call(handler: JournalCallbackHandler, parent: UUID | None = None) -> UUID:
    """Report that a model call begins."""
    run_id = uuid4()
    handler.on_chat_model_start({"name": "m"}, [[HumanMessage("?")]], run_id=run_id, parent_run_id=parent)
    return run_id


def say(handler: JournalCallbackHandler, run_id: UUID, text: str) -> None:
    handler.on_llm_new_token(text, chunk=ChatGenerationChunk(message=AIMessageChunk(content=text)), run_id=run_id)


def answer(text: str) -> LLMResult:
    return LLMResult(generations=[[ChatGenerationChunk(message=AIMessageChunk(content=text, id="x"))]])
