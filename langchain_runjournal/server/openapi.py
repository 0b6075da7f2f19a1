"""Pure: the description of all paths of an application, as OpenAPI 3.1."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import Any, Final

from .langgraph import described as langgraph

_PARAMETER: Final = re.compile(r"{(\w+)}")
_TEXT: Final = {"type": "string"}
_PROBLEM: Final = {
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": _TEXT,
        "title": _TEXT,
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "What to do."},
        "run_id": {"type": "string", "description": "The run that is in the way."},
    },
}
_BLOCK: Final = {"type": "object", "required": ["type"], "properties": {"type": _TEXT}}
_MESSAGE: Final = {
    "type": "object",
    "required": ["content"],
    "additionalProperties": False,
    "properties": {
        "role": {"enum": ["user", "human"]},
        "type": {"enum": ["user", "human"]},
        "content": {"anyOf": [_TEXT, {"type": "array", "items": _BLOCK}]},
        "id": {"type": "string", "minLength": 1, "description": "No message of the thread may have it."},
    },
}
_START: Final = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "input": {
            "type": "object",
            "description": "The input of the graph. Its messages are new ones of the user.",
            "minProperties": 1,
            "properties": {"messages": {"type": "array", "minItems": 1, "items": _MESSAGE}},
        },
        "command": {
            "type": "object",
            "required": ["resume"],
            "additionalProperties": False,
            "properties": {
                "resume": {"description": "The answer to the question of the run that waits."},
                "continues": {"type": "string", "description": "The run that asked."},
            },
        },
        "run_id": {"type": "string", "format": "uuid", "description": "The same id again is the same run."},
        "if_busy": {"enum": ["reject", "stop", "wait"], "default": "reject"},
        "graph": {"type": "string", "description": "Its name; needed if there are several."},
        "before": {
            "type": "string",
            "minLength": 1,
            "description": "The id of a message: the run takes the place of all from it on.",
        },
        "config": {
            "type": "object",
            "additionalProperties": False,
            "properties": {"configurable": {"type": "object"}, "metadata": {"type": "object"}},
        },
    },
}
_CHAT: Final = {
    "type": "object",
    "description": "What `DefaultChatTransport` sends. Only the last message counts.",
    "required": ["id"],
    "properties": {
        "id": {"type": "string", "description": "The thread.", "minLength": 1, "maxLength": 200},
        "trigger": {"enum": ["submit-message", "regenerate-message"], "default": "submit-message"},
        "messageId": {"type": ["string", "null"], "description": "The message to edit, or to answer again."},
        "messages": {"type": "array", "items": {"type": "object"}},
        "command": {"type": "object", "required": ["resume"], "description": "The answer to a question."},
        "graph": {"type": "string", "description": "Its name; needed if there are several."},
    },
}
_RUN_INPUT: Final = {
    "type": "object",
    "description": "The `RunAgentInput` of AG-UI 1.0. Of the messages, only the new ones of the user count.",
    "required": ["threadId", "runId", "messages"],
    "properties": {
        "threadId": {"type": "string", "minLength": 1, "maxLength": 200},
        "runId": {"type": "string", "minLength": 1, "maxLength": 200, "description": "The same id again is the same run."},
        "messages": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["id", "role"],
                "properties": {"id": {"type": "string", "minLength": 1, "maxLength": 200}, "role": _TEXT},
            },
        },
        "state": {"description": "What of it the graph takes, and what has changed, is input."},
        "tools": {"type": ["array", "null"], "items": {}},
        "context": {"type": ["array", "null"], "items": {}},
        "resume": {
            "type": ["array", "null"],
            "description": "The answers to questions.",
            "items": {
                "type": "object",
                "required": ["interruptId", "status"],
                "properties": {
                    "interruptId": {"type": "string", "minLength": 1, "maxLength": 200},
                    "status": {"enum": ["resolved", "cancelled"]},
                    "payload": {"description": "What `interrupt` returns in the graph."},
                },
            },
        },
        "protocolVersion": {"description": "The version of AG-UI that the client knows; without it, one before 1.0."},
        "forwardedProps": {
            "description": "`ifBusy`, `command.resume` and `config.configurable` count.",
            "properties": {"ifBusy": {"enum": ["reject", "stop", "wait"]}},
        },
    },
}
_BODIES: Final[Mapping[tuple[str, str], Mapping[str, Any]]] = {
    ("POST", "/threads/{thread}/runs"): {"$ref": "#/components/schemas/Start"},
    ("POST", "/ai-sdk/chat"): {"$ref": "#/components/schemas/Chat"},
    ("POST", "/ag-ui/agents/{graph}"): {"$ref": "#/components/schemas/RunAgentInput"},
}
_FLAG: Final = {"enum": ["1", "true", "yes", "on", "", "0", "false", "no", "off"]}
_CURSOR: Final = "The id of the last frame that was applied; `-1` or `0` from the start, `now` without what is there."
_QUERIES: Final[Mapping[str, Mapping[str, Any]]] = {
    "cursor": {"schema": _TEXT, "description": _CURSOR},
    "merge": {"schema": _FLAG, "description": "Join adjacent deltas of a call into one frame."},
    "wait": {"schema": _FLAG, "description": "Answer when the thread is settled, or after 30 seconds."},
    "force": {"schema": _FLAG, "description": "Stop a run that is running first."},
    "run": {"schema": _TEXT, "description": "The id of a run: its stream, also if it is over."},
    "protocolVersion": {"schema": _TEXT, "description": "The version of AG-UI that the client knows, such as 1.0."},
    "limit": {
        "schema": {"type": "integer", "minimum": 1, "maximum": 999_999_999},
        "description": "How many, at most; more than 1,000 mean 1,000.",
    },
    "search": {"schema": _TEXT, "description": "Words of the title."},
}
_STREAM: Final = ("cursor", "merge")
_NATIVE: Final[Mapping[tuple[str, str], tuple[tuple[str, ...], Mapping[str, str]]]] = {
    ("GET", "/graphs"): ((), {"200": "The names."}),
    ("GET", "/threads"): (("limit", "search"), {"200": "The threads."}),
    ("DELETE", "/threads/{thread}"): (("force",), {"204": "Deleted.", "409": "A run is running."}),
    ("GET", "/threads/{thread}/messages"): ((), {"200": "The messages, and the cursor behind them."}),
    ("GET", "/threads/{thread}/events"): (_STREAM, {"200": "Server-sent events.", "503": "Too many streams."}),
    ("GET", "/threads/{thread}/runs"): (("limit",), {"200": "The runs."}),
    ("POST", "/threads/{thread}/runs"): (
        (),
        {"201": "The run has begun.", "200": "It had begun before.", "409": "The thread is busy, or asks nothing."},
    ),
    ("GET", "/runs/{run}"): ((), {"200": "The run.", "410": "It was deleted."}),
    ("GET", "/runs/{run}/events"): (
        _STREAM,
        {"200": "Server-sent events.", "204": "The run is over, and nothing follows.", "410": "It was deleted."},
    ),
    ("POST", "/runs/{run}/stop"): (
        ("wait",),
        {"202": "It was asked to stop.", "200": "It was asked before, or has stopped.", "409": "It is over."},
    ),
}
"""By method and path: the query parameters, and the answers beside those that every path has."""
_AI_SDK: Final[Mapping[tuple[str, str], tuple[tuple[str, ...], Mapping[str, str]]]] = {
    ("POST", "/ai-sdk/chat"): ((), {"200": "A UI message stream.", "409": "The thread is busy, or asks nothing."}),
    ("GET", "/ai-sdk/chat/{thread}/stream"): (
        ("run",),
        {"200": "A UI message stream, from its start.", "204": "No run is going on."},
    ),
    ("GET", "/ai-sdk/chat/{thread}/messages"): ((), {"200": "The UI messages."}),
    ("POST", "/ai-sdk/chat/{thread}/stop"): (
        ("wait",),
        {"202": "The run was asked to stop.", "200": "It has stopped.", "204": "No run is running."},
    ),
}
"""The same, for the AI SDK."""
_AG_UI: Final[Mapping[tuple[str, str], tuple[tuple[str, ...], Mapping[str, str]]]] = {
    ("POST", "/ag-ui/agents/{graph}"): ((), {"200": "Events of AG-UI.", "409": "The thread is busy, or asks nothing."}),
    ("GET", "/ag-ui/threads/{thread}/connect"): (
        ("run", "protocolVersion"),
        {"200": "Events of AG-UI, from where the run stands."},
    ),
    ("POST", "/ag-ui/threads/{thread}/stop"): (
        ("wait",),
        {"202": "The run was asked to stop.", "200": "It has stopped.", "204": "No run is running."},
    ),
}
"""The same, for AG-UI."""
_UI_MESSAGES: Final = "/ai-sdk/chat/{thread}/messages"
_STREAMS: Final = ("/events", "/ai-sdk/chat", "/stream", "/ag-ui/agents/{graph}", "/connect")
"""The ends of the paths that answer with server-sent events."""
_OF_RUN: Final = {"run": "get /runs/{run}", "events": "get /runs/{run}/events", "stop": "post /runs/{run}/stop"}
"""What can be done next with a run that has begun: the name of a link, and its operation."""
_ALWAYS: Final = {"403": "Not for this client.", "404": "Unknown, or hidden.", "422": "Not understood.", "503": "Away."}
_BODY: Final = {"400": "Not JSON.", "408": "Too slow.", "413": "Too large.", "415": "Not sent as JSON."}


def document(table: Mapping[str, Mapping[str, Any]], root_path: str = "") -> dict[str, Any]:
    """Return the document of an application whose handlers stand by path and method in `table`."""
    return {
        "openapi": "3.1.0",
        "info": {"title": "langchain-runjournal", "version": "1", "description": "Runs and threads of a journal."},
        "servers": [{"url": root_path or "/"}],
        "paths": {
            path: {method.lower(): _operation(method, path, handler) for method, handler in methods.items()}
            for path, methods in table.items()
        },
        "components": {"schemas": {"Problem": _PROBLEM, "Start": _START, "Chat": _CHAT, "RunAgentInput": _RUN_INPUT}},
    }


def _operation(method: str, path: str, handler: Any) -> dict[str, Any]:
    schema: Mapping[str, Any] | None
    of_langgraph = path.startswith(langgraph.PREFIX)
    if of_langgraph:
        (queries, answers), schema = langgraph.answers_of(method, path), langgraph.body_of(method, path)
    else:
        queries, answers = {**_NATIVE, **_AI_SDK, **_AG_UI}.get((method, path), ((), {"200": "The answer."}))
        schema = _BODIES.get((method, path))
    known, has_body = (langgraph.QUERIES if of_langgraph else _QUERIES), schema is not None
    names = _PARAMETER.findall(path)
    found: dict[str, Any] = {
        "operationId": f"{method.lower()} {path}",
        "summary": (inspect.getdoc(handler) or "").partition("\n")[0],
        "parameters": [
            *({"name": name, "in": "path", "required": True, "schema": _of_path(name, of_langgraph)} for name in names),
            *({"name": name, "in": "query", **known[name]} for name in queries),
        ],
        "responses": {
            status: _response(status, what, path)
            for status, what in {**_ALWAYS, **(_BODY if has_body else {}), **answers}.items()
        },
    }
    if schema is not None:
        is_needed = not of_langgraph or "required" in schema
        found["requestBody"] = {"required": is_needed, "content": {"application/json": {"schema": schema}}}
    return found


def _of_path(name: str, of_langgraph: bool) -> Mapping[str, Any]:
    return langgraph.parameter(name) if of_langgraph else _TEXT


def _response(status: str, what: str, path: str) -> dict[str, Any]:
    if status == "204":
        return {"description": what}
    kind: str = "application/json"
    schema: dict[str, Any] = {"type": "object"}
    if status >= "400":
        kind, schema = "application/problem+json", {"$ref": "#/components/schemas/Problem"}
    elif path.startswith(langgraph.PREFIX) and not path.endswith(_STREAMS):
        schema = {}
    elif path == _UI_MESSAGES:
        schema = {"type": "array", "items": {"type": "object"}}
    elif path.endswith(_STREAMS):
        return {"description": what, "content": {"text/event-stream": {}}}
    found: dict[str, Any] = {"description": what, "content": {kind: {"schema": schema}}}
    if status == "201":
        found["links"] = {
            name: {"operationId": operation, "parameters": {"run": "$response.body#/run_id"}}
            for name, operation in _OF_RUN.items()
        }
    return found
