"""Pure: which model call replaces which one when a program tries again.

Rule: a later call of the same task, or any call of a later attempt of the whole task, replaces a failed call. Two branches
of a graph inside of one task are not attempts of each other. A later call replaces an earlier one in the conversation only
when it has a message or has shown something: until then, the last attempt that did so stands. All readers of events ask
`Attempts`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from .message_data import Data

if TYPE_CHECKING:
    from .answers import Spoken


class Attempts:
    """The attempts of a run, and what its tasks did with their answers."""

    def __init__(self) -> None:
        self._next: dict[str, str] = {}
        self._kept: set[str] = set()
        self.shown: set[str] = set()
        """Calls that were cut off and stand although the run continued: their task returned a message of its own instead."""

    def begin(self, call_id: str, replaces: Iterable[str]) -> None:
        """Record that a call begins as the next attempt after others."""
        for id in replaces:
            if id != call_id:
                self._next[id] = call_id

    def keep(self, call_ids: Iterable[str]) -> None:
        """Record that a task has kept the answers of some calls to itself."""
        self._kept.update(call_ids)

    def show(self, call_ids: Iterable[str]) -> None:
        """Record that a task has ended with a message of its own in place of the answers of some calls."""
        self.shown.update(call_ids)

    def later(self, call_id: str) -> list[str]:
        """Return the later attempts after a call, in their order."""
        found = [call_id]
        while (after := self._next.get(found[-1])) is not None and after not in found:
            found.append(after)
        return found[1:]

    def is_outdone(self, call_id: str, speaks: Callable[[str], bool], answers: Callable[[str], bool]) -> bool:
        """Return whether a later attempt replaces a call in the conversation.

        `speaks` says whether a call has a message, or has shown something; `answers` says whether it answers the user. A
        helper replaces no answer.
        """
        if call_id in self.shown:
            return False
        return any((answers(one) or not answers(call_id)) and speaks(one) for one in self.later(call_id))

    def is_unused(self, call_id: str) -> bool:
        """Return whether a task has kept a call, or the later attempt after it, to itself."""
        return call_id not in self.shown and any(one in self._kept for one in (call_id, *self.later(call_id)))

    def counts(self, call_id: str, speaks: Callable[[str], bool], answers: Callable[[str], bool]) -> bool:
        """Return whether a call is part of the conversation, as far as its attempts and its task decide that."""
        return not self.is_unused(call_id) and not self.is_outdone(call_id, speaks, answers)


class Scope:
    """One task of a graph, or everything outside of a graph: the scope in which a call can be a retry of another."""

    __slots__ = ("_attempts", "_begun", "_complete", "_cut", "_instead", "_spoke", "failed", "results", "rounds")

    def __init__(self) -> None:
        self._attempts = Attempts()
        self._cut: dict[str, Spoken] = {}
        """The calls that an error has cut off after the user had seen words of them."""
        self._spoke: set[str] = set()
        self._complete: dict[tuple[int | None, str], int] = {}
        """The number of complete answers by spot."""
        self._begun: dict[str, int] = {}
        """The number of complete answers at its spot when a call began, by the id of a call that is running or was cut
        off."""
        self._instead: dict[str, list[Any]] = {}
        """What identifies the messages that the task returned in place of such a call, by its id."""
        self.failed: dict[str, tuple[int | None, str]] = {}
        """The calls whose answers failed, which a later call will replace, each with its `Node.spot`."""
        self.rounds = 0
        self.results: dict[str, Any] = {}
        """The tool messages of this task until it ends: middleware may change them before that."""

    def replaced_by(self, spot: tuple[int | None, str]) -> list[str]:
        """Return the failed calls that a call at this spot replaces.

        These are the calls at the same spot and, if the whole task is tried again, all of its earlier attempts. Parallel
        branches inside of one task do not replace each other.
        """
        outer, place = spot
        return [id for id, (theirs, there) in self.failed.items() if theirs != outer or there == place]

    def begin_call(self, call_id: str, spot: tuple[int | None, str]) -> Data:
        """Return the number of the attempt that a new call is, and the calls that it replaces."""
        replaced = self.replaced_by(spot)
        self._attempts.begin(call_id, replaced)
        self._begun[call_id] = self._complete.get(spot, 0)
        if not replaced:
            return {"attempt": 1}
        self.rounds += 1
        for id in replaced:
            del self.failed[id]
        return {"attempt": self.rounds + 1, "replaces": replaced}

    def speak(self, call_id: str, spoken: Spoken | None) -> None:
        """Record that a call has a message."""
        self._begun.pop(call_id, None)
        if spoken is not None and spoken.role == "answer":
            self._complete[spoken.spot] = self._complete.get(spoken.spot, 0) + 1
        if not self.rounds:
            return  # the call is not a retry
        if spoken is None or spoken.role == "answer":
            self._spoke.add(call_id)

    def cut(self, call_id: str, spoken: Spoken) -> None:
        """Record that an error has cut off a call after the user had seen words of it."""
        if spoken.role == "answer":
            self._spoke.add(call_id)
            self._cut[call_id] = spoken

    def give_instead(self, place: str, given: list[Any]) -> None:
        """Record that a task ends with messages of its own in place of the answers that were cut there.

        `given` identifies the messages. Where another answer was completed after one of the cut ones had begun, the messages
        come from that answer: the task did not need the cut one.
        """
        for id, spoken in self._cut.items():
            if spoken.spot[1] == place and self._complete.get(spoken.spot, 0) == self._begun.get(id, 0):
                self._instead[id] = given

    def shown(self, given: list[Any]) -> list[str]:
        """Return the cut calls that stand although the task of the outermost graph, which returns these messages, has ended.

        They stand because the task returned one of the messages in their place.
        """
        return [
            id
            for id, instead in self._instead.items()
            if any(one in given for one in instead)
            and not self._attempts.is_outdone(id, self._spoke.__contains__, lambda one: True)
        ]
