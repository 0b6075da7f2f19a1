"""Pure: the vocabulary of events: their kinds, the causes and statuses of runs, and the keys of their metadata."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, Literal, TypeAlias, get_args

Kind: TypeAlias = Literal[
    "run.start",
    "llm.human.input",
    "llm.start",
    "llm.ai.delta",
    "llm.ai.response",
    "llm.ai.partial",
    "llm.error",
    "tool.start",
    "llm.tool.result",
    "tool.error",
    "task.end",
    "run.custom",
    "run.checkpoint",
    "run.pause",
    "run.stop",
    "run.settled",
    "run.lost",
    "run.end",
]
KINDS: Final[frozenset[str]] = frozenset(get_args(Kind))

MARKS: Final[frozenset[str]] = frozenset({"run.start", "run.pause", "run.stop", "run.settled", "run.lost", "run.end"})
"""The kinds that change the state of a `Run`. Stores keep that state up to date without reading the other events."""

Cause: TypeAlias = Literal["stop", "disconnect", "timeout", "shutdown", "crash", "superseded"]
"""Why a run was interrupted, or why a program asks it to stop."""
CAUSES: Final[tuple[str, ...]] = get_args(Cause)

GRAPH: Final = "runjournal_graph"
FINGERPRINT: Final = "runjournal_fingerprint"
CONTINUES: Final = "runjournal_continues"
"""Keys of the metadata of a run: the name and the fingerprint of its graph, if that is attached or was started, and the run
that it resumes."""
CALLED: Final = "runjournal_called"
"""The key of the run id that the caller gave, where another run of the journal already has that id."""
PROBLEM: Final = "runjournal_problem"
"""The key of the reason why no graph can settle the thread of a run."""

UNNAMED: Final = "LangGraph"
"""The name that LangGraph gives to every graph that is compiled without one."""

DELTA: Final = "llm.ai.delta"
NO_DATA: Final[Mapping[str, Any]] = {}


class RunStatus(str, Enum):
    """The state of a run. Equal to its plain string: ``run.status == "running"``."""

    RUNNING = "running"
    PAUSED = "paused"
    COMPLETED = "completed"
    INTERRUPTED = "interrupted"
    FAILED = "failed"

    def __str__(self) -> str:
        return self.value

    @property
    def ended(self) -> bool:
        """Whether only late facts can follow. A paused run has not ended: it waits for a human."""
        return self not in (RunStatus.RUNNING, RunStatus.PAUSED)


ENDINGS: Final = tuple(status.value for status in RunStatus if status.ended)
"""The statuses that a `run.end` can give a run."""
