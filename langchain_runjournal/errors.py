"""Every exception of this package.

The docstring of a class is its message: the fact first, then what to do. The values that fill it are attributes of
the exception, so that a program can act on them without parsing text.

In a docstring, ``{refused:event}`` is "1 event" or "2 events", ``{refused:was|were}`` the word that fits,
``{run_ids!r:run}`` "run 'a'" or "runs 'a' and 'b'", and ``{problems:;}`` a list with semicolons. A sentence that counts 0,
lists nothing or names None is left out.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass
from string import Formatter
from typing import Any, Final

__all__ = [
    "AnswerCut",
    "ArgumentsConflict",
    "CallCut",
    "CheckpointFenced",
    "ChunksGone",
    "EventUnusable",
    "EventsLost",
    "EventsMissing",
    "ExtraMissing",
    "FlushTimeout",
    "ForeignDatabase",
    "InvalidArgument",
    "JournalClosed",
    "JournalClosing",
    "LeaseExpired",
    "NoMessages",
    "NotADatabase",
    "NotAttachable",
    "NothingToResume",
    "RedactionFailed",
    "RequestRefused",
    "RunAbandoned",
    "RunAtWork",
    "RunFenced",
    "RunIdTaken",
    "RunJournalError",
    "RunNotFound",
    "ScriptEnded",
    "SeqGap",
    "SettlementTimeout",
    "SpoolDirUnusable",
    "SpoolUnusable",
    "StopTimeout",
    "StoreClosed",
    "StoreCorrupt",
    "StoreExposed",
    "StoreFailed",
    "StoreIsDirectory",
    "StoreNotWritable",
    "StoreTooNew",
    "StoreUnreachable",
    "StoreUnusable",
    "ThreadBusy",
    "ToolPairBroken",
    "UnknownOption",
    "UnknownStore",
    "WouldDeadlock",
    "WriteFailed",
]

_LONGEST: Final = 200
"""Characters of a value's repr in a message: a value may be a whole graph, or a conversation."""


class RunJournalError(Exception):
    """The journal could not do what was asked."""

    def __init__(self, **values: Any) -> None:
        self.values = values
        super().__init__(self._text(values))

    def __getattr__(self, name: str) -> Any:
        # Only reached for names that are not real attributes: the values of the message.
        values = self.__dict__.get("values", {})
        if name in values:
            return values[name]
        raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.values)

    @classmethod
    def _text(cls, values: dict[str, Any]) -> str:
        # `python -OO` strips docstrings: then the name and the values have to do.
        if cls.__doc__ is None:
            return f"{cls.__name__}: {values}"
        given = {"hint": getattr(cls, "_hint", None), **values}
        sentences = _BETWEEN_SENTENCES.split(" ".join(inspect.cleandoc(cls.__doc__).split()))
        return " ".join(_WORDS.vformat(one, (), given) for one in sentences if not _WORDS.is_empty(one, given))


def _rebuild(cls: type[RunJournalError], values: dict[str, Any]) -> RunJournalError:
    return cls(**values)


class _Words(Formatter):
    """Fills sentences: numbers agree with their nouns and verbs, and lists read as lists."""

    def convert_field(self, value: Any, conversion: Any) -> Any:
        return _Quoted(value) if conversion == "r" else super().convert_field(value, conversion)

    def format_field(self, value: Any, format_spec: str) -> Any:
        quote = _quoted if isinstance(value, _Quoted) else str
        value = value.value if isinstance(value, _Quoted) else value
        if not format_spec:
            return quote(value)
        if isinstance(value, int):
            one, bar, many = format_spec.partition("|")
            word = one if value == 1 else many if bar else f"{one}s"
            return word if bar else f"{value} {word}"
        items = [quote(one) for one in ([value] if isinstance(value, str) else value)]
        if format_spec in (",", ";"):
            return f"{format_spec} ".join(items)
        word = self.format_field(len(items), format_spec)
        joined = " and ".join([*filter(None, [", ".join(items[:-1])]), *items[-1:]])
        return word if "|" in format_spec else f"{word.partition(' ')[2]} {joined}"

    def is_empty(self, sentence: str, values: Mapping[str, Any]) -> bool:
        """Whether a sentence counts 0, lists nothing or names None."""
        fields = [(values[name], spec, conversion) for _, name, spec, conversion in self.parse(sentence) if name]
        return any(not value if spec else value is None and not conversion for value, spec, conversion in fields)


@dataclass(frozen=True, slots=True)
class _Quoted:
    """A value that is shown as its repr."""

    value: Any


def _quoted(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


_WORDS: Final = _Words()
_BETWEEN_SENTENCES: Final = re.compile(r"(?<=[.?)]) (?=[A-Z({`])")


class InvalidArgument(RunJournalError, ValueError):
    """{name} must be {expected}, but {value!r} was given. {hint}."""


class UnknownOption(InvalidArgument):
    """{name} does not know the {unknown!r:{what}}. Did you mean {suggestions!r:,}? It knows: {known!r:,}. {hint}."""

    def __init__(self, **values: Any) -> None:
        from difflib import get_close_matches  # here, because only an error needs it

        unknown, known = list(values["unknown"]), list(values["known"])
        derived = {
            # What every InvalidArgument has, for a program that looks at it.
            "value": unknown[0] if len(unknown) == 1 else ", ".join(unknown),
            "expected": f"one of {', '.join(known)}",
            "suggestions": [one for name in unknown for one in get_close_matches(str(name), known, n=1)],
        }
        super().__init__(**{**values, "unknown": unknown, "known": known, **derived})


class ArgumentsConflict(InvalidArgument):
    """{name} got {found}. Give {expected}. {hint}."""

    value: Any = None
    """What every InvalidArgument has; here it is none of the arguments alone."""


class UnknownStore(RunJournalError, ValueError):
    """The journal cannot open {url!r}: {reason}. Use a path such as "runs.db", a URL such as "sqlite:////var/lib/app/runs.db",
    "postgresql://user@host/database" or "redis://host", or ":memory:" for a journal that ends with the process."""


class StoreIsDirectory(RunJournalError):
    """{path} is a directory. Give the path of a file in it, for example {path}/runs.db."""


class StoreNotWritable(RunJournalError):
    """The journal cannot write to {path}: {reason}. Choose a place that this process may write to: SQLite also needs
    to create files beside the database."""


class NotADatabase(RunJournalError):
    """{path} is not a SQLite database: {reason}. Nothing was changed. Choose another path, or move that file away."""


class ForeignDatabase(RunJournalError):
    """{path} is a SQLite database of another program (its tables: {tables}). Nothing was changed. Give the journal a
    file of its own, for example {suggestion}."""


class StoreTooNew(RunJournalError):
    """{path} was written by a newer langchain-runjournal (schema {found}; this version knows schemas up to {known}).
    Nothing was changed. Upgrade langchain-runjournal to read it."""


class StoreCorrupt(RunJournalError):
    """{path} is damaged: {reason}. Nothing was changed. {hint}."""

    _hint = "Keep a copy, then run `PRAGMA integrity_check` on it, or restore it from a backup"  # of a file


class StoreExposed(RunJournalError):
    """{path} is not safe to use: {reason}. Nothing was changed. Move it into a directory of your own, or give it to this
    user with `chown` and `chmod 600`. To share it with a group, use `chmod g+s` on its directory."""


class SpoolUnusable(RunJournalError):
    """The spool file {path} was not imported: {reason}. Give a spool file of this journal, with "-spool-" in its name."""


class SpoolDirUnusable(RunJournalError):
    """No spool can be kept in {path}: {reason}. Give `spool_dir` an existing directory on a disk of this machine that this
    process may write to."""


class JournalClosed(RunJournalError):
    """The journal {url} is closed. {refused:event} came after that and {refused:was|were} not stored. Open a new
    RunJournal, and close it only when the runs that write to it have ended."""


class JournalClosing(JournalClosed):
    """The journal {url} is being closed and begins no new run. Open a new RunJournal, and close it only when your program
    starts no more runs on it."""


class WriteFailed(RunJournalError):
    """The journal {url} could not be written: {reason}. {waiting:event} {waiting:waits|wait} to be stored, {where}: the
    journal stores {waiting:it|them} as soon as the cause is gone, or, if it is closed, when it is next opened. {lost:event}
    {lost:was|were} lost. Free space, release the lock or start the server, then flush again, or open the journal again."""


class EventsLost(WriteFailed):
    """The journal {url} could not take {lost:event}, and {lost:it is|they are} lost. The log has the reason for each. Give
    `RunJournal.append` an `Event`, with a `str` as its run_id. If this package appended the event itself, report it with
    that log."""


class RedactionFailed(RunJournalError):
    """The redaction of the journal {url} failed {failed:time}, at last with {reason}. The journal stored the events without
    the texts that it was called with. Give `RunJournal(redact=...)` a function that takes every text."""


class FlushTimeout(RunJournalError, TimeoutError):
    """The journal {url} has not stored everything within {timeout} s. No event is lost by that: the writer is still storing
    what was appended. Wait longer, or look for what blocks the store."""


class RunFenced(RunJournalError):
    """The write to {run_ids!r:run} was refused: another journal owns {run_ids:it|them}, or {run_ids:it|they} ended long ago,
    or {run_ids:it was|they were} pruned. {refused:event} {refused:was|were} refused and not stored. Stop working on
    {run_ids:this run|these runs} here, or call `claim` first, which succeeds if the owner is dead."""


class RunIdTaken(RunFenced):
    """The store has {run_ids!r:run} of another journal already. {refused:event} {refused:was|were} refused and not stored.
    Give each new run an id of its own."""


class CheckpointFenced(RunFenced):
    """The checkpoint of {run_ids!r:run} was not written to thread {thread_id!r}: another process took {run_ids:it|them} over
    while this process stood still for longer than its lease, or {run_ids:the run was|the runs were} deleted. The thread
    holds what the other process settled. Stop working on {run_ids:this run|these runs} here: the next message continues
    from what the thread holds."""


class LeaseExpired(CheckpointFenced):
    """The checkpoint of {run_ids!r:run} was not written to thread {thread_id!r}: the store did not answer within the
    lease of {lease} s and 30 s, or the run ended meanwhile. Another process may have taken {run_ids:it|them} over.
    Give `RunJournal` a longer `lease` to survive longer outages. The next message continues from what the thread holds."""


class RunNotFound(RunJournalError, LookupError):
    """The journal {url} has no run {run_id!r}. List its runs with journal.runs(): a run appears there with its first
    event."""


class SeqGap(RunJournalError):
    """Run {run_id} ends at seq {last}, so an append that begins at seq {first} would leave a gap. The store stored nothing
    of it. Number the events of a run 1, 2, 3 without gaps. If they are, the store was emptied or set back."""


class EventsMissing(RunJournalError):
    """Run {run_id} has a gap in {url}: {after} is followed by {found}. This is damage, not a late write: run
    `runjournal check`. Use the `limit` of journal.read to get the events before the gap, and its `after` for those behind
    it."""


class StoreClosed(RunJournalError):
    """The store {url} is closed. Open it again to use it."""


class StoreFailed(RunJournalError):
    """{path} could not be read or written: {reason}. {hint}, then try again."""


class StoreUnreachable(StoreFailed):
    """The server of {path} cannot be reached: {reason}. {hint}, then try again."""


class StoreUnusable(RunJournalError):
    """The journal cannot use {url}: {reason}. {hint}."""


class WouldDeadlock(RunJournalError):
    """Deadlock: the journal {url} would wait for itself {where}. Set an event or start a task there, and wait elsewhere.
    {hint}."""


class EventUnusable(RunJournalError):
    """The store cannot take an event of run {run_id}: {reason}. The journal stores nothing more of this run, so that it
    can store the events of other runs. {refused:event} {refused:was|were} refused. Report this with the event: a store
    should take every value that JSON can hold."""


class ToolPairBroken(RunJournalError, ValueError):
    """Tool calls and results of this history do not match: {problems:;}. Give the missing results as evidence, or have the
    history repaired: dangling="synthesize" for calls without a result, orphans="drop" for results without a call."""


class AnswerCut(RunJournalError):
    """The answer of the model was cut off {times} {times:time|times in a row} inside its tool calls, {calls}: {why}. These
    calls did not run. Set a higher token limit on the model, ask it for smaller steps, or use
    ToolPairGuard(on_cut="retry"), which calls the model again."""


class CallCut(RunJournalError):
    """{said} (Call {call_id} of tool {tool}.) The tool was not run. `ToolNode` turns this error into a tool result, unless
    its handle_tool_errors says otherwise. Where a node of yours calls tools by itself, catch the error there. Give the
    model a ToolMessage with this text."""


class ExtraMissing(RunJournalError, ImportError):
    """{what} needs the package {package}, which is not installed. Use `pip install "langchain-runjournal[{extra}]"`."""


class SettlementTimeout(RunJournalError):
    """Thread {thread_id!r} could not be settled: {what} did not finish within {seconds} s. Nothing was changed. Check the
    checkpointer. The next message of the thread tries again, and so does `RunJournal.recover`."""


class NothingToResume(RunJournalError):
    """Run {run_id} cannot be resumed: {reason}. Give the graph the input of the run once more: `RunJournal.transcript` has
    it."""


class NotAttachable(RunJournalError, TypeError):
    """{what} cannot be attached: {reason}. Give `attach` the compiled LangGraph graph itself, as `compile()` or
    `create_agent` returns it. The graph may get its checkpointer later: LangGraph uses the one that it has when a run
    begins."""


class NoMessages(RunJournalError):
    """{what} cannot take a message: {reason}. Nothing was changed. Use a graph whose state has `messages`, and give the
    graph rather than its checkpointer."""


class ThreadBusy(RunJournalError):
    """Thread {thread_id!r} is busy with run {run_id}. Wait for the run (if_busy="wait"), stop it (if_busy="stop"), or send
    the message again when it has ended."""


class RunAtWork(RunJournalError):
    """Nothing was deleted: {run_ids!r:run} {run_ids:is|are} still running. Stop {run_ids:it|them} first
    (`RunJournal.stop`), or delete with force=True, which stops {run_ids:the run and waits until it has|the runs and waits
    until they have} ended."""


class StopTimeout(RunJournalError, TimeoutError):
    """Run {run_id} has not ended within {seconds} s of the request to stop it. The request stays: the run ends as soon as
    its present step returns or accepts its cancellation. Wait longer, or look for code in the run that suppresses
    cancellation."""


class RunAbandoned(RunJournalError):
    """Run {run_id} cannot be stopped: its owner is dead, so no process is running it. Give its graph to
    `RunJournal.recover`, or send the next message of its thread: either settles the run."""


class ChunksGone(RunJournalError):
    """The chunks of run {run_id} cannot be read: {reason}. Use `RunHandle.events` or `RunJournal.afollow`: the journal has
    everything that the run says, for any number of readers."""


class RequestRefused(RunJournalError):
    """A provider would refuse this request with status 400: {problems:;}. Give the model a whole history: attach the graph,
    or use `ToolPairGuard`. A `ScriptedChatModel` with strict=False accepts the request."""


class ScriptEnded(RunJournalError):
    """The script of this ScriptedChatModel has ended. It has {answers:answer}, and the model was asked for one more. Give
    the script another answer, or use a function that answers every request."""
