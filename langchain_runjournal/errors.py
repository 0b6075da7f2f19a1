"""Every exception of this package.

The docstring of a class is its message: the fact first, then what to do. The values that fill it are attributes of
the exception, so that a program can act on them without parsing text.
"""

from __future__ import annotations

import inspect
from typing import Any


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
        return " ".join(inspect.cleandoc(cls.__doc__).split()).format(**values)


def _rebuild(cls: type[RunJournalError], values: dict[str, Any]) -> RunJournalError:
    return cls(**values)


class InvalidArgument(RunJournalError, ValueError):
    """{name} must be {expected}, but {value!r} was given."""


class UnknownStore(RunJournalError, ValueError):
    """No store is known for {url!r}: {reason}. Use a file path such as "runs.db", a URL such as
    "sqlite:///var/lib/app/runs.db", or ":memory:" for a journal that ends with the process."""


class StoreIsDirectory(RunJournalError):
    """{path} is a directory. Give the path of a file in it, for example {path}/runs.db."""


class StoreNotWritable(RunJournalError):
    """The journal cannot write to {path}: {reason}. Choose a place that this process may write to: SQLite also needs
    to create files beside the database."""


class NotADatabase(RunJournalError):
    """{path} exists and is no SQLite database ({reason}). Nothing was changed. Choose another path, or move that file
    away."""


class ForeignDatabase(RunJournalError):
    """{path} is a SQLite database of another program (its tables: {tables}). Nothing was changed. Give the journal a
    file of its own, for example {suggestion}."""


class StoreTooNew(RunJournalError):
    """{path} was written by a newer langchain-runjournal (schema {found}; this one knows up to {known}). Nothing was
    changed. Upgrade langchain-runjournal to read it."""


class StoreCorrupt(RunJournalError):
    """{path} is damaged: {reason}. Nothing was changed. Keep a copy, then run `PRAGMA integrity_check` on it, or
    restore it from a backup."""


class StoreExposed(RunJournalError):
    """{path} is not safe to use: {reason}. Nothing was changed. Move it into a directory of your own, or give it to this
    user with `chown` and `chmod 600`; for a group that is to share it, use `chmod g+s` on its directory."""


class SpoolUnusable(RunJournalError):
    """Nothing was taken from {path}: {reason}. Give a file that stands beside the journal, or stood there, and
    whose name has "-spool-" in it."""


class JournalClosed(RunJournalError):
    """The journal {url} is closed, and {refused} events came after that: they were not kept. Open a new RunJournal,
    and close it only when the runs that write to it have ended."""


class JournalClosing(JournalClosed):
    """The journal {url} is being closed, and no run begins on it any more. Open a new RunJournal, and close it only when
    nobody starts runs on it."""


class WriteFailed(RunJournalError):
    """The journal {url} could not be written: {reason}. {waiting} events wait {where}; {lost} were lost. What waits is
    written as soon as the cause is gone: free space or release the lock, then flush again."""


class EventsLost(WriteFailed):
    """{lost} events could not be taken by the journal {url}, and are lost. The log has the reason for each. Give
    `RunJournal.append` an `Event`, with a `str` as its run_id; report what the package itself could not append."""


class FlushTimeout(RunJournalError, TimeoutError):
    """The journal {url} was not durable within {timeout} s. Nothing is lost by that: what was appended is still being
    written. Wait longer, or look for what blocks the store."""


class RunFenced(RunJournalError):
    """These runs cannot be written here: {run_ids}. Another journal owns them, or they ended long ago, or were pruned.
    {refused} events were refused and not kept. Stop working on these runs here."""


class CheckpointFenced(RunFenced):
    """No checkpoint is written to thread {thread_id!r} for the runs {run_ids}: another process took them over while this one
    stood still for longer than its lease, or they were deleted. The thread holds what that process made of it. Stop working
    on these runs here; the next message of the thread goes on from what it holds."""


class RunNotFound(RunJournalError, LookupError):
    """The journal {url} holds no run {run_id!r}. List what it holds with journal.runs(); a run appears there with its
    first event."""


class SeqGap(RunJournalError):
    """Run {run_id} ends at seq {last}, so an append may not begin at {first}: that would leave a gap. A store that
    raises this stored nothing; whoever numbers the events has lost count."""


class EventsMissing(RunJournalError):
    """Run {run_id} has a gap in {url}: {after} is followed by {found}. That is damage, not a late write: look at the whole
    with `runjournal check`. What is there can be read: up to the gap with the `limit` of journal.read, behind it
    with its `after`."""


class StoreClosed(RunJournalError):
    """The store {url} is closed. Open it again to use it."""


class StoreFailed(RunJournalError):
    """{path} could not be read or written: {reason}. {hint}, then try again."""


class WouldDeadlock(RunJournalError):
    """The journal {url} was asked to wait {where}: it would wait for itself. Set something in motion there (an event, a
    task), and wait elsewhere."""


class EventUnusable(RunJournalError):
    """The store cannot take an event of run {run_id}: {reason}. The run is set aside so that the others go on; {refused}
    events were refused. Report this with the event: a store should take whatever JSON can hold."""


class ToolPairBroken(RunJournalError, ValueError):
    """Tool calls and results of this history do not match: {problems}. Give the missing results as evidence, or let the
    history be repaired: dangling="synthesize" for calls without a result, orphans="drop" for results without a call."""


class AnswerCut(RunJournalError):
    """The answer of the model was cut off {times} time(s) in a row inside of its tool calls ({calls}): {why}. None of these
    calls was run. Set a higher token limit on the model, ask it for smaller steps, or have the call made again with
    ToolPairGuard(on_cut="retry")."""


class CallCut(RunJournalError):
    """{said} (Call {call_id} of tool {tool}.) The tool was not run. `ToolNode` makes a result of this, unless its
    handle_tool_errors says otherwise. Where a node calls tools by itself, catch it there. Give the model a ToolMessage."""


class ExtraMissing(RunJournalError, ImportError):
    """{what} needs the package {package}, which is not installed. Use `pip install "langchain-runjournal[{extra}]"`."""


class SettlementTimeout(RunJournalError):
    """What run writes in the background to thread {thread_id!r} has not come to its end in {seconds} s. Nothing was changed.
    Check the checkpointer; it is tried again before the next turn of the thread, and by `RunJournal.recover`."""


class NothingToResume(RunJournalError):
    """Run {run_id} cannot be taken up again: {reason}. Give the graph its input once more; the journal holds it
    (`RunJournal.transcript`)."""


class NotAttachable(RunJournalError, TypeError):
    """{what} cannot be attached: {reason}. Give `attach` the compiled LangGraph graph itself, as `compile()` or
    `create_agent` return it. Its checkpointer may come later: LangGraph uses it when a run begins."""


class NoMessages(RunJournalError):
    """{what} has no place for a message: {reason}. Nothing was changed. Use a graph whose state has `messages`, and give it
    rather than its checkpointer."""


class ThreadBusy(RunJournalError):
    """Thread {thread_id!r} is busy with run {run_id}. Wait for it (if_busy="wait"), stop it (if_busy="stop"), or send the
    message again when it has ended."""


class RunAtWork(RunJournalError):
    """Nothing was deleted: these runs are still running: {run_ids}. Stop them first (`RunJournal.stop`), or delete with
    force=True, which stops them and waits until they have ended."""


class StopTimeout(RunJournalError, TimeoutError):
    """Run {run_id} was asked to stop, and has not ended within {seconds} s. The request stays: the run ends when what it is
    doing lets go of it. Wait longer, or look for what in it does not let itself be cancelled."""


class RunAbandoned(RunJournalError):
    """Run {run_id} has no owner any more, so nobody can stop it: its process was killed. Give its graph to
    `RunJournal.recover`, or send the next message: either settles it."""


class ChunksGone(RunJournalError):
    """The chunks of run {run_id} cannot be read: {reason}. Use `RunHandle.events` or
    `RunJournal.afollow`: all that it says is in the journal, and can be read from anywhere, again and again."""


class RequestRefused(RunJournalError):
    """A provider would refuse this request (400): {problems}. Give it a whole history: attach the graph, or use
    `ToolPairGuard`. A `ScriptedChatModel` with strict=False takes it."""


class ScriptEnded(RunJournalError):
    """The script of this ScriptedChatModel has {answers} answers, and the model was asked for one more. Give the script
    another answer, or a function that answers whatever comes."""
