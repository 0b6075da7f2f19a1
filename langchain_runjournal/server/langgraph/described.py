"""Pure: what the description of all paths says of the LangGraph API: queries, bodies and answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

PREFIX: Final = "/langgraph"
_TEXT: Final = {"type": "string"}
_OBJECT: Final = {"type": "object"}
_FLAG: Final = {"enum": ["true", "false", "1", "0"]}
_ID: Final = {"type": "string", "format": "uuid"}
QUERIES: Final[Mapping[str, Mapping[str, Any]]] = {
    "subgraphs": {"schema": _FLAG, "description": "Read the states of subgraphs as well."},
    "select": {"schema": _TEXT, "description": "The members of the answer that are wanted, with commas between them."},
    "limit": {"schema": {"type": "integer", "minimum": 1}, "description": "How many, at most; more than 1,000 mean 1,000."},
    "offset": {"schema": {"type": "integer", "minimum": 0}, "description": "How many to leave out first."},
    "status": {"schema": _TEXT, "description": "The status of the runs that are wanted."},
    "before": {"schema": _TEXT, "description": "The id of a checkpoint: the states behind which the history goes on."},
    "xray": {"schema": _TEXT, "description": "`true`, or how deeply: draw the subgraphs as well."},
    "recurse": {"schema": _FLAG, "description": "Also the subgraphs of subgraphs."},
    "wait": {"schema": _FLAG, "description": "Answer when the run is over."},
    "action": {"schema": {"enum": ["interrupt", "rollback"]}, "description": "Whether the checkpoints of the run stay."},
    "stream_mode": {"schema": _TEXT, "description": "The modes of the run that are wanted."},
    "cancel_on_disconnect": {"schema": _FLAG, "description": "Cancel the run when this client leaves."},
}
"""The query parameters. The clients send further ones, which have no effect."""
_STATE: Final = ("subgraphs", "select")
_HISTORY: Final = ("limit", "before", "select")
_BUSY: Final = "A run is running or waits to begin."
_ANSWERS: Final[Mapping[tuple[str, str], tuple[tuple[str, ...], Mapping[str, str]]]] = {
    ("POST", "/threads"): ((), {"200": "The thread.", "409": "It exists."}),
    ("POST", "/threads/search"): ((), {"200": "The threads; `X-Pagination-Total` says how many match."}),
    ("PATCH", "/threads/{thread}"): ((), {"200": "The thread.", "204": "With `Prefer: return=minimal`."}),
    ("DELETE", "/threads/{thread}"): ((), {"204": "Deleted."}),
    ("GET", "/threads/{thread}/state"): (_STATE, {"200": "The state; an empty one if nothing has run."}),
    ("GET", "/threads/{thread}/state/{checkpoint}"): (_STATE, {"200": "The state."}),
    ("POST", "/threads/{thread}/state"): ((), {"200": "Where the new state is.", "409": _BUSY}),
    ("GET", "/threads/{thread}/history"): (_HISTORY, {"200": "The states, the newest first."}),
    ("GET", "/threads/{thread}/runs"): (("limit", "offset", "status", "select"), {"200": "The runs, the newest first."}),
    ("POST", "/threads/{thread}/runs"): ((), {"200": "The run.", "409": _BUSY}),
    ("POST", "/threads/{thread}/runs/wait"): ((), {"200": "The values, or `__error__`.", "409": _BUSY}),
    ("POST", "/threads/{thread}/runs/stream"): ((), {"200": "Server-sent events.", "409": _BUSY}),
    ("GET", "/threads/{thread}/runs/{run}/stream"): (
        ("stream_mode", "cancel_on_disconnect"),
        {"200": "Server-sent events."},
    ),
    ("DELETE", "/threads/{thread}/runs/{run}"): ((), {"204": "Deleted.", "409": "It is running."}),
    ("POST", "/threads/{thread}/runs/{run}/cancel"): (
        ("wait", "action"),
        {"202": "It was asked to stop.", "200": "It has stopped."},
    ),
    ("POST", "/runs/cancel"): (("action",), {"204": "They were asked to stop.", "202": "They were asked to stop."}),
    ("GET", "/assistants/{assistant}/graph"): (("xray",), {"200": "Nodes and edges."}),
    ("GET", "/assistants/{assistant}/subgraphs"): (("recurse",), {"200": "The schemas, by namespace."}),
    ("GET", "/assistants/{assistant}/subgraphs/{namespace}"): (("recurse",), {"200": "The schemas, by namespace."}),
}
_NOT_SENT: Final = ("/copy", "/cancel")
"""The ends of paths whose POST has no body."""


def answers_of(method: str, path: str) -> tuple[tuple[str, ...], Mapping[str, str]]:
    """Return the query parameters of a path, and the answers beside those that every path has."""
    return _ANSWERS.get((method, path.removeprefix(PREFIX)), ((), {"200": "The answer."}))


def body_of(method: str, path: str) -> dict[str, Any] | None:
    """Return the schema of a body, or None without one. What a graph takes is in the schemas of its assistant."""
    if method not in ("POST", "PATCH") or path.endswith(_NOT_SENT):
        return None
    if path.removeprefix(PREFIX).partition("/runs")[1] and not path.endswith("/runs/cancel"):
        properties = {"assistant_id": _TEXT, "config": _OBJECT, "metadata": _OBJECT}
        return {"type": "object", "required": ["assistant_id"], "properties": properties}
    return {"type": "object"}


def parameter(name: str) -> dict[str, Any]:
    """Return the schema of an id in a path."""
    return dict(_ID if name in ("thread", "run") else _TEXT)
