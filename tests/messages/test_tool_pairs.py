"""Tool calls and their results: the rules, as tables and as properties."""

from __future__ import annotations

import copy
import json
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    ToolMessage,
    ToolMessageChunk,
    message_chunk_to_message,
)

from langchain_runjournal import errors
from langchain_runjournal.guard import projection as _projection
from langchain_runjournal.guard import repair_tool_pairs
from langchain_runjournal.guard.projection import Action, Projection, is_whole, project, wanted
from langchain_runjournal.messages import tool_results as _tool_results
from langchain_runjournal.messages.loading import is_synthetic
from langchain_runjournal.messages.marks import MARK, origin_of
from langchain_runjournal.messages.tool_pairs import open_requests, requests
from langchain_runjournal.messages.tool_requests import request_ids
from langchain_runjournal.messages.tool_results import CallKnowledge, answer
from tests.support.histories import became, cut_off, history, made_up, result

pytestmark = pytest.mark.guarantee("unfinished tools")

# --- what becomes of which history --------------------------------------------------------------------------------------

# The names are those of the scenarios in which other agents, and we, have seen histories break: G goose, C codex, K Cline,
# O and N what was measured with LangGraph.
SCENARIOS = [
    ("G1 one message", "U", "0"),
    ("G1 a whole pair", "U A(s1) T(s1)", "0 1 2"),
    ("G3 a wrong result, an empty user's message", "A(s1) U0 T(wrong) A(s2)", "0 T*(s1) 1 3 T*(s2)"),
    ("G4 the first of two calls is never answered", "U A(x1) A(x2) T(x2) A U", "0 1 T*(x1) 2 3 4 5"),
    ("G5 words after a result", "U A(s1) T(s1) U", "0 1 2 3"),
    ("G6 two user's messages stay two", "U U A", "0 1 2"),
    ("G11 an answer comes first", "A U", "0 1"),
    ("G12 nothing but an answer", "A", "0"),
    ("C1 a lone call", "A(c1)", "0 T*(c1)"),
    ("C4 a lone result", "T(c1)", ""),
    ("C5 a lone result among words", "U T(c1) A U", "0 2 3"),
    ("C6 calls of several messages, one wrong result", "a(c1) T(c2) a(t1) a(s1)", "0 T*(c1) 2 T*(t1) 3 T*(s1)"),
    ("C8 a later message stays later", "U A(c1) U A U", "0 1 T*(c1) 2 3 4"),
    ("C17 a real result is kept as it is", "U A(c1) T(c1) U", "0 1 2 3"),
    ("K1 go on without a result", "U A(t1) U", "0 1 T*(t1) 2"),
    ("K2 one of two is answered", "A(t1,t2) T(t1) U", "0 1 T*(t2) 2"),
    ("K3 a call at the end", "U A(t1)", "0 1 T*(t1)"),
    ("K4 no tools at all", "U A U A", "0 1 2 3"),
    ("K6 an answer directly after a call", "A(t1) A", "0 T*(t1) 1"),
    ("K7 results spread over the history", "A(a,b,c) T(b) U T(a) A T(c) U", "0 3 1 5 2 4 6"),
    ("K8 words between results that came in another order", "A(1,2) T(2) U T(1)", "0 3 1 2"),
    ("N1 three tools, stopped in the third, no evidence", "U A(c1,c2,c3) U", "0 1 T*(c1) T*(c2) T*(c3) 2"),
    ("N12 a note of somebody between calls and results", "A(c1,c2,c3) U T(c1) T(c2) T(c3)", "0 2 3 4 1"),
    ("N13 a touched block is in the order of the calls", "A(a,b,c) T(c) T(b) U", "0 T*(a) 2 1 3"),
    ("N13 an untouched block stays in its own order", "A(a,b) T(b) T(a) U", "0 1 2 3"),
    ("N14 a nameless call goes, and its result with it", "U A(?t1) T(t1) U", "0 1' 3"),
    ("N14 a nameless call beside a good one", "U A(?t1,c1) T(t1) T(c1) U", "0 1' 3 4"),
    ("an invalid call goes", "U A(!t1) U", "0 1' 2"),
    ("an invalid call goes, and nothing is left of its message", "U a(!t1) U", "0 2"),
    ("an invalid call that was answered stays", "U A(!t1) T(t1) U", "0 1 2 3"),
    ("an invalid call beside one that was not answered", "U A(c1,!t1) U", "0 1' T*(c1) 2"),
    ("N13 nor does it change beside something broken", "A(a,b) T(b) T(a) U T(zz)", "0 1 2 3"),
    ("the same id in a later turn", "U A(a) T(a) U A(a) T(a) U", "0 1 2 3 4 5 6"),
    ("the same id again, the first never answered", "U A(a) U A(a) T(a)", "0 1 T*(a) 2 3 4"),
    ("the same id again, the last never answered", "U A(a) T(a) U A(a) U", "0 1 2 3 4 T*(a) 5"),
    ("the same id again, both results late", "A(a) A(a) T(a) T(a)", "0 3 1 2"),
    ("one id twice in one message", "A(a,a) T(a) T(a)", "0 1 2"),
    ("one id twice in one message, one result", "A(a,a) T(a) U", "0 1 T*(a) 2"),
    ("a second result", "A(a) T(a) T(a) U", "0 1 3"),
    ("a second result between two others", "A(a,b) T(a) T(a) T(b)", "0 1 3"),
    ("a second result much later", "A(a) T(a) U A T(a) U", "0 1 2 3 5"),
    ("a result before its call is none", "T(a) A(a) U", "1 T*(a) 2"),
    ("a made-up result stays", "A(a) T*(a) U", "0 1 2"),
    ("real beats made up", "A(a) T*(a) U A T(a)", "0 4 2 3"),
    ("real beats made up, side by side", "A(a,b) T*(a) T(b) T(a) U", "0 3 2 4"),
    ("a made-up one never takes the place of a real one", "A(a) T(a) T*(a) U", "0 1 3"),
    ("two that were made up", "A(a) T*(a) T*(a) U", "0 1 3"),
    ("a made-up one does not take a call of a later turn", "A(a) T(a) A(a) T*(a) U", "0 1 2 3 4"),
    ("a real one goes to the nearest call without a real one", "A(a) U A(a) T*(a) T(a)", "0 T*(a) 1 2 4"),
    ("the head of the history was cut off", "T(a) T(b) U A(c) T(c)", "2 3 4"),
    ("system messages stay where they are", "S U A(a) S U", "0 1 2 T*(a) 3 4"),
    ("nothing", "", ""),
]


@pytest.mark.parametrize(("text", "expected"), [row[1:] for row in SCENARIOS], ids=[row[0] for row in SCENARIOS])
def test_scenarios(text: str, expected: str) -> None:
    """Every way in which a history is known to break is mended in one place, and nothing else in it is touched."""
    given_ = history(text)
    sent = repair_tool_pairs(given_)
    assert became(given_, sent) == expected
    assert (sent is given_) == (expected == " ".join(str(place) for place in range(len(given_))))
    assert repair_tool_pairs(sent) is sent


EVIDENCE = [
    ("N1 what was finished is told as finished", "U A(c1,c2,c3) U", "c1 c2", "0 1 R(c1) R(c2) T*(c3) 2"),
    ("N5 a finished one beside one that waits", "U A(c1,c2) U", "c1", "0 1 R(c1) T*(c2) 2"),
    ("N6 a late result takes the place of a made-up one", "U A(c1) T*(c1) U A U", "c1", "0 1 R(c1) 3 4 5"),
    ("N7 also when the model has answered to that one", "U A(c1) T*(c1) A U", "c1", "0 1 R(c1) 3 4"),
    ("evidence is for what lacks a result only", "U A(c1) T(c1) U", "c1", "0 1 2 3"),
    ("a cut-off call that has run after all", "U A(!c1) U", "c1", "0 1 R(c1) 2"),
    ("a plain id means the last call", "A(a) U A(a) U", "a", "0 T*(a) 1 2 R(a) 3"),
    ("a pair of ids means one call", "A(a) U A(a) U", "m0/a", "0 R(a) 1 2 T*(a) 3"),
    ("no evidence for this one", "A(a) U", "b", "0 T*(a) 1"),
]


@pytest.mark.parametrize(("text", "known", "expected"), [row[1:] for row in EVIDENCE], ids=[row[0] for row in EVIDENCE])
def test_evidence(text: str, known: str, expected: str) -> None:
    """A real result that somebody has stands where the history lacks it, and never where it has one."""
    given_ = history(text)
    keys = [tuple(one.split("/")) if "/" in one else one for one in known.split()]
    evidence: Any = {key: result(key[-1] if isinstance(key, tuple) else key) for key in keys}
    assert became(given_, repair_tool_pairs(given_, evidence=evidence)) == expected
    if "/" not in known:
        assert became(given_, repair_tool_pairs(given_, evidence=evidence.get)) == expected


POLICIES: list[tuple[str, dict[str, Any], str]] = [
    ("U A(c1) U", {"dangling": "strip"}, "0 1' 2"),
    ("U a(c1) U", {"dangling": "strip"}, "0 2"),
    ("U A(c1,c2) T(c2) U", {"dangling": "strip"}, "0 1' 2 3"),
    ("U A(c1,c2) U", {"dangling": "strip", "evidence": {"c1": result("c1")}}, "0 1' R(c1) 2"),
    ("U A(c1) T*(c1) U", {"dangling": "strip"}, "0 1 2 3"),
    ("U A(c1) U", {"dangling": "hold"}, "0 1 2"),
    ("U A(c1,!c2,?c3) U T(c1)", {"dangling": "hold"}, "0 1 3 2"),
    ("U A(?c1) T(c1) U", {"dangling": "hold"}, "0 1 2 3"),
    ("U A(c1,c2) U", {"dangling": "hold", "evidence": {"c2": result("c2")}}, "0 1 R(c2) 2"),
    ("U A(c1) T(c1) U", {"dangling": "raise", "orphans": "raise"}, "0 1 2 3"),
    ("A(c1) U T(c1)", {"dangling": "raise", "orphans": "raise"}, "0 2 1"),
    ("A(c1) U", {"dangling": "raise", "evidence": {"c1": result("c1")}}, "0 R(c1) 1"),
    ("A(c1) T*(c1) U", {"dangling": "raise"}, "0 1 2"),
    ("T(c1) U", {"orphans": "keep"}, "0 1"),
    ("A(a) T(zz) T(a) U", {"orphans": "keep"}, "0 2 1 3"),
    ("A(a) T(a) T(a) U", {"orphans": "keep"}, "0 1 3"),
    ("A(a) T(a) T(a) U", {"orphans": "raise"}, "0 1 3"),
]


@pytest.mark.parametrize(
    ("text", "options", "expected"), POLICIES, ids=[f"{text} {options}" for text, options, _ in POLICIES]
)
def test_policies(text: str, options: dict[str, Any], expected: str) -> None:
    """The policies say what becomes of what is broken; what is known, and what is only in the wrong place, comes first."""
    given_ = history(text)
    sent = repair_tool_pairs(given_, **options)
    assert became(given_, sent) == expected
    assert repair_tool_pairs(sent, **options) is sent


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        ("U A(c1,c2) T(c2)", {"dangling": "raise"}, ["call 'c1' (search) of message 'm1' has no result"]),
        ("U A(!c1)", {"dangling": "raise"}, ["'c1'"]),
        ("U A(?c1) T(c1)", {"dangling": "raise"}, ["'c1' (None)"]),
        ("U T(zz) A(c1)", {"orphans": "raise"}, ["the result for 'zz' has no call"]),
        ("T(x) A(y) U A(z)", {"dangling": "raise", "orphans": "raise"}, ["'x'", "'y'", "'z'"]),
    ],
)
def test_raise_names_every_problem(text: str, options: dict[str, Any], said: list[str]) -> None:
    """Who wants to be told instead of helped learns of all that is broken at once."""
    with pytest.raises(errors.ToolPairBroken) as caught:
        repair_tool_pairs(history(text), **options)
    assert all(words in str(caught.value) for words in said)
    assert str(caught.value).count("has no") == len(said)


# --- what is asked for --------------------------------------------------------------------------------------------------


def test_a_call_counts_once_wherever_it_stands() -> None:
    """LangChain's lists, the provider's blocks and the raw calls are one call each."""
    message = AIMessage(
        [
            {"type": "text", "text": "a"},
            {"type": "tool_use", "id": "c1", "name": "f", "input": {}},
            {"type": "function_call", "id": "fc_9", "call_id": "c2", "name": "g", "arguments": "{}"},
            {"type": "tool_call", "id": "c3", "name": "h", "args": {}},
            {"type": "non_standard", "value": {"type": "custom_tool_call", "call_id": "c4", "name": "i", "input": "x = ["}},
        ],
        tool_calls=[{"id": "c1", "name": "f", "args": {}}, {"id": "c2", "name": "g", "args": {}}],
        invalid_tool_calls=[{"id": "c5", "name": "k", "args": "{", "error": None}],
        additional_kwargs={
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}},
                {"id": "c6", "type": "function", "function": {"name": "l", "arguments": '{"a": "line\nbreak"}'}},
                {"id": "c7", "type": "function", "function": {"name": "m", "arguments": '{"a": '}},
            ]
        },
    )
    found = requests(message)
    assert [(one.id, one.name, one.index, one.valid) for one in found] == [
        ("c1", "f", 0, True),
        ("c2", "g", 1, True),
        ("c5", "k", 2, False),
        ("c3", "h", 3, True),
        ("c4", "i", 4, True),
        ("c6", "l", 5, True),
        ("c7", "m", 6, False),
    ]
    assert request_ids(message.model_dump()) == [one.id for one in found]


@pytest.mark.parametrize(
    "block",
    [
        {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}},
        {"type": "server_tool_call", "id": "s1", "name": "web_search", "args": {}},
        {"type": "mcp_tool_use", "id": "s1", "name": "x", "input": {}},
        {"type": "web_search_call", "id": "s1"},
        {"type": "mcp_call", "id": "s1", "name": "x", "arguments": "{}"},
        {"type": "code_interpreter_call", "id": "s1"},
        {"type": "non_standard", "value": {"type": "tool_search_call", "call_id": "s1"}},
        {"type": "non_standard", "value": "tool_use"},
        {"type": "image", "id": "s1"},
    ],
    ids=lambda block: f"{block['type']} {block.get('value', '')}",
)
def test_what_the_provider_runs_itself_is_no_request(block: dict[str, Any]) -> None:
    """Server tools are the provider's own business: no result of ours, and nothing of them is stripped."""
    given_ = [HumanMessage("u"), AIMessage([block, "words"]), HumanMessage("v")]
    assert requests(given_[1]) == []
    assert repair_tool_pairs(given_) is given_
    broken = [HumanMessage("u"), AIMessage([block], tool_calls=[{"id": None, "name": "f", "args": {}}])]
    assert repair_tool_pairs(broken)[1].content == [block]


def test_what_is_no_answer_of_a_model_asks_for_nothing() -> None:
    """A user may say what looks like a request."""
    assert requests(HumanMessage([{"type": "tool_use", "id": "c1", "name": "f", "input": {}}])) == []
    assert open_requests([HumanMessage("u"), result("c1")]) == []


def test_open_requests_are_named_with_the_place_of_their_message() -> None:
    """Also those that nobody can run; not those with a made-up result."""
    given_ = history("U A(a,b) T(a) A(!c) A(d,?e) T*(d)")
    given_.append(AIMessage("", tool_calls=[{"id": None, "name": "f", "args": {}}, {"id": "g", "name": "", "args": {}}]))
    assert [(place, one.id, one.index, one.valid) for place, one in open_requests(given_)] == [
        (1, "b", 1, True),
        (3, "c", 0, False),
        (4, "e", 1, False),
        (6, None, 0, False),
        (6, "g", 1, False),
    ]
    assert [one.id for _, one in wanted(given_)] == ["b", "c", "d"]


def test_chunks_are_messages_too() -> None:
    """A thread may hold the sum of the chunks where others hold the message."""
    calls = [{"type": "tool_call_chunk", "id": "c1", "name": "f", "args": "{}", "index": 0}]
    given_ = [AIMessageChunk("", id="m", tool_call_chunks=calls), HumanMessage("u")]
    sent = repair_tool_pairs(given_)
    assert became(given_, sent) == "0 T*(c1) 1"
    with_chunk = [given_[0], ToolMessageChunk("r", tool_call_id="c1"), given_[1]]
    assert repair_tool_pairs(with_chunk) is with_chunk
    stripped = repair_tool_pairs([given_[0].model_copy(update={"content": "words"}), given_[1]], dangling="strip")[0]
    assert isinstance(stripped, AIMessageChunk)
    assert (stripped.tool_calls, stripped.tool_call_chunks, stripped.content) == ([], [], "words")


ARGUMENTS = '{"path": "/tmp/a b", "n": [1, {"x": "\\u00e9"}]}'


@pytest.mark.parametrize("form", ["anthropic", "responses", "chat", "chunk"])
def test_no_call_with_half_its_arguments_is_sent(form: str) -> None:
    """N8: wherever a stream was cut, LangChain makes a valid call of it; the model is not told that it has made it."""
    for end in range(1, len(ARGUMENTS)):
        message = _streamed(form, ARGUMENTS[:end])
        sent = repair_tool_pairs([HumanMessage("u"), message, HumanMessage("v")])
        assert [type(one) for one in sent] == [HumanMessage, AIMessage if form != "chunk" else AIMessageChunk, HumanMessage]
        assert requests(sent[1]) == []
        assert "path" not in json.dumps(sent[1].model_dump(exclude={"usage_metadata"}), default=str)
        assert "words" in str(sent[1].content)
    whole = [HumanMessage("u"), _streamed(form, ARGUMENTS), HumanMessage("v")]
    assert became(whole, repair_tool_pairs(whole)) == "0 1 T*(c1) 2"


def _streamed(form: str, arguments: str) -> BaseMessage:
    chunk = {"type": "tool_call_chunk", "id": "c1", "name": "rm", "args": arguments, "index": 1}
    text = {"type": "text", "text": "words"}
    blocks: dict[str, Any] = {
        "anthropic": [text, {"type": "tool_use", "id": "c1", "name": "rm", "input": {}, "partial_json": arguments}],
        "responses": [text, {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "rm", "arguments": arguments}],
    }
    kwargs: dict[str, Any] = {}
    if form == "chat":
        kwargs = {"tool_calls": [{"id": "c1", "type": "function", "function": {"name": "rm", "arguments": arguments}}]}
    message = AIMessageChunk(blocks.get(form, "words"), id="m", tool_call_chunks=[chunk], additional_kwargs=kwargs)
    return message if form == "chunk" else message_chunk_to_message(message)


# --- answers ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("known", "text"),
    [
        (CallKnowledge(), "No result was recorded for this call. It may or may not have executed. Check before retrying."),
        (CallKnowledge(state="never_started"), "Not executed: the turn was interrupted before this call started."),
        (
            CallKnowledge(state="never_started", cause="stop"),
            "Not executed: the user stopped the turn before this call started.",
        ),
        (
            CallKnowledge(state="started"),
            "Interrupted while running; no result was recorded. "
            "It may have partially or fully executed. Check before retrying.",
        ),
        (
            CallKnowledge(state="started", cause="crash"),
            "Interrupted while running (the program ended unexpectedly); no result was recorded. "
            "It may have partially or fully executed. Check before retrying.",
        ),
        (CallKnowledge(state="failed", error="ValueError: no"), "The call failed: ValueError: no"),
        (CallKnowledge(state="failed"), "The call failed; its error was not recorded."),
        (
            CallKnowledge(state="waiting", cause="superseded"),
            "Not executed: this call was waiting for a human's approval, and the conversation went on without it.",
        ),
    ],
)
def test_a_made_up_result_says_what_is_known(known: CallKnowledge, text: str) -> None:
    """Its words are fixed and true, its status is an error, and it says itself that it is made up."""
    message = AIMessage(
        "", id="lc_run--0198c0de-0000-7000-8000-000000000000-0", tool_calls=[{"id": "c", "name": "f", "args": {}}]
    )
    made = answer(message, requests(message)[0], known)
    assert (made.content, made.status, made.name, made.tool_call_id) == (text, "error", "f", "c")
    assert is_synthetic(made)
    assert made.additional_kwargs[MARK] == {
        "v": 1,
        "origin": "synthetic",
        "reason": known.state,
        "run_id": None,
        "call_id": "0198c0de-0000-7000-8000-000000000000",
    }


def test_a_real_result_stays_what_it_is() -> None:
    """Only where it comes from is written on a copy of it, and a name where it had none."""
    message = AIMessage("", id="m", tool_calls=[{"id": "c", "name": "f", "args": {}}])
    real = ToolMessage("r", tool_call_id="c", status="error", artifact={"a": 1}, additional_kwargs={"mine": 2}, id="t")
    before = real.model_dump()
    found = answer(message, requests(message)[0], CallKnowledge(state="started", result=real, run_id="run", cause="stop"))
    assert real.model_dump() == before
    assert (found.content, found.status, found.artifact, found.name, found.id) == ("r", "error", {"a": 1}, "f", "t")
    mark = {"v": 1, "origin": "recovered", "reason": "stop", "run_id": "run", "call_id": None}
    assert found.additional_kwargs == {"mine": 2, MARK: mark}


def test_an_answer_has_the_same_id_for_ever() -> None:
    """It is made from the request alone, so a real result takes the place of a made-up one in a thread."""
    message = AIMessage("", id="m", tool_calls=[{"id": "c", "name": "f", "args": {}}, {"id": "d", "name": "f", "args": {}}])
    first, second = requests(message)
    made = answer(message, first, CallKnowledge())
    assert made.id == f"rjs-{uuid.uuid5(uuid.UUID(bytes=_tool_results._NAMESPACE), 'm|0|c')}"
    assert made.id == answer(message, first, CallKnowledge(state="failed", error="e", run_id="r", cause="stop")).id
    assert made.id == answer(message, first, CallKnowledge(result=result("c"))).id
    assert made.id != answer(message, second, CallKnowledge()).id
    assert made.id != answer(AIMessage("", id="other"), first, CallKnowledge()).id
    nameless = [answer(AIMessage(""), first, CallKnowledge()).id for _ in range(2)]
    assert nameless[0] == nameless[1] != made.id
    standing = made_up("c", "another")
    assert standing.id != made.id
    assert answer(message, first, CallKnowledge(result=result("c", id="own")), standing).id == standing.id
    assert answer(message, first, CallKnowledge(), standing).id == standing.id


def test_a_custom_tool_gets_the_result_that_it_can_have() -> None:
    """OpenAI refuses any other form for a tool whose input is free text."""
    block = {"type": "custom_tool_call", "id": "ctc_1", "call_id": "c", "name": "f", "input": "not json"}
    sent = repair_tool_pairs([AIMessage([block]), HumanMessage("u")])
    assert [one["type"] for one in sent[1].content] == ["custom_tool_call_output"]
    assert "No result was recorded" in sent[1].content[0]["output"]


# --- stripping ----------------------------------------------------------------------------------------------------------

TEXT = {"type": "text", "text": "words"}
SIGNED = {"type": "thinking", "thinking": "hm", "signature": "s"}
ITEM = {"type": "reasoning", "id": "rs_1", "summary": []}


def _call(id: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": "search", "input": {}}


@pytest.mark.parametrize(
    ("content", "left"),
    [
        ([TEXT, _call("x")], [TEXT]),
        ([SIGNED, _call("x")], None),
        ([SIGNED, TEXT, _call("x")], [SIGNED, TEXT]),
        ([SIGNED, TEXT, ITEM, _call("x")], [SIGNED, TEXT]),
        ([SIGNED, _call("x"), _call("keep")], [SIGNED, _call("keep")]),
        ([ITEM, _call("x"), {**ITEM, "id": "rs_2"}, _call("keep")], [{**ITEM, "id": "rs_2"}, _call("keep")]),
        ([ITEM, {**ITEM, "id": "rs_2"}, _call("keep"), _call("x")], [ITEM, {**ITEM, "id": "rs_2"}, _call("keep")]),
        ([TEXT, SIGNED, {"type": "text", "text": " "}, _call("x")], [TEXT, {"type": "text", "text": " "}]),
        ([{"type": "text", "text": " "}, _call("x")], None),
        (["", _call("x")], None),
        (["said", _call("x")], "said"),
        ([{"type": "image", "url": "u"}, _call("x")], [{"type": "image", "url": "u"}]),
        ([TEXT, {"type": "non_standard", "value": {"type": "computer_call", "call_id": "x"}}], [TEXT]),
        ([TEXT, {"type": "input_json_delta", "partial_json": "{"}, _call("x")], [TEXT]),
        ([TEXT, _call("keep"), {"type": "function_call_signature", "signature": "s", "index": 1}], [TEXT, _call("keep")]),
    ],
)
def test_stripping_leaves_nothing_that_cannot_stand_alone(content: list[Any], left: str | list[Any] | None) -> None:
    """Blocks of the call go with it, and the thinking that led to it; a message with nothing left leaves the request."""
    ids = [one["id"] for one in content if isinstance(one, dict) and one["type"] == "tool_use"]
    message = AIMessage(content, tool_calls=[{"id": id, "name": "search", "args": {}} for id in {*ids, "x"}])
    before = copy.deepcopy(message)
    sent = repair_tool_pairs([HumanMessage("u"), message, result("keep"), HumanMessage("v")], dangling="strip")
    answers = [one for one in sent if isinstance(one, AIMessage)]
    assert [one.content for one in answers] == ([] if left is None else [left])
    assert message == before


def test_stripping_takes_a_call_from_every_place() -> None:
    """An adapter that finds it anywhere would send it."""
    raw = {"id": "x", "type": "function", "function": {"name": "search", "arguments": "{}"}}
    kept = {**raw, "id": "keep"}
    message = AIMessage(
        [TEXT, _call("x"), _call("keep")],
        tool_calls=[{"id": id, "name": "search", "args": {}} for id in ("x", "keep")],
        invalid_tool_calls=[{"id": "bad", "name": "search", "args": "{", "error": None}],
        additional_kwargs={"tool_calls": [raw, kept], "function_call": {"name": "search", "arguments": "{}"}, "mine": 1},
    )
    sent = repair_tool_pairs([message, result("keep")], dangling="strip")[0]
    assert isinstance(sent, AIMessage)
    assert [one["id"] for one in sent.tool_calls] == ["keep"]
    assert sent.invalid_tool_calls == []
    assert sent.content == [TEXT, _call("keep")]
    assert sent.additional_kwargs == {"tool_calls": [kept], "mine": 1}
    assert len(message.tool_calls) == 2
    gone = repair_tool_pairs([message], dangling="strip")[0]
    assert gone.additional_kwargs == {"mine": 1}


def test_stripping_one_of_two_calls_with_one_id_leaves_the_other() -> None:
    """The content has them once, and the one that was answered needs it."""
    calls = [{"id": "x", "name": "search", "args": {}}, {"id": "x", "name": "search", "args": {"q": 1}}]
    sent = repair_tool_pairs([AIMessage([TEXT, _call("x")], tool_calls=calls), result("x")], dangling="strip")
    assert sent[0].content == [TEXT, _call("x")]
    assert [one.id for one in requests(sent[0])] == ["x"]
    assert len(sent) == 2


def test_a_call_without_a_name_is_seen_at_first_sight() -> None:
    """Also where it stands among the good ones and has an answer."""
    given_ = [AIMessage("a", tool_calls=[{"id": "x", "name": "", "args": {}}]), result("x"), HumanMessage("u")]
    assert not is_whole(given_)
    assert [one.type for one in repair_tool_pairs(given_)] == ["ai", "human"]


def test_a_cut_off_call_that_is_known_to_have_run_is_told() -> None:
    """What has begun is not kept from the model, however it was asked for."""
    given_ = history("U A(!c1) U")
    for state, expected in (("unknown", "0 1' 2"), ("never_started", "0 1' 2"), ("started", "0 1 T*(c1) 2")):
        sent = _projected(given_, CallKnowledge(state=state))  # type: ignore[arg-type]
        assert became(given_, sent.messages) == expected


# --- notes --------------------------------------------------------------------------------------------------------------


def _projected(messages: list[BaseMessage], known: CallKnowledge | None = None, *, notes: bool = True) -> Projection:
    return project(
        messages, lambda message, request: known or CallKnowledge(), dangling="synthesize", orphans="drop", notes=notes
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("U A~ U", "0 1 2'"),
        ("U A~ U A U", "0 1 2' 3 4"),
        ("U A~ U A~ U", "0 1 2' 3 4'"),
        ("U A~ U U", "0 1 2' 3"),
        ("U A~", "0 1 N"),
        ("U A~ A U", "0 1 N 2 3"),
        ("U A~ A~ U", "0 1 N 2 3'"),
        ("U A~ S U", "0 1 2 3'"),
        ("U A~ S", "0 1 N 2"),
        ("U A~ T(zz) U", "0 1 3'"),
        ("U A(c1) U A~ U", "0 1 T*(c1) 2 3 4'"),
        ("U A U", "0 1 2"),
    ],
)
def test_a_note_follows_every_answer_that_was_cut_off(text: str, expected: str) -> None:
    """Before the next words of the user, or where there are none, behind the answer; each once, and never twice."""
    given_ = history(text)
    before = copy.deepcopy(given_)
    sent = _projected(given_)
    assert became(given_, sent.messages) == expected
    assert sum(action.kind == "noted" for action in sent.actions) == text.count("A~")
    assert _projected(sent.messages).messages is sent.messages
    assert given_ == before
    without = repair_tool_pairs(given_)
    assert not any(origin_of(message) == "note" for message in without)


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("stop", "the user stopped it"),
        ("disconnect", "the connection to the user was lost"),
        ("timeout", "a time limit was reached"),
        ("shutdown", "the program was shut down"),
        ("crash", "the program ended unexpectedly"),
        ("superseded", "a newer message took its place"),
        ("error", "an error occurred"),
        ("running", "why is not recorded"),
    ],
)
def test_a_note_says_why(reason: str, words: str) -> None:
    """In words, before what the user says; the user's own words stay as they are."""
    sent = _projected([cut_off(reason=reason), HumanMessage("and now?", id="h")]).messages[1]
    assert sent.content == (
        f"<note>The previous answer was cut off: {words}. It is incomplete because of that, and not by choice.</note>"
        "\n\nand now?"
    )
    assert (sent.type, sent.id, origin_of(sent)) == ("human", "h", "note")


def test_a_note_stands_in_a_block_of_its_own() -> None:
    """A user's message of blocks gets one more: the first text, but behind results of tools."""
    results = {"type": "tool_result", "tool_use_id": "x", "content": "r"}
    sent = _projected([cut_off(), HumanMessage([results, TEXT])]).messages[1]
    assert [one["type"] for one in sent.content] == ["tool_result", "text", "text"]
    assert sent.content[1]["text"].startswith("<note>The previous answer")
    assert sent.content[2] == TEXT
    assert _projected([cut_off(), HumanMessage("")]).messages[1].content.endswith("</note>")


def test_a_note_names_the_tools_that_were_not_called() -> None:
    """The model had begun to ask for them; nothing else tells it that nothing came of it."""
    calls = [{"id": "x", "name": "search", "final": True}, {"id": None, "name": None, "final": False}]
    text = _projected([cut_off(calls=calls), HumanMessage("u")]).messages[1].content
    assert "ask for tools (search); these calls were not executed." in text
    text = _projected([cut_off(calls=calls[1:]), HumanMessage("u")]).messages[1].content
    assert "ask for tools (without a name yet); these" in text


def test_a_note_alone_quotes_the_end_of_the_answer() -> None:
    """Providers refuse an answer as the last message; so the user's side says how far it went, always the same way."""
    partial = cut_off()
    for content, tail in (("a" * 300 + "END ", "a" * 197 + "END"), ([TEXT, "more", SIGNED], "wordsmore")):
        sent = _projected([HumanMessage("u"), partial.model_copy(update={"content": content})])
        note = sent.messages[2]
        assert note.type == "human"
        assert f"It ended with: {tail!r}. Continue from there" in note.content
        assert note.id == f"rjn-{uuid.uuid5(uuid.UUID(bytes=_tool_results._NAMESPACE), 'm0|note')}"
        assert sent.actions == [Action(kind="noted", id="m0")]
    nameless = [_projected([partial.model_copy(update={"id": None})]).messages[1].id for _ in range(2)]
    assert nameless[0] == nameless[1]


def test_a_note_alone_stands_behind_the_results() -> None:
    """A partial answer that kept finished requests is followed by their results first."""
    partial = cut_off().model_copy(update={"tool_calls": [{"id": "c", "name": "f", "args": {}, "type": "tool_call"}]})
    given_ = [partial, result("c")]
    assert became(given_, _projected(given_).messages) == "0 1 N"


# --- what is reported ---------------------------------------------------------------------------------------------------


def test_what_was_done_is_reported() -> None:
    """Each action once, in words; nothing for a whole history."""
    given_ = history("T(zz) U A(a,b,?c) U T(b) T(b) A~ U")
    sent = _projected(given_)
    assert [(action.kind, action.id) for action in sent.actions] == [
        ("synthesized", "a"),
        ("stripped", "c"),
        ("moved", "b"),
        ("orphan", "zz"),
        ("duplicate", "b"),
        ("noted", "m6"),
    ]
    beside = _projected(history("A(a) T*(a) T(a) A(b,c) T(c) U"))
    assert [(action.kind, action.id) for action in beside.actions] == [("synthesized", "b"), ("duplicate", "a")]
    found = _projected(history("U A(a) U"), CallKnowledge(result=result("a")))
    assert found.actions == [Action(kind="recovered", id="a", name="search")]
    whole = history("U A(a) T(a) U")
    assert _projected(whole) == Projection(whole, [])
    kept = project(history("T(zz)"), lambda *_: CallKnowledge(), dangling="hold", orphans="keep", notes=False)
    assert kept.actions == []


# --- bad input ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("messages", "options", "said"),
    [
        (
            [],
            {"dangling": "fix"},
            "dangling does not know the value 'fix'. It knows: 'synthesize', 'strip', 'hold', 'raise'",
        ),
        ([], {"orphans": "strip"}, "orphans does not know the value 'strip'. It knows: 'drop', 'keep', 'raise'"),
        ((), {}, "messages must be a list of LangChain messages"),
        ({"messages": []}, {}, "messages must be a list of LangChain messages"),
        ("hello", {}, "messages must be a list of LangChain messages"),
        ([HumanMessage("u"), {"role": "user", "content": "u"}], {}, "messages[1] must be a message"),
        ([("user", "u")], {}, "messages[0] must be a message"),
        ([], {"evidence": [result("a")]}, "evidence must be a mapping of tool call ids to ToolMessages, or a function"),
        (history("A(a)"), {"evidence": {"a": "done"}}, "evidence['a'] must be a ToolMessage or None, but 'done'"),
        (history("A(a)"), {"evidence": AIMessage}, "evidence['a'] must be a ToolMessage or None"),
    ],
)
def test_bad_input_is_refused_with_what_to_give(messages: Any, options: dict[str, Any], said: str) -> None:
    """The name of the argument, what it must be, and what it was."""
    with pytest.raises(errors.InvalidArgument) as caught:
        repair_tool_pairs(messages, **options)
    assert said in str(caught.value)


def test_a_function_is_asked_only_for_what_is_missing() -> None:
    """Looking for a result may cost something."""
    asked: list[str] = []
    repair_tool_pairs(history("U A(a,b,?c) T(a) T*(b) A(d) U"), evidence=asked.append)
    assert asked == ["b", "d"]
    asked.clear()
    repair_tool_pairs(history("U A(a) T(a) U"), evidence=asked.append)
    assert asked == []


# --- properties ---------------------------------------------------------------------------------------------------------

IDS = st.sampled_from(["a", "b", "c", "!a", "!d", "?e"])
TOKENS = st.one_of(
    st.sampled_from(["U", "A", "S", "A~", "T(a)", "T(b)", "T(c)", "T(d)", "T(e)", "T*(a)", "T*(b)"]),
    st.lists(IDS, min_size=1, max_size=3).map(lambda ids: f"A({','.join(ids)})"),
    st.lists(IDS, min_size=1, max_size=2).map(lambda ids: f"a({','.join(ids)})"),
)
HISTORIES = st.lists(TOKENS, max_size=12).map(" ".join).map(history)
EVIDENCES = st.sets(st.sampled_from("abd")).map(lambda ids: {id: result(id) for id in sorted(ids)})
OPTIONS = st.fixed_dictionaries(
    {"dangling": st.sampled_from(["synthesize", "strip", "hold"]), "orphans": st.sampled_from(["drop", "keep"])}
)


def _is_paired(messages: list[BaseMessage]) -> bool:
    """By a rule of its own: every request has one result in the messages right behind it, and there are no other results."""
    due: list[str | None] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            if message.tool_call_id not in due:
                return False
            due.remove(message.tool_call_id)
        elif due:
            return False
        elif isinstance(message, AIMessage):
            due = [call["id"] for call in message.tool_calls]
            due += [call["id"] for call in message.invalid_tool_calls if call["id"] not in due]
    return not due


@given(HISTORIES, EVIDENCES, st.sampled_from(["synthesize", "strip"]))
def test_every_request_is_answered_right_behind_its_call(messages: list[BaseMessage], evidence: Any, dangling: Any) -> None:
    """Whatever the history: what is sent is whole, and has no request that a provider cannot take."""
    sent = repair_tool_pairs(messages, evidence=evidence, dangling=dangling)
    assert _is_paired(sent)
    assert all(one.id and one.name for message in sent for one in requests(message))


@given(HISTORIES, EVIDENCES, OPTIONS, st.booleans())
def test_projecting_again_changes_nothing(messages: list[BaseMessage], evidence: Any, options: Any, notes: bool) -> None:
    """Idempotent, under every policy."""
    ask = lambda message, request: CallKnowledge(result=evidence.get(request.id))  # noqa: E731
    sent = project(messages, ask, **options, notes=notes)
    nothing = lambda message, request: CallKnowledge()  # noqa: E731
    again = project(sent.messages, nothing, **options, notes=notes)
    assert again.messages is sent.messages
    assert repair_tool_pairs(repair_tool_pairs(messages, **options), **options) == repair_tool_pairs(messages, **options)


@given(HISTORIES, EVIDENCES, OPTIONS)
def test_projecting_twice_gives_the_same(messages: list[BaseMessage], evidence: Any, options: Any) -> None:
    """Deterministic, so that a provider's cache of the history holds; and nothing that was given has changed."""
    before, kept = copy.deepcopy(messages), list(messages)
    first = repair_tool_pairs(messages, evidence=evidence, **options)
    assert repair_tool_pairs(copy.deepcopy(messages), evidence=copy.deepcopy(evidence), **options) == first
    assert messages == before
    assert all(one is other for one, other in zip(messages, kept, strict=True))


@given(HISTORIES, EVIDENCES)
def test_what_is_said_is_never_lost_or_changed(messages: list[BaseMessage], evidence: Any) -> None:
    """All but tool messages, and answers that nothing is left of, are sent, in their order; words stay as they are."""
    sent = repair_tool_pairs(messages, evidence=evidence)
    others = [one for one in messages if not isinstance(one, ToolMessage) and (one.type != "ai" or one.content)]
    assert [one.content for one in sent if not isinstance(one, ToolMessage) and one.content] == [
        one.content for one in others if one.content
    ]
    assert [id(one) for one in others if one.type != "ai"] == [id(one) for one in sent if one.type in ("human", "system")]


@given(HISTORIES)
def test_no_real_result_is_told_as_missing(messages: list[BaseMessage]) -> None:
    """A made-up result never stands for a call while a real one for its id, behind that call, is left out."""
    sent = repair_tool_pairs(messages)
    places = {id(one): place for place, one in enumerate(messages)}
    left_out = [
        (place, one.tool_call_id)
        for place, one in enumerate(messages)
        if isinstance(one, ToolMessage) and origin_of(one) is None and not any(one is other for other in sent)
    ]
    asking = -1
    names: list[str | None] = []
    for one in sent:
        if isinstance(one, AIMessage):
            asking = next(place for place, other in enumerate(messages) if other.id == one.id)
            names = [request.id for request in requests(messages[asking])]
        elif (
            isinstance(one, ToolMessage)
            and is_synthetic(one)
            and id(one) not in places
            and names.count(one.tool_call_id) == 1
        ):
            assert not any(place > asking and call == one.tool_call_id for place, call in left_out)


TURNS = st.lists(
    st.one_of(
        st.just("U"),
        st.just("A"),
        st.lists(st.sampled_from("abcd"), min_size=1, max_size=3, unique=True).flatmap(
            lambda ids: st.permutations(ids).map(lambda order: f"A({','.join(ids)}) " + " ".join(f"T({id})" for id in order))
        ),
    ),
    max_size=12,
).map(lambda turns: history(" ".join(turns)))


@given(TURNS, OPTIONS)
def test_a_whole_history_is_the_same_list(messages: list[BaseMessage], options: Any) -> None:
    """With every policy, though ids come again and again; and it is seen at first sight."""
    assert repair_tool_pairs(messages, **options, evidence=pytest.fail) is messages
    assert repair_tool_pairs(messages, dangling="raise", orphans="raise") is messages
    assert is_whole(messages)


@given(st.one_of(HISTORIES, TURNS), OPTIONS)
def test_the_quick_look_agrees_with_the_close_one(messages: list[BaseMessage], options: Any) -> None:
    """What the quick look passes, the close look would have passed: it only saves time."""
    if is_whole(messages):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_projection, "is_whole", lambda messages: False)
            found = project(messages, lambda message, request: CallKnowledge(), **options, notes=True)
        assert (found.messages is messages, found.actions) == (True, [])


def test_the_quick_look_knows_blocks() -> None:
    """Histories of Anthropic and OpenAI have their requests in the content too, and are whole at first sight."""
    raw = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    calls = [{"id": "c", "name": "f", "args": {}}]
    message = AIMessage([TEXT, _call("c")], tool_calls=calls, additional_kwargs={"tool_calls": [raw]})
    assert is_whole([message, result("c"), HumanMessage("u")])
    for broken in (
        AIMessage([TEXT, _call("c"), _call("d")], tool_calls=calls),
        AIMessage("", tool_calls=calls, additional_kwargs={"tool_calls": [raw, {**raw, "id": "d"}]}),
        AIMessage([{"type": "non_standard", "value": {"type": "computer_call", "call_id": "d"}}], tool_calls=calls),
    ):
        given_ = [broken, result("c"), HumanMessage("u")]
        assert not is_whole(given_)
        assert [one.id for _, one in wanted(given_)] == ["d"]


@pytest.mark.parametrize("ids", ["same", "other"])
def test_a_long_history_takes_no_more_than_one_walk(ids: str) -> None:
    """Each message is looked at a few times, however long the history and whatever its ids."""
    looked = 0

    class Counted(ToolMessage):
        def __getattribute__(self, name: str) -> Any:
            nonlocal looked
            looked += name == "tool_call_id"
            return super().__getattribute__(name)

    messages: list[BaseMessage] = []
    for turn in range(500):
        call = "same" if ids == "same" else f"c{turn}"
        messages += [*history(f"A({call})"), Counted("r", tool_call_id=call)]
    repair_tool_pairs([*messages, *history("A(last) U")])
    assert looked < 5_000
