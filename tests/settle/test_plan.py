"""The plan of a settlement: a table of what it adds, and properties of every thread and every run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, SystemMessage, ToolMessage

from langchain_runjournal.messages import tool_pairs as _tool_pairs
from langchain_runjournal.messages.marks import MARK, origin_of
from langchain_runjournal.messages.tool_requests import Request
from langchain_runjournal.messages.tool_results import CallKnowledge
from langchain_runjournal.settle.plan import Plan, holds, plan

RUN = "run-1"
MARKS = {"": None, "+": "recovered", "*": "synthetic", "~": "partial"}
_FORM = re.compile(r"(?P<kind>[UASTR])(?P<mark>[+*~]?)(?P<id>\w*)(\((?P<calls>.+)\))?(:(?P<text>.*))?")


def message(text: str) -> Any:
    """Parse a message: U1 a human, A1(c1,c2) an AI message with requests, T(c1) a result, S1 a system message, R1 a removal.

    Behind the letter, + means recovered, * synthetic, ~ partial. Without a number it has no id. Words stand behind a colon.
    """
    found = _FORM.fullmatch(text)
    assert found, text
    kind, calls = found["kind"], (found["calls"] or "").split(",") if found["calls"] else []
    id = f"{kind.lower()}{found['id']}" if found["id"] else None
    said = found["text"] if found["text"] is not None else f"words of {id}"
    origin = MARKS[found["mark"] or ""]
    kwargs = {MARK: {"v": 1, "origin": origin, "run_id": RUN}} if origin else {}
    if kind == "T":
        content = f"result of {calls[0]}"
        return ToolMessage(content, tool_call_id=calls[0], id=id or f"t-{calls[0]}", additional_kwargs=kwargs)
    if kind == "R":
        return RemoveMessage(id=f"u{found['id']}")
    if kind == "A":
        asked = [{"id": call, "name": "tool", "args": {}, "type": "tool_call"} for call in calls]
        return AIMessage(said, id=id, tool_calls=asked, additional_kwargs=kwargs)
    return {"U": HumanMessage, "S": SystemMessage}[kind](said, id=id, additional_kwargs=kwargs)


def messages(text: str) -> list[Any]:
    return [message(one) for one in text.split()]


def shown(found: Sequence[Any]) -> str:
    """Format a message as `message` parses it; a generated id is shown as #."""
    told = []
    for one in found:
        mark = next(mark for mark, origin in MARKS.items() if origin == origin_of(one))
        if one.type == "tool":
            told.append(f"T{mark}({one.tool_call_id})")
            continue
        calls = ",".join(call["id"] for call in getattr(one, "tool_calls", ()))
        number = "#" if one.id.startswith("rjs-") else one.id[1:]
        told.append(f"{one.id[0].upper() if number != '#' else one.type[0].upper().replace('H', 'U')}{mark}{number}")
        told[-1] += f"({calls})" if calls else ""
    return " ".join(told)


def knows(*calls: str) -> Any:
    """Return an `ask` that has the real results of these calls, and knows of no others."""

    def ask(asking: Any, request: Request) -> CallKnowledge:
        result = ToolMessage(f"result of {request.id}", tool_call_id=str(request.id), id=f"t-{request.id}")
        return CallKnowledge(result=result if request.id in calls else None, state="started", run_id=RUN, cause="stop")

    return ask


def planned(thread: Sequence[Any], transcript: Sequence[Any], ask: Any, applied: bool = True, **about: Any) -> Plan:
    return plan(thread, transcript, ask, run_id=RUN, applied=applied, **about)


ROWS = [
    # name, thread, transcript, real results, applied, what is added
    ("nothing was checkpointed", "", "U1 A~1", "", False, "U+1 A~1"),
    ("nothing but the history was checkpointed", "U0 A0", "U1 A~1", "", False, "U+1 A~1"),
    ("the input was checkpointed", "U0 A0 U1", "U1 A~1", "", True, "A~1"),
    ("the partial answer stands there", "U1 A~1", "U1 A~1", "", True, ""),
    ("the whole answer stands there, the journal has half of it", "U1 A1", "U1 A~1", "", True, ""),
    ("all is there", "U1 A1(c1) T(c1) A2", "U1 A1(c1) T(c1) A2", "c1", True, ""),
    ("the request was not checkpointed", "U1", "U1 A1(c1,c2) T(c1)", "c1", True, "A+1(c1,c2) T+(c1) T*(c2)"),
    ("not even the input was", "", "U1 A1(c1,c2) T(c1)", "c1", False, "U+1 A+1(c1,c2) T+(c1) T*(c2)"),
    ("some results are in the thread", "U1 A1(c1,c2,c3) T(c1)", "U1 A1(c1,c2,c3)", "c2", True, "T+(c2) T*(c3)"),
    ("the answers come before the partial", "U1 A1(c1,c2) T(c1)", "U1 A1(c1,c2) A~2", "c2", True, "T+(c2) A~2"),
    ("two steps are missing", "U1", "U1 A1(c1) T(c1) A2(c2) A~3", "c1", True, "A+1(c1) T+(c1) A+2(c2) T*(c2) A~3"),
    ("two messages were put in", "U0", "U1 U2 A~1", "", False, "U+1 U+2 A~1"),
    ("what is put in may be of any type", "", "S1 U1 A~1", "", False, "S+1 U+1 A~1"),
    ("a removal is not put in", "U1", "U1 R0 A~1", "", True, "A~1"),
    ("an old request without an answer is not of this turn", "U0 A0(c0) U1", "U1 A~1", "", True, "A~1"),
    ("a request of an earlier run on the same turn is", "U1 A1(c1)", "", "c1", True, "T+(c1)"),
    ("without a result, honestly", "U1 A1(c1)", "", "", True, "T*(c1)"),
    ("results of an earlier run go with their request", "U1 A1(c1,c2)", "T(c1) A~2", "c1", True, "T+(c1) T*(c2) A~2"),
    ("the conversation has gone on", "U1 A1(c1) T(c1) U2 A2", "U1 A1(c1) A~3", "", True, None),
    ("the conversation has gone on without this run", "U0 A0 U2 A2", "U1 A~1", "", False, "U+1 A~1"),
    ("a human has spoken after it, and no message has answered it", "U1 A1 U2", "U1 A1 A~3", "", True, "A~3"),
    ("what the graph took out is not put back", "A2", "U1 A1(c1) A2 A~3", "c1", True, "A~3"),
    ("nor the input that it took out", "S1", "U1 A~1", "", True, "A~1"),
    ("a summary in place of the past", "S9 A2(c2)", "U1 A1(c1) T(c1) A2(c2) T(c2)", "c2", True, "T+(c2)"),
    ("the input under another id", "U0:a A0:b U7:hi", "U:hi A~1", "", False, "A~1"),
    ("the same words were said before", "U0:hi A0:b", "U:hi A~1", "", False, "U+# A~1"),
    ("the answer under another id", "U1 A7:yes", "U1 A1:yes A~2", "", True, "A~2"),
    ("another answer with other words", "U1 A7:no", "U1 A1:yes", "", True, "A+1"),
    ("the same words asking for something else", "U1 A7(c7):yes", "U1 A1(c1):yes", "", True, "T*(c7) A+1(c1) T*(c1)"),
    ("two inputs with the same words", "U7:hi U8:hi", "U:hi U:hi A~1", "", False, "A~1"),
]
NAMES = [row[0] for row in ROWS]


@pytest.mark.guarantee("unfinished tools")
@pytest.mark.parametrize(
    ("thread", "transcript", "real", "applied", "added"), [row[1:] for row in ROWS], ids=[r[0] for r in ROWS]
)
def test_what_is_added(thread: str, transcript: str, real: str, applied: bool, added: str | None) -> None:
    """The plan adds what a row of the table says, message by message, and changes no input."""
    given_thread, given_transcript = messages(thread), messages(transcript)
    found = planned(given_thread, given_transcript, knows(*real.split()), applied)
    assert (None if found.moved_on else shown(found.add)) == added
    assert [one.model_dump() for one in given_thread] == [one.model_dump() for one in messages(thread)]
    assert [one.model_dump() for one in given_transcript] == [one.model_dump() for one in messages(transcript)]


@pytest.mark.parametrize(
    ("thread", "transcript", "real", "applied", "added"), [row[1:] for row in ROWS], ids=[r[0] for r in ROWS]
)
def test_a_thread_that_got_it_lacks_nothing(
    thread: str, transcript: str, real: str, applied: bool, added: str | None
) -> None:
    """A second settlement adds exactly the rest, wherever the first one was killed."""
    history, said, ask = messages(thread), messages(transcript), knows(*real.split())
    whole = planned(history, said, ask, applied).add
    for cut in range(len(whole) + 1):
        rest = planned([*history, *whole[:cut]], said, ask, applied).add
        assert [one.model_dump() for one in rest] == [one.model_dump() for one in whole[cut:]]
    assert (added or "") == shown(whole)


def test_a_late_result_replaces_the_synthetic_one() -> None:
    """A late result gets the id of the synthetic one, so that no other message moves, and is written once."""
    thread = [*messages("U1 A1(c1,c2)"), *planned(messages("U1 A1(c1,c2)"), [], knows()).add, *messages("U2 A2")]
    late = planned(thread, [], knows("c1")).add
    assert shown(late) == "T+(c1)"
    assert (late[0].id, late[0].content, late[0].status) == (thread[2].id, "result of c1", "success")
    replaced = [*thread[:2], late[0], *thread[3:]]
    assert planned(replaced, [], knows("c1")).add == []


def test_a_state_that_only_grows_is_not_given_a_second_result() -> None:
    """Where a message does not replace the one of its id, a late result is not added, because it would be a second
    result."""
    thread = [*messages("U1 A1(c1)"), *planned(messages("U1 A1(c1)"), [], knows()).add]
    assert planned(thread, [], knows("c1"), by_id=False).add == []


def test_a_synthetic_result_of_another_run_is_left_to_that_run() -> None:
    """Only the run that wrote a synthetic result replaces it."""
    thread = [*messages("U1 A1(c1)"), *planned(messages("U1 A1(c1)"), [], knows()).add]
    assert plan(thread, [], knows("c1"), run_id="run-2", applied=True).add == []


@pytest.mark.parametrize("call", [{"id": None, "name": "tool"}, {"id": "c1", "name": ""}])
def test_a_call_that_reaches_no_provider_gets_no_answer(call: dict[str, Any]) -> None:
    """A call without a name gets no result, because the result would stand alone and be refused."""
    asking = AIMessage("", id="a1", tool_calls=[{"args": {}, "type": "tool_call", **call}])
    assert planned([message("U1"), asking], [], knows("c1")).add == []


def test_every_place_of_a_message_without_an_id_gets_its_own() -> None:
    """Each message without an id gets its own generated id, the same each time, also if two messages say the same."""
    said = messages("U:hi U:hi A~1")
    first, second = planned([], said, knows(), False).add, planned([], said, knows(), False).add
    assert [one.id for one in first] == [one.id for one in second]
    assert len({one.id for one in first}) == 3
    other = plan([], said, knows(), run_id="run-2", applied=False).add
    assert {one.id for one in first} & {one.id for one in other} == {"a1"}


@st.composite
def _runs(draw: st.DrawFn) -> tuple[list[Any], list[Any], set[str], int]:
    """Generate a history, a run, the calls whose results are known, and how much of the run was checkpointed."""
    number = iter(range(1, 1000))
    history = messages("U0 A0") if draw(st.booleans()) else []
    said = [message(f"U{next(number)}")]
    known: set[str] = set()
    for _ in range(draw(st.integers(0, 3))):
        calls = [f"c{next(number)}" for _ in range(draw(st.integers(1, 3)))]
        done = draw(st.permutations(calls))[: draw(st.integers(0, len(calls)))]
        known.update(done)
        said.append(message(f"A{next(number)}({','.join(calls)})"))
        said += [message(f"T({call})") for call in calls if call in done]
        if len(done) < len(calls):
            break
    if draw(st.booleans()):
        said.append(message(f"A~{next(number)}"))
    return history, said, known, draw(st.integers(0, len(said)))


@pytest.mark.guarantee("history")
@given(_runs())
def test_whatever_was_checkpointed_the_thread_is_the_same(case: tuple[list[Any], list[Any], set[str], int]) -> None:
    """However much of a run was checkpointed, the settled thread is the same, with a result behind every request."""
    history, said, known, kept = case
    thread = [*history, *said[:kept]]
    after = [*thread, *planned(thread, said, knows(*known), applied=kept > 0).add]
    assert after[: len(thread)] == thread
    plain = [(one.type, one.id) for one in after if one.type != "tool"]
    assert plain == [(one.type, one.id) for one in [*history, *said] if one.type != "tool"]
    assert _tool_pairs.open_requests(after) == []
    results = {one.tool_call_id: origin_of(one) for one in after if one.type == "tool"}
    assert {call for call, origin in results.items() if origin != "synthetic"} == known
    assert planned(after, said, knows(*known)).add == []


@pytest.mark.parametrize(
    ("thread", "transcript", "held"),
    [
        ("U+1 A~2 U3 A4", "U1 A~2", True),
        ("U3 A4 U+1 A~2", "U1 A~2", True),
        ("U1 A2(c1) T*(c1) U3 A4", "U1 A2(c1)", True),
        ("U1 U3 A4", "U1", True),
        ("U1 U3 A4", "U1 A~2", False),
        ("A2 U3 A4", "U1 A2", False),
        ("U3 A4", "U1", False),
        ("U1 A2(c1,c2) T(c1) U3 A4", "U1 A2(c1,c2) T(c1)", False),
        ("U1 A~2:part U3 A4", "U1 A~2:part-and-more", False),
        ("U:hi U3 A4", "U:hi", False),
        ("U3 A4", "", False),
    ],
)
def test_what_a_thread_holds_behind_which_others_stand(thread: str, transcript: str, held: bool) -> None:
    """A thread holds a run if it has each message under its id, each partial one in full, and a result for each request."""
    assert holds(messages(thread), messages(transcript), run_id=RUN, applied=False) is held


def test_a_thread_holds_what_a_run_was_given_if_the_run_has_stored_a_superstep() -> None:
    """The thread holds a question without an id under the id that the graph gave it."""
    assert holds(messages("U1:hi A2 U3 A4"), messages("U:hi A2"), run_id=RUN, applied=True)
    assert not holds(messages("U1:hi A2 U3 A4"), messages("U:hi A2"), run_id=RUN, applied=False)
