"""A thread that a program deleted or lost by other means than the journal: its messages do not come back."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from langchain_runjournal import RunJournal, attach
from tests.settle.test_settle import THREAD, made_by_hand, model, say, shown, thread
from tests.support.agents import words

GONE = "the checkpointer of this graph has no such thread"


def left(journal: RunJournal, saver: Any, *more: Any) -> tuple[Any, Any]:
    """Return a run that was cut off and is not settled, on a graph with further answers."""
    asked = model([*words("secret "), RuntimeError("boom")], *more)
    agent = attach(made_by_hand(asked, (), checkpointer=saver), journal, settle="never", capture_invoke=True)
    with pytest.raises(RuntimeError, match="boom"):
        agent.invoke(say("hi"), THREAD)
    return attach(made_by_hand(asked, (), checkpointer=saver), journal), asked


def test_a_deleted_chat_does_not_come_back_with_recover(journal: RunJournal) -> None:
    """For a thread that the program deleted in its own checkpointer, nothing is written, and the run says why."""
    saver = InMemorySaver()
    agent, _ = left(journal, saver)
    saver.delete_thread("t")
    assert [(one.outcome, one.reason) for one in journal.recover(agent)] == [("failed", GONE)]
    assert thread(agent) == []
    assert (journal.runs()[0].settled, journal.runs()[0].problem) == (False, GONE)


def test_a_deleted_chat_does_not_come_back_with_the_next_message(
    journal: RunJournal, caplog: pytest.LogCaptureFixture
) -> None:
    """The next message begins another conversation on the thread, without the words of the deleted one, now or later."""
    saver = InMemorySaver()
    agent, asked = left(journal, saver, words("fine"), words("fine"))
    saver.delete_thread("t")
    agent.invoke(say("new"), THREAD)
    assert shown(asked.seen[-1]) == ["U new"]
    run = journal.runs()[-1]
    assert (run.settled, run.given_up, run.problem) == (False, True, GONE)
    assert [run.run_id in one.getMessage() for one in caplog.records if one.levelno == logging.WARNING] == [True]
    agent.invoke(say("next"), THREAD)
    assert journal.recover(agent) == []
    assert thread(agent) == ["U new", "A fine", "U next", "A fine"]


def test_a_thread_that_was_never_stored_is_made(journal: RunJournal) -> None:
    """With `durability="exit"`, the journal has the only copy of a killed run, and the settlement writes it."""
    left(journal, InMemorySaver())
    run_id = journal.runs()[0].run_id
    kept = [one for one in journal.read(run_id) if one.kind not in ("run.checkpoint", "run.end", "run.start")]
    begin = next(one for one in journal.read(run_id) if one.kind == "run.start")
    with RunJournal(":memory:") as other:
        for one in [begin, *kept]:
            other.append(type(one)(run_id=run_id, kind=one.kind, data=one.data, call_id=one.call_id))
        end = {"status": "interrupted", "cause": "crash", "settled": False}
        other.append(type(begin)(run_id=run_id, kind="run.end", data=end))
        fresh = made_by_hand(model(), (), checkpointer=InMemorySaver())
        assert [one.outcome for one in other.recover(fresh)] == ["settled"]
        assert thread(fresh) == ["U+ hi", "A~ secret "]
