"""Pure: the requests of runs: what a body asks for, checked, and the form in which a request is stored until it begins.

Rule: an option that this server cannot do is refused and named. An input that is absent continues the thread, and an empty
one begins anew: the two are never mixed up.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from ...errors import InvalidArgument

MODES: Final = ("values", "updates", "messages", "messages-tuple", "custom", "tasks", "checkpoints", "debug", "events")
STRATEGIES: Final = ("enqueue", "reject", "interrupt", "rollback")
_DURABILITY: Final = ("sync", "async", "exit")
_RESERVED: Final = (
    "thread_id",
    "run_id",
    "checkpoint_",
    "graph_id",
    "assistant_id",
    "langgraph_",
    "task_id",
    "user_id",
    "__",
    "x-",
)
"""Prefixes of the keys of `configurable` that clients send by themselves. None of them configures a graph."""
_OF_METADATA: Final = (*_RESERVED, "runjournal", "ls_")
"""Prefixes of metadata that belongs to this package, to LangGraph or to LangChain, and is not handed to them."""
_REFUSED: Final = {
    "webhook": "left out: this server calls no webhooks. Join the run, or read its stream",
    "langsmith_tracer": "left out: the tracing of this server is configured where it runs",
    "feedback_keys": "left out: this server has no feedback",
}
_KNOWN: Final = frozenset((
    "input", "command", "stream_mode", "stream_subgraphs", "stream_resumable", "config", "context", "metadata",
    "interrupt_before", "interrupt_after", "checkpoint", "checkpoint_id", "checkpoint_during", "durability",
    "multitask_strategy", "on_disconnect", "on_completion", "after_seconds", "assistant_id", "if_not_exists", "thread_id",
    "strict_resume", *_REFUSED,
))  # fmt: skip
_CONFIG: Final = ("configurable", "metadata", "tags", "recursion_limit", "max_concurrency")
_IGNORED_CONFIG: Final = ("run_id", "run_name", "callbacks")
_HUMAN: Final = ("human", "user")
_MOST_STEPS: Final = 10_000
_LONGEST: Final = 366 * 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """A run that a client has asked for. It is stored before the client hears of it. Times are seconds since 1970."""

    run_id: str
    thread_id: str
    graph: str
    assistant_id: str
    created_at: float
    modes: tuple[str, ...] = ("values",)
    subgraphs: bool = False
    resumable: bool = False
    on_disconnect: str = "continue"
    multitask: str = "enqueue"
    metadata: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    context: Mapping[str, Any] | None = None
    input: Any = None
    has_input: bool = False
    command: Mapping[str, Any] | None = None
    checkpoint: Mapping[str, Any] | None = None
    interrupt_before: Any = None
    interrupt_after: Any = None
    durability: str | None = None
    not_before: float = 0.0
    """When the run may begin (`after_seconds`)."""
    answers: str | None = None
    """Of an answer: the paused run that was waiting for it when the client sent it."""
    temporary: bool = False
    """Whether the thread is deleted after the run (a stateless run)."""
    over: Mapping[str, Any] | None = None
    """How a request ended that never began: its `status`, and its `error` if it has one."""
    before: Mapping[str, Any] | None = None
    """Of a run that continues from a checkpoint: what stood beside that one before, for a rollback."""
    rolled_back: float | None = None
    """When a rollback of the run was asked for. From then on, clients do not find the run."""

    def to_json(self) -> dict[str, Any]:
        """Return the value of the record."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> RunRequest:
        """Return the request in a record. What a later release has added is left out."""
        known = {one.name for one in fields(cls)}
        found = {name: one for name, one in value.items() if name in known}
        return cls(**{**found, "modes": tuple(found.get("modes") or ("values",))})

    @property
    def continues(self) -> bool:
        """Whether the run continues from its checkpoint, without an input."""
        return self.command is None and not self.has_input


def parse_run(body: Mapping[str, Any], *, allowed: Collection[str], now: float, **about: Any) -> RunRequest:
    """Return the run that a body asks for. Raise `InvalidArgument`.

    `allowed`: the keys of `configurable` and `context` that a client may set. `about`: the fields that the body does not
    decide, such as `run_id`.
    """
    for name, expected in _REFUSED.items():
        if body.get(name) not in (None, False, [], {}):
            raise _refused(name, expected, body[name])
    _one_of("if_not_exists", body.get("if_not_exists"), ("create", "reject"))
    command = _command(body.get("command"))
    config, named = _config(body.get("config"), allowed)
    context = _context(body.get("context"), allowed)
    if context:
        config["configurable"] = {**config.get("configurable", {}), **context}
    delay = _seconds("after_seconds", body.get("after_seconds"))
    return RunRequest(
        created_at=now,
        modes=modes_of(body.get("stream_mode")),
        subgraphs=_flag("stream_subgraphs", body.get("stream_subgraphs")),
        resumable=_flag("stream_resumable", body.get("stream_resumable")),
        on_disconnect=_one_of("on_disconnect", body.get("on_disconnect"), ("continue", "cancel")),
        multitask=_one_of("multitask_strategy", body.get("multitask_strategy"), STRATEGIES),
        metadata=_object("metadata", body.get("metadata")) or {},
        config=config,
        context=context,
        input=body.get("input") if command is None else None,
        has_input=body.get("input") is not None and command is None,
        command=command,
        checkpoint=_checkpoint(body, named),
        interrupt_before=_nodes("interrupt_before", body.get("interrupt_before")),
        interrupt_after=_nodes("interrupt_after", body.get("interrupt_after")),
        durability=_durability(body),
        not_before=now + delay if delay else 0.0,
        temporary=_one_of("on_completion", body.get("on_completion"), ("delete", "keep", "complete", "continue"))
        == "delete",
        **about,
    )


def unknown_members(body: Mapping[str, Any]) -> list[str]:
    """Return the options of a body that this server does not know, and that a newer client has set."""
    return sorted(name for name, value in body.items() if name not in _KNOWN and value not in (None, False, [], {}))


def modes_of(given: Any) -> tuple[str, ...]:
    """Return the stream modes that a client names, by a string or a list. Raise `InvalidArgument`."""
    named = [given] if isinstance(given, str) else given
    if named is None or named == []:
        return ("values",)
    if not isinstance(named, list) or not all(isinstance(one, str) and one in MODES for one in named):
        raise _refused("stream_mode", f"one or several of {', '.join(MODES)}", given)
    return tuple(dict.fromkeys(named))


def needs_update(body: Mapping[str, Any]) -> bool:
    """Return whether a body writes more than new messages of the user: then it needs the right to "update" the thread."""
    command, given, config = body.get("command"), body.get("input"), body.get("config")
    if isinstance(command, Mapping) and (command.get("update") is not None or command.get("goto")):
        return True
    if body.get("multitask_strategy") == "rollback":
        return True  # it deletes the checkpoints of another run
    configurable = config.get("configurable") if isinstance(config, Mapping) else None
    if any(isinstance(one, Mapping) and one.get("checkpoint_id") for one in (body, body.get("checkpoint"), configurable)):
        return True
    if given is None or given == {} or command is not None:
        return False
    if not isinstance(given, Mapping) or set(given) != {"messages"}:
        return True
    messages = given["messages"]
    return not all(map(_is_human, messages if isinstance(messages, list) else [messages]))


def message_ids(request: RunRequest) -> list[str]:
    """Return the ids that a client chose for its messages."""
    return [one["id"] for one in _messages(request.input) if isinstance(one, Mapping) and isinstance(one.get("id"), str)]


def with_ids(given: Any, make: Any) -> Any:
    """Return an input whose messages all have ids, so that they are the same in the streams and in the thread.

    `make`: returns an id for the place of a message.
    """
    if not isinstance(given, Mapping) or not isinstance(given.get("messages"), list):
        return given
    messages = [
        {**one, "id": make(at)} if isinstance(one, Mapping) and one.get("id") is None else one
        for at, one in enumerate(given["messages"])
    ]
    return {**given, "messages": messages}


def metadata_for_graph(request: RunRequest) -> dict[str, Any]:
    """Return the metadata that the calls of the graph carry."""
    found = {**request.config.get("metadata", {}), **request.metadata}
    return {name: value for name, value in found.items() if not name.startswith(_OF_METADATA)}


def _messages(given: Any) -> list[Any]:
    messages = given.get("messages") if isinstance(given, Mapping) else None
    return messages if isinstance(messages, list) else []


def _is_human(message: Any) -> bool:
    if isinstance(message, str):
        return True
    return isinstance(message, Mapping) and message.get("role", message.get("type")) in _HUMAN


def _refused(name: str, expected: str, value: Any) -> InvalidArgument:
    return InvalidArgument(name=f'"{name}"', expected=expected, value=value)


def _one_of(name: str, value: Any, known: Collection[str]) -> str:
    """Return one of the known values; the first one if none is given."""
    if value is None:
        return next(iter(known))
    if value not in known:
        raise _refused(name, f"one of {', '.join(known)}", value)
    return str(value)


def _flag(name: str, value: Any) -> bool:
    if value not in (None, True, False):
        raise _refused(name, "true or false", value)
    return bool(value)


def _object(name: str, value: Any) -> dict[str, Any] | None:
    if value is not None and not isinstance(value, dict):
        raise _refused(name, "an object", value)
    return value


def _seconds(name: str, value: Any) -> float:
    if value is None:
        return 0.0
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= _LONGEST:
        raise _refused(name, "a number of seconds, 0 or more", value)
    return float(value)


def _nodes(name: str, value: Any) -> Any:
    if value in (None, [], "*"):
        return value or None
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise _refused(name, 'a list of the names of nodes, or "*"', value)
    return value


def _durability(body: Mapping[str, Any]) -> str | None:
    chosen, during = body.get("durability"), body.get("checkpoint_during")
    if chosen is not None:
        return _one_of("durability", chosen, _DURABILITY)
    return None if during is None else "async" if _flag("checkpoint_during", during) else "exit"


def _command(value: Any) -> dict[str, Any] | None:
    given = _object("command", value)
    if given is None or all(one is None for one in given.values()):
        return None if not given or "resume" not in given else {"resume": None}
    if unknown := sorted(set(given) - {"resume", "goto", "update"}):
        raise _refused("command", "an object with resume, goto or update", unknown[0])
    goto = given.get("goto")
    for one in goto if isinstance(goto, list) else [goto]:
        is_send = isinstance(one, Mapping) and isinstance(one.get("node"), str)
        if one is not None and not isinstance(one, str) and not is_send:
            raise _refused("goto", 'the name of a node, {"node", "input"}, or a list of them', one)
    update = given.get("update")
    if update is not None and not isinstance(update, (dict, list)):
        raise _refused("update", "an object, or a list of pairs", update)
    return {name: one for name, one in given.items() if one is not None or name == "resume"}


def _config(value: Any, allowed: Collection[str]) -> tuple[dict[str, Any], Mapping[str, Any]]:
    """Return the config that the graph gets, and `configurable` as the client sent it."""
    given = _object("config", value) or {}
    for name, one in given.items():
        if name not in (*_CONFIG, *_IGNORED_CONFIG) and one not in (None, [], {}):
            raise _refused("config", f"an object with {', '.join(_CONFIG)}", name)
    found: dict[str, Any] = {}
    named = _object("configurable", given.get("configurable")) or {}
    if configurable := _configurable(named, allowed):
        found["configurable"] = configurable
    if metadata := _object("metadata", given.get("metadata")):
        found["metadata"] = metadata
    if tags := given.get("tags"):
        if not isinstance(tags, list) or not all(isinstance(one, str) for one in tags):
            raise _refused("tags", "a list of texts", tags)
        found["tags"] = tags
    for name in ("recursion_limit", "max_concurrency"):
        number = given.get(name)
        if number is not None:
            if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= _MOST_STEPS:
                raise _refused(name, f"a number from 1 to {_MOST_STEPS}", number)
            found[name] = number
    return found, named


def _configurable(named: Mapping[str, Any], allowed: Collection[str], where: str = "configurable") -> dict[str, Any]:
    """Return the keys that configure the graph. Those that clients send by themselves are left out; any other is refused."""
    found = {}
    for name, value in named.items():
        if name in allowed:
            found[name] = value
        elif not name.startswith(_RESERVED) and value is not None:
            hint = f"Give create_app(configurable=[{name!r}]), or declare it in the context schema of the graph"
            raise InvalidArgument(name=f'"{where}.{name}"', expected=f"left out, or allowed. {hint}", value=value)
    return found


def _context(value: Any, allowed: Collection[str]) -> dict[str, Any] | None:
    given = _object("context", value)
    return None if given is None else _configurable(given, allowed, "context")


def _checkpoint(body: Mapping[str, Any], named: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the checkpoint from which the run begins; None for the newest one of the thread."""
    given = _object("checkpoint", body.get("checkpoint")) or {}
    chosen = given.get("checkpoint_id") or body.get("checkpoint_id") or named.get("checkpoint_id")
    if given.get("checkpoint_ns") and chosen:
        # LangGraph begins a run of a graph, and not of one inside of it.
        hint = "the namespace of the outermost graph. Update the state of a subgraph by POST /threads/{thread}/state"
        raise _refused("checkpoint_ns", hint, given["checkpoint_ns"])
    if chosen is None:
        return None
    if not isinstance(chosen, str) or not re.fullmatch(r"[\w.:-]{1,200}", chosen):
        raise _refused("checkpoint_id", "the id of a checkpoint", chosen)
    return {"checkpoint_id": chosen}
