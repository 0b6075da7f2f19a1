"""Starts: what a client sends to begin a run, checked, and the run.

Rule: the thread has the history. A client adds a message, or answers a question; it cannot write what a model or a tool
said, nor change a message that is there, nor choose a checkpoint, nor configure more than the program allows.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import UUID, uuid4, uuid5

from langchain_core.messages import HumanMessage
from langgraph.types import Command

from ..capture.graph_identity import identity, identity_of
from ..errors import InvalidArgument, RunJournalError, RunNotFound
from ..events import Run, RunStatus
from ..runs.admission import AnotherWaits, IfBusy
from ..runs.start import start_answer
from .problems import Problem
from .requests import Limits, only, run_uuid
from .threads import Fork, fork_before, open_questions

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig

    from .service import Graph, Service

_MEMBERS: Final = ("input", "command", "run_id", "if_busy", "graph", "before", "config")
_COMMAND: Final = ("resume", "continues")
_CONFIG: Final = ("configurable", "metadata")
_HUMAN: Final = ("human", "user")
_QUESTION: Final = re.compile(r"[0-9a-f]{32}")
"""The id of a question, as LangGraph makes it."""
_IF_BUSY: Final = ("reject", "stop", "wait")
_RESERVED: Final = ("runjournal", "langgraph_", "__", "thread_id", "run_id", "checkpoint_", "ls_")
"""Prefixes of metadata that belongs to this package, to LangGraph or to LangChain."""
_NOT_TAKEN: Final = "The graph does not take this. Check the input against the state of the graph."
_NOT_OPEN: Final = "No question of the thread waits for this answer. Read the messages of the thread."
_STREAM_MODE: Final = ["messages", "custom"]
"""So that models stream which nodes call by `ainvoke`, and so that a stream writer writes. The server reads no chunks: the
journal has everything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A checked request to begin a run."""

    run_id: UUID
    is_named: bool
    """Whether the client chose the run id, so that the request may be a repetition."""
    graph: Graph
    input: Any
    if_busy: IfBusy
    before: str | None = None
    continues: str | None = None
    """Of an answer: the run whose question it answers, if the client says so."""
    questions: Sequence[str] = ()
    """Of an answer: the ids of the questions that it names."""
    config: Mapping[str, Any]
    message_ids: Sequence[str] = ()
    """Ids that the client chose for its messages. No message of the thread may have them."""


def parse_start(body: Mapping[str, Any], service: Service) -> Start:
    """Return the start that a body asks for. Raise a `Problem`."""
    only(body, _MEMBERS)
    chosen = run_uuid(body.get("run_id"))
    run_id = chosen or uuid4()
    if_busy = body.get("if_busy", "reject")
    if if_busy not in _IF_BUSY:
        raise Problem(422, '"if_busy" must be "reject", "stop" or "wait".')
    before = body.get("before")
    if before is not None and (not isinstance(before, str) or not 0 < len(before) <= service.limits.id):
        raise Problem(422, '"before" must be the id of a message of the thread.')
    command, given = body.get("command"), body.get("input")
    if sum((command is not None, given is not None)) > 1 or (command is None and given is None and before is None):
        raise Problem(422, 'Send either "input" with a new message, or "command" with the answer to a question.')
    about: dict[str, Any] = {"run_id": run_id, "is_named": chosen is not None, "if_busy": if_busy, "before": before}
    about |= {"graph": service.graph_named(body.get("graph")), "config": _config(body.get("config"), service)}
    if command is not None:
        if before is not None or if_busy != "reject":
            raise Problem(422, 'An answer goes with neither "before" nor "if_busy".')
        resume, continues = _command(command)
        return Start(input=Command(resume=resume), continues=continues, questions=_named(resume), **about)
    found, ids = _input(given, run_id, service.limits)
    return Start(input=found, message_ids=ids, **about)


def _command(command: Any) -> tuple[Any, str | None]:
    if not isinstance(command, dict) or "resume" not in command:
        # `goto` and `update` would let a client write whatever it likes into the thread.
        raise Problem(422, '"command" must be an object with "resume", the answer to the question of a run.')
    only(command, _COMMAND, '"command"')
    continues = command.get("continues")
    if continues is not None and not isinstance(continues, str):
        raise Problem(422, '"continues" must be the id of the run that asked.')
    return command["resume"], continues


def _named(resume: Any) -> list[str]:
    """Return the ids of the questions that an answer names. LangGraph takes an object with such keys for answers by id."""
    names = list(resume) if isinstance(resume, dict) else []
    return names if names and all(_QUESTION.fullmatch(one) for one in names) else []


def _config(config: Any, service: Service) -> dict[str, Any]:
    if config is None:
        return {}
    if not isinstance(config, dict):
        raise Problem(422, '"config" must be an object.')
    only(config, _CONFIG, '"config"')
    found: dict[str, Any] = {}
    for key in _CONFIG:
        value = config.get(key, {})
        if not isinstance(value, dict):
            raise Problem(422, f'"{key}" of "config" must be an object.')
        found[key] = value
    only(found["configurable"], service.configurable, '"configurable"')
    if taken := [name for name in found["metadata"] if name.startswith(_RESERVED)]:
        raise Problem(422, f'"metadata" must not have "{taken[0][:40]}": this name is reserved.')
    return found


def _input(given: Any, run_id: UUID, limits: Limits) -> tuple[Any, list[str]]:
    if given is None:
        return None, []  # run again from `before` on
    if not isinstance(given, dict) or not given:
        raise Problem(422, '"input" must be an object, such as {"messages": [{"role": "user", "content": "Hello"}]}.')
    if "messages" not in given:
        return given, []
    messages = given["messages"]
    if not isinstance(messages, list) or not messages:
        raise Problem(422, '"messages" must be a list with the new message.')
    read = [_message(one, uuid5(run_id, str(at)), limits) for at, one in enumerate(messages)]
    chosen = [one["id"] for one in messages if one.get("id") is not None]
    return {**given, "messages": read}, chosen


def _message(given: Any, fresh: UUID, limits: Limits) -> HumanMessage:
    """Return the message of a human that a client sends."""
    if not isinstance(given, dict):
        raise Problem(422, 'A message must be an object, such as {"role": "user", "content": "Hello"}.')
    only(given, ("role", "type", "content", "id"), "A message")
    if any(given.get(key, "user") not in _HUMAN for key in ("role", "type")):
        raise Problem(422, 'A client may send messages with "role": "user" only: the thread has all others.')
    content, id = given.get("content"), given.get("id")
    blocks = content if isinstance(content, list) else [{"type": "text"}]
    if not isinstance(content, (str, list)) or not all(
        isinstance(one, dict) and isinstance(one.get("type"), str) for one in blocks
    ):
        raise Problem(422, 'The "content" of a message must be a text, or a list of content blocks.')
    if id is not None and (not isinstance(id, str) or not 0 < len(id) <= limits.id):
        raise Problem(422, f'The "id" of a message must be a text of 1 to {limits.id} characters.')
    return HumanMessage(content=cast("Any", content), id=id or str(fresh))


async def begin_run(service: Service, thread_id: str, start: Start) -> tuple[str, bool]:
    """Begin a run, unless it has begun. Return its id, and whether this call began it. Raise a `Problem`."""
    run_id = str(start.run_id)
    if not start.is_named:
        await _start(service, thread_id, start)
        return run_id, True
    while (other := service.starting.get(run_id)) is not None:
        await asyncio.wait([other])
    if await _has_begun(service, thread_id, run_id):
        return run_id, False
    mine = service.starting[run_id] = asyncio.get_running_loop().create_future()
    try:
        await _start(service, thread_id, start)
    except InvalidArgument:
        # Another process has begun it meanwhile.
        if not await _has_begun(service, thread_id, run_id):
            raise Problem(422, _NOT_TAKEN) from None
        return run_id, False
    finally:
        service.starting.pop(run_id, None)
        mine.set_result(None)
    return run_id, True


async def _has_begun(service: Service, thread_id: str, run_id: str) -> bool:
    try:
        if (await service.journal.arun(run_id)).thread_id == thread_id:
            return True
    except RunNotFound:
        # A client that repeats an old request must not bring a deleted conversation back.
        if not await service.off_loop(lambda: service.was_deleted(run_id)):
            return False
    raise Problem(409, "This run id is taken. Choose a new one for each run.")


async def _start(service: Service, thread_id: str, start: Start) -> None:
    waiting = await _waiting(service, thread_id)
    given, answers = start.input, None
    if isinstance(given, Command):
        given = await _answer(service, start, waiting)
        answers = None if waiting is None else waiting.run_id
    fork = await _fork(thread_id, start, waiting)
    configurable = {**start.config.get("configurable", {}), "thread_id": thread_id}
    if fork is not None and fork.checkpoint_id is not None:
        configurable["checkpoint_id"] = fork.checkpoint_id
    config: RunnableConfig = {"configurable": configurable, "run_id": start.run_id}
    if start.config.get("metadata"):
        config["metadata"] = dict(start.config["metadata"])
    about: Any = {"journal": service.journal, "if_busy": start.if_busy, "stream_mode": _STREAM_MODE}
    try:
        await start_answer(answers, start.graph, given, config, **about)
    except AnotherWaits:
        raise Problem(409, _NOT_OPEN) from None
    except RunJournalError:
        raise
    except (TypeError, ValueError, LookupError) as exc:
        raise Problem(422, _NOT_TAKEN) from exc


async def _answer(service: Service, start: Start, waiting: Run | None) -> Command[Any]:
    """Return the answer as the graph takes it. Raise a `Problem` if it is not the answer to a question that is open."""
    if waiting is None or start.continues not in (None, waiting.run_id):
        raise Problem(409, _NOT_OPEN)
    if not identity(start.graph).is_same(identity_of(waiting)):
        raise Problem(409, "The question was asked by another graph. Name that graph.")
    is_open = [one.get("id") for one in await open_questions(service, waiting) if isinstance(one, Mapping)]
    if not set(start.questions) <= set(is_open):
        raise Problem(409, _NOT_OPEN)
    resume = start.input.resume
    if resume is None or resume == {}:
        # LangGraph would take these for no answer at all.
        if len(is_open) != 1:
            raise Problem(422, "Several questions are open. Give the answers by the ids of their questions.")
        resume = {is_open[0]: resume}
    return Command(resume=resume)


async def _fork(thread_id: str, start: Start, waiting: Run | None) -> Fork | None:
    """Return where to begin, if not at the end of the thread. Check what only the thread knows."""
    if start.before is not None and waiting is not None:
        raise Problem(409, "A run of the thread waits for an answer. Answer it, or send a new message.")
    if start.before is None and not start.message_ids:
        return None
    return await fork_before(start.graph, thread_id, start.before, start.message_ids, is_again=start.input is None)


async def _waiting(service: Service, thread_id: str) -> Run | None:
    """Return the run of the thread that waits for a human, or None."""
    found = await service.journal.aruns(thread_id, RunStatus.PAUSED, 1)
    return found[0] if found else None
