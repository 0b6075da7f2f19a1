"""The position of a run in its thread: how many messages stand before it, and which of its supersteps was applied last."""

from __future__ import annotations

from typing import Any

from ..common.twins import Effects
from ..messages.loading import as_messages
from .evidence import SettlementEvidence
from .graph_thread import GraphThreads
from .supersteps import is_left


def messages_before(threads: GraphThreads, evidence: SettlementEvidence, state: Any) -> Effects[int]:
    """Return how many messages the thread held before the run."""
    if evidence.applied:
        return 0  # the thread holds the input of the run, so nothing is searched
    messages = threads.shape.messages
    found, old = messages(state.values) or [], None
    if evidence.base is not None and evidence.base != checkpoint_id(state):
        old = messages((yield threads.read(evidence.thread_id, checkpoint_id=evidence.base)).values)
    elif evidence.has_base and evidence.base is None:
        old = []
    if old is None and is_left(state):
        # The run has written only what its finished tasks gave, which this state shows and no checkpoint holds.
        place = checkpoint_id(state)
        old = messages((yield threads.read(evidence.thread_id, checkpoint_id=place)).values) if place else []
    if old is None:
        return len(found)  # the run has written nothing
    same = [as_messages([one]) == as_messages([other]) for one, other in zip(old, found, strict=False)]
    return same.index(False) if False in same else len(same)


def last_applied_superstep(threads: GraphThreads, evidence: SettlementEvidence, state: Any) -> Effects[int | None]:
    """Return the last superstep of the run whose writes the thread holds; None where that cannot be known."""
    if not evidence.is_attached:
        return None
    if evidence.remembered is not None and evidence.remembered != checkpoint_id(state):
        # The checkpoints behind it were written by an earlier settlement, which was cut off.
        state = yield threads.read(evidence.thread_id, checkpoint_id=evidence.remembered)
    return evidence.applied_at(checkpoint_id(state), _parent_id(state), state.metadata or {})


def checkpoint_id(state: Any) -> str | None:
    """Return the id of the checkpoint that a state shows; None for a thread without a checkpoint."""
    found = state.config["configurable"].get("checkpoint_id") if state.created_at else None
    return None if found is None else str(found)


def _parent_id(state: Any) -> str | None:
    return None if state.parent_config is None else str(state.parent_config["configurable"]["checkpoint_id"])
