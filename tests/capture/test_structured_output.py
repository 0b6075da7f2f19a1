"""Model calls with structured output: helper calls as a rule, and answers where a node puts them into the messages."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from uuid import uuid4

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from pydantic import BaseModel

from langchain_runjournal import RunJournal, attach
from tests.support.answering import Cut, Desk, Verdict, Voice, config
from tests.support.conversations import story


class Query(BaseModel):
    """What to search for."""

    query: str


class Provider(BaseHTTPRequestHandler):
    """A provider that answers as OpenAI does: with JSON, or with the tool that it has to use."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        said: dict[str, Any] = {"role": "assistant", "content": '{"query": "rice cooking time"}'}
        if asked.get("tools"):
            function = {"name": "Query", "arguments": said["content"]}
            said = {"role": "assistant", "content": None}
            said["tool_calls"] = [{"id": "c1", "type": "function", "function": function}]
        choice = {"index": 0, "message": said, "finish_reason": "stop"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        whole = {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}
        body = json.dumps(whole).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


@pytest.fixture
def chat() -> Iterator[BaseChatModel]:
    """Return the model of `langchain-openai`, on a provider of ours."""
    openai = pytest.importorskip("langchain_openai")
    server = HTTPServer(("127.0.0.1", 0), Provider)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        with_key: Any = {"api_key": "none", "base_url": f"http://127.0.0.1:{server.server_port}/v1"}
        yield openai.ChatOpenAI(model="gpt-4o", **with_key)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


METHODS = ("function_calling", "json_mode", "json_schema")


@pytest.mark.parametrize("method", METHODS)
def test_structured_output_of_openai(method: str, chat: Any, journal: RunJournal) -> None:
    """By all three methods, the call is a helper call from its beginning, whether its node is cut off or not."""
    model = chat.with_structured_output(Query, method=method)

    def write(state: MessagesState) -> dict[str, Any]:
        assert model.invoke("?") == Query(query="rice cooking time")
        if state["messages"][-1].text == "boom":
            raise ValueError("boom")
        return {}

    graph = StateGraph(MessagesState).add_node("write", write).add_edge(START, "write")
    agent = attach(graph.compile(checkpointer=InMemorySaver()), journal, capture_invoke=False)
    with pytest.raises(ValueError, match="boom"):
        agent.invoke({"messages": [("user", "boom")]}, config("t", uuid4()))
    agent.invoke({"messages": [("user", "hi")]}, config("t", uuid4()))
    assert story(agent.get_state(config("t", uuid4())).values["messages"]) == ["U boom", "U hi"]
    for run in journal.runs():
        assert [event.data["role"] for event in journal.read(run.run_id) if event.kind == "llm.start"] == ["helper"]
        assert len(journal.transcript(run.run_id)) == 1


@pytest.mark.parametrize("method", METHODS)
def test_structured_output_that_goes_into_the_messages(method: str, chat: Any, journal: RunJournal) -> None:
    """What the node did before counts more than the usual purpose of structured output."""
    model = chat.with_structured_output(Query, method=method, include_raw=True)

    def write(state: MessagesState) -> dict[str, Any]:
        said = model.invoke("?")["raw"]
        if state["messages"][-1].text == "boom":
            raise ValueError("boom")
        return {"messages": [AIMessage(said.content, id=said.id)]} if not said.tool_calls else {"messages": [said]}

    graph = StateGraph(MessagesState).add_node("write", write).add_edge(START, "write")
    agent = attach(graph.compile(checkpointer=InMemorySaver()), journal, capture_invoke=False)
    run_id = uuid4()
    agent.invoke({"messages": [("user", "hi")]}, config("t", run_id))
    found = story(agent.get_state(config("t", uuid4())).values["messages"])
    assert len(found) == 2
    assert story(journal.transcript(str(run_id))) == found
    cut = uuid4()
    with pytest.raises(ValueError, match="boom"):
        agent.invoke({"messages": [("user", "boom")]}, config("u", cut))
    assert story(journal.transcript(str(cut)))[1:] == found[1:]


@pytest.mark.parametrize("strategy", ["ProviderStrategy", "ToolStrategy"])
def test_an_agent_with_a_response_format(strategy: str, journal: RunJournal) -> None:
    """Its structured answer goes into the messages: it is an answer, in the first run that is cut off and in any other."""
    from langchain.agents import create_agent, structured_output

    desk = Desk()
    asks = "Verdict" if strategy == "ToolStrategy" else None
    voice = Voice(step="model", says='{"query": "rice"}', desk=desk, asks=asks)
    form = getattr(structured_output, strategy)(Verdict)
    agent = attach(create_agent(voice, [], response_format=form, checkpointer=InMemorySaver()), journal, capture_invoke=True)
    for thread in "ab":
        desk.cut = ("model", "inside")
        with pytest.raises(Cut):
            agent.invoke({"messages": [("user", "hi")]}, config(thread, uuid4()))
        assert story(agent.get_state(config(thread, uuid4())).values["messages"]) == ["U hi", 'A~ {"query"']
        desk.cut, run_id = None, uuid4()
        agent.invoke({"messages": [("user", "next")]}, config(thread, run_id))
        found = story(agent.get_state(config(thread, uuid4())).values["messages"])[2:]
        assert story(journal.transcript(str(run_id))) == found
        assert len(found) == (3 if asks else 2)
