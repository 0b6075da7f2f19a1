"""`RunJournal(redact=...)` and `langchain_runjournal.redact`: what a redaction is given, and what is written."""

from __future__ import annotations

import itertools
import json
import logging
import math
import os
import pickle
import re
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage

from langchain_runjournal import Event, RunJournal, errors
from langchain_runjournal.common import packed
from langchain_runjournal.common.json_text import JsonText
from langchain_runjournal.journal.call_texts import CallTexts
from langchain_runjournal.journal.core import core_of
from langchain_runjournal.messages.stream_assembly import Streamed
from langchain_runjournal.redact import Held, Pattern, Redact, Text, patterns

SECRET = "sk-abcdefghij0123456789"
KEYS = patterns([r"sk-[a-z0-9]{20}"])
READY = patterns(["email", "credit_card"])


def event(kind: Any, data: Any, call: str | None = None) -> Event:
    return Event(run_id="r", kind=kind, data=data, call_id=call)


def streamed(redact: Redact, pieces: list[str]) -> tuple[str, list[str]]:
    """What is written of a text that comes in pieces, and each step of it."""
    steps: list[str] = []
    held = before = ""
    for at, piece in enumerate([*pieces, ""]):
        text, more = held + piece, at < len(pieces)
        found = redact(Text(text=text, before=before, more=more))
        done, held = (found.text, found.rest) if isinstance(found, Held) else (found, "")
        before = (before + text[: len(text) - len(held)])[-256:]
        steps.append(done)
    return "".join(steps), steps


@pytest.fixture
def open_with(db: Path) -> Iterator[Callable[..., RunJournal]]:
    opened: list[RunJournal] = []

    def open_journal(redact: Redact, **options: Any) -> RunJournal:
        opened.append(RunJournal(options.pop("url", db), redact=redact, **options))
        return opened[-1]

    yield open_journal
    for journal in opened:
        journal.close()


def texts(journal: RunJournal) -> list[str]:
    return [one.text for one in journal.read("r") if one.kind == "llm.ai.delta"]


# --- patterns -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("Mail alice@example.com, or bob.smith+x@mail.example.co.uk.", "Mail #, or #."),
        ("<carol@example.org>", "<#>"),
        ("no@mail and a @ b and @handle", "no@mail and a @ b and @handle"),
        ("4111 1111 1111 1111 and 4111-1111-1111-1111 and 4111111111111111.", "# and # and #."),
        ("5555555555554444 6011111111111117 378282246310005 30569309025904 3530111333300000", "# # # # #"),
        ("4111111111111112 has a wrong check digit; 41111111111111111 is too long", None),
        ("order 1 4111 1111 1111 1111", "order 1 #"),
    ],
)
def test_ready_patterns(text: str, left: str | None) -> None:
    """Addresses and numbers of cards, and nothing that only looks like one; the same in pieces of any size."""
    redact = patterns(["email", "credit_card"], replacement="#")
    whole = redact(Text(text=text))
    assert whole == (text if left is None else left)
    for size in range(1, len(text)):
        assert streamed(redact, [text[at : at + size] for at in range(0, len(text), size)])[0] == whole


@pytest.mark.parametrize(
    "redact",
    [
        KEYS,
        patterns([re.compile(r"sk-[a-z0-9]{20}")]),
        patterns([re.compile(r"SK-[a-z0-9]{20}", re.I)]),
        patterns([r"(?<=key )sk-\w+", "email"]),
        patterns([Pattern(r"\bsk-\w+", within=r"[\w-]")]),
        patterns([Pattern(r"sk-\w+", longest=23)]),
        patterns([r"key sk-\w+|card"]),
    ],
)
def test_a_secret_is_found_however_it_is_cut(redact: Redact) -> None:
    """At every two places: what is written is what is written of the whole text, and no prefix of it has the secret."""
    text = f"The key {SECRET}, and more."
    whole = redact(Text(text=text))
    assert isinstance(whole, str)
    assert SECRET not in whole
    for i in range(len(text) + 1):
        for j in range(i, len(text) + 1):
            found, steps = streamed(redact, [text[:i], text[i:j], text[j:]])
            assert found == whole, (i, j)
            assert all("abcd" not in "".join(steps[:step]) for step in range(4))


def test_what_cannot_become_a_secret_is_written_at_once() -> None:
    """A hint says what a match begins with, or consists of; without one, the last `longest` characters are held back."""
    assert streamed(KEYS, ["plain text s", "o"])[1] == ["plain text ", "so", ""]
    assert streamed(READY, ["plain text "])[1][0] == "plain text"
    assert streamed(READY, ["write to a@b and so on, "])[1][0] == "write to a@b and so on,"
    assert streamed(patterns([r"[a-z]+\d"], longest=8), ["plain text"])[1][0] == "pla"
    assert Pattern(r"sk-\w+").begins == "sk-"
    assert Pattern(r"\bsk-?\w+").begins == "sk"
    assert [Pattern(one).begins for one in (r"[ab]c", "a|b", re.compile("sk-", re.I), "s*k")] == [None] * 4


def test_a_match_beyond_its_longest() -> None:
    """In pieces, it is replaced up to there; in a whole text, all of it."""
    redact = patterns([Pattern(r"sk-\w+", longest=10)])
    assert redact(Text(text="a sk-0123456789abcdef b")) == "a [redacted] b"
    found = streamed(redact, list("a sk-0123456789abcdef b"))[0]
    assert found.startswith("a [redacted]")
    assert "sk-" not in found


@pytest.mark.parametrize(
    "bad",
    [
        lambda: patterns([]),
        lambda: patterns("email"),
        lambda: patterns(["("]),
        lambda: patterns([r"a*"]),
        lambda: patterns([b"a"]),  # type: ignore[list-item]
        lambda: patterns([re.compile(b"a")]),  # type: ignore[list-item]
        lambda: patterns(["emails"]),
        lambda: patterns(["Credit Card"]),
        lambda: Pattern("a", longest=0),
        lambda: Pattern("a", within="["),
        lambda: Pattern("a", replacement=7),  # type: ignore[arg-type]
        lambda: RunJournal(":memory:", redact="email"),  # type: ignore[arg-type]
        lambda: RunJournal(":memory:", redact=_waits),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_pattern(bad: Callable[[], Any]) -> None:
    """An error that says so, before a journal is opened."""
    with pytest.raises(errors.InvalidArgument):
        bad()


async def _waits(text: Text) -> str:
    return text.text


def test_a_misspelled_name_is_not_an_expression() -> None:
    """As an expression it would redact no address, without a word."""
    with pytest.raises(errors.UnknownOption, match=r"'emails'\. Did you mean 'email'\? .* give Pattern\('emails'\)"):
        patterns(["emails"])
    assert patterns([Pattern("emails")])(Text(text="emails")) == "[redacted]"
    assert patterns(["details", "cards"])(Text(text="card details")) == "card [redacted]"


def test_the_error_names_the_expression_that_is_wrong() -> None:
    """`within` is one as well."""
    with pytest.raises(errors.InvalidArgument, match=r"Pattern\.within must be a regular expression \(.*\), but '\['"):
        Pattern("a", within="[")


@settings(max_examples=300, deadline=None)
@given(
    parts=st.lists(st.sampled_from(["sk-", SECRET, "a@b.co", " ", "x", "4111 1111 1111 1111", "4", "@", "\n", "é", "s"])),
    cuts=st.lists(st.integers(0, 200)),
)
def test_pieces_are_redacted_as_the_whole_is(parts: list[str], cuts: list[int]) -> None:
    """Whatever the text, wherever it is cut."""
    redact = patterns(["email", "credit_card", r"sk-[a-z0-9]{20}"])
    text = "".join(parts)
    at = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    pieces = [text[a:b] for a, b in itertools.pairwise(at)]
    assert streamed(redact, pieces)[0] == redact(Text(text=text))


# --- JSON in pieces -----------------------------------------------------------------------------------------------------


class Upper:
    """A stream that writes all at once, in capitals, but holds back the last character."""

    def __init__(self) -> None:
        self.held = ""

    def feed(self, piece: str, *, more: bool) -> str:
        text = self.held + piece
        self.held = text[-1:] if more else ""
        return text[: len(text) - len(self.held)].upper()


JSON = [
    '{"a": "b\\nc", "k": [1, -2.5, true, null, "x"], "": {}, "n": []}',
    '{"quote": "say \\"hi\\" \\\\ \\/ \\u00e9 \\ud83d\\ude00 é"}',
    '{"a":1}{"b":"two"}',
    "[]",
]


@pytest.mark.parametrize("text", JSON)
def test_json_stays_json_however_it_is_cut(text: str) -> None:
    """Strings are decoded, changed and encoded; keys, numbers and structure stay."""

    def upper(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: upper(one) for key, one in value.items()}
        return (
            [upper(one) for one in value] if isinstance(value, list) else value.upper() if isinstance(value, str) else value
        )

    for i in range(len(text) + 1):
        for j in range(i, len(text) + 1):
            stream = JsonText(Upper)
            found = "".join(stream.feed(piece, more=True) for piece in (text[:i], text[i:j], text[j:]))
            found += stream.feed("", more=False)
            if "}{" in text:
                assert found == '{"a":1}{"b":"TWO"}'
            else:
                assert json.loads(found) == upper(json.loads(text)), (i, j)


@pytest.mark.parametrize(
    "text",
    [
        "plain secret",
        '{"a": sekret}',
        '{"a": "b" secret',
        '{"a": "\\x secret',
        "{secret",
        '"secret"',
        "[1 secret]",
        "7 secret",
    ],
)
def test_what_is_not_json_is_text(text: str) -> None:
    """Nothing passes unseen, wherever it is cut; and nothing gets lost."""
    for i in range(len(text) + 1):
        stream = JsonText(Upper)
        found = stream.feed(text[:i], more=True) + stream.feed(text[i:], more=True) + stream.feed("", more=False)
        assert found.lower() == text
        assert "secret" not in found
        assert "sekret" not in found


@pytest.mark.parametrize("text", JSON)
def test_json_that_is_cut_off(text: str) -> None:
    """What there is of it is written when it ends."""
    for end in range(len(text)):
        stream = JsonText(Upper)
        found = stream.feed(text[:end], more=True) + stream.feed("", more=False)
        assert len(found) >= end - 12


def test_a_text_with_many_matches_is_read_once() -> None:
    """A pattern that matches nowhere looks once, and not once for each match of another one."""
    asked = []

    def accept(text: str) -> bool:
        asked.append(text)
        return False

    redact = patterns(["email", Pattern("z[0-9]", accept=accept)], replacement="#")
    assert redact(Text(text="bob@example.org " * 50 + "z1")) == "# " * 50 + "z1"
    assert asked == ["z1"]


# --- the journal --------------------------------------------------------------------------------------------------------

EVERYTHING: list[tuple[str, dict[str, Any]]] = [
    ("run.start", {"thread_id": "t", "name": "graph", "metadata": {"user": f"key {SECRET}", "deep": [{"a": SECRET}]}}),
    (
        "llm.human.input",
        {"message": {"type": "human", "data": {"type": "human", "content": SECRET, "name": SECRET, "id": "m"}}},
    ),
    ("llm.start", {"model": "gpt", "role": "answer", "node": "model", "attempt": 1}),
    ("llm.ai.delta", {"text": SECRET}),
    (
        "llm.ai.delta",
        {"text": f" {SECRET} ", "id": "m1", "metadata": {"note": SECRET}, "kwargs": {"reasoning_content": SECRET}},
    ),
    ("llm.ai.delta", {"thinking": SECRET, "index": 0}),
    ("llm.ai.delta", {"blocks": [{"type": "text", "text": SECRET, "index": 1}, {"type": "text", "text": SECRET}, SECRET]}),
    ("llm.ai.delta", {"tool_calls": [{"name": "search", "args": "", "id": "c1", "index": 0}]}),
    ("llm.ai.delta", {"args": json.dumps({"q": SECRET}), "index": 0}),
    ("llm.ai.delta", {"json": json.dumps({"q": SECRET}), "index": 4}),
    ("llm.ai.delta", {"finish": {"type": "tool_call", "name": "search", "args": {"q": SECRET}, "id": "c1", "index": 0}}),
    ("llm.ai.delta", {"delta": {"type": "data-delta", "data": SECRET}, "index": 9}),
    ("llm.ai.delta", {"event": {"event": "odd", "what": SECRET}}),
    (
        "llm.ai.response",
        {
            "message": {
                "type": "ai",
                "data": {
                    "type": "ai",
                    "id": "m1",
                    "content": [
                        {"type": "text", "text": SECRET},
                        {"type": "thinking", "thinking": SECRET, "signature": "sig"},
                    ],
                    "tool_calls": [{"type": "tool_call", "name": "search", "id": "c1", "args": {"q": [SECRET]}}],
                    "invalid_tool_calls": [{"name": "search", "id": "c2", "args": '{"q": "' + SECRET, "error": SECRET}],
                    "additional_kwargs": {
                        "tool_calls": [
                            {
                                "id": "c1",
                                "type": "function",
                                "function": {"name": "search", "arguments": json.dumps({"q": SECRET})},
                            }
                        ],
                        "refusal": SECRET,
                    },
                    "response_metadata": {"finish_reason": "stop", "note": SECRET},
                    "usage_metadata": {"input_tokens": 3},
                },
            }
        },
    ),
    ("llm.ai.partial", {"cause": "stop", "error": SECRET}),
    ("llm.error", {"error": SECRET}),
    ("tool.start", {"tool_call_id": "c1", "name": "search", "args": {"q": SECRET}}),
    ("tool.start", {"tool_call_id": "c1", "name": "search", "args": SECRET}),
    ("llm.tool.result", {"tool_call_id": "c1", "output": {"found": [SECRET]}}),
    (
        "llm.tool.result",
        {
            "tool_call_id": "c1",
            "message": {
                "type": "tool",
                "data": {
                    "type": "tool",
                    "content": SECRET,
                    "tool_call_id": "c1",
                    "name": "search",
                    "artifact": {"a": SECRET},
                },
            },
        },
    ),
    ("tool.error", {"tool_call_id": "c1", "error": SECRET}),
    ("task.end", {"node": "n", "gave": ["m1"], "messages": [{"type": "ai", "data": {"content": SECRET, "id": "m1"}}]}),
    ("run.pause", {"interrupts": [{"id": "i", "value": {"question": SECRET}}], "reason": "interrupt"}),
    ("run.settled", {"messages": ["m1"], "problem": SECRET}),
    ("run.end", {"status": "failed", "error": SECRET}),
]


def bytes_of(db: Path) -> bytes:
    """All that is on the disk: the database, its WAL, the spool."""
    return b"".join(path.read_bytes() for path in sorted(db.parent.rglob("*")) if path.is_file())


@pytest.mark.parametrize("redact", [KEYS, lambda text: text.text.replace(SECRET, "")], ids=["patterns", "function"])
def test_no_event_is_written_with_the_secret(open_with: Callable[..., RunJournal], db: Path, redact: Redact) -> None:
    """Every kind of event, every place in it, before and after it is stored; and what is structure stays."""
    journal = open_with(redact)
    for kind, data in EVERYTHING:
        journal.append(event(kind, data, "c" if kind.startswith("llm.ai") else None))
        assert SECRET.encode() not in bytes_of(db), (kind, data)
    journal.flush()
    assert SECRET.encode() not in bytes_of(db)
    run = journal.run("r")
    assert (run.thread_id, run.name, run.status) == ("t", "graph", "failed")
    response = next(one for one in journal.read("r") if one.kind == "llm.ai.response").data["message"]["data"]
    assert [call["name"] for call in response["tool_calls"]] == ["search"]
    assert response["response_metadata"]["finish_reason"] == "stop"
    assert response["usage_metadata"] == {"input_tokens": 3}
    assert "signature" not in response["content"][1]
    assert json.loads(response["additional_kwargs"]["tool_calls"][0]["function"]["arguments"]).keys() == {"q"}
    assert journal.transcript("r")


def test_without_a_secret_nothing_changes(open_with: Callable[..., RunJournal], tmp_path: Path) -> None:
    """The same events, up to how deltas are cut: here, not even that."""

    def clean(value: Any) -> Any:
        return json.loads(json.dumps(value).replace(SECRET, "a word"))

    found = []
    for redact in (KEYS, None):
        journal = open_with(redact, url=tmp_path / f"{redact is None}.db")
        for kind, data in EVERYTHING:
            journal.append(event(kind, clean(data), "c" if kind.startswith("llm.ai") else None))
        found.append([(one.seq, one.kind, one.call_id, one.data) for one in journal.read("r")])
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("llm.ai.delta", {"blocks": [{"type": "server_tool_call", "name": "x", "args": {"name": SECRET}, "index": 0}]}),
        ("llm.ai.delta", {"blocks": [{"type": "server_tool_use", "name": "x", "input": {"id": SECRET}, "index": 0}]}),
        ("llm.ai.delta", {"blocks": [{"type": "odd", "value": {"args": {"id": [SECRET]}}, "index": 0}]}),
        ("llm.ai.delta", {"blocks": [{"type": "server_tool_call", "args": {"card": 4111111111111111}, "index": 0}]}),
        ("llm.ai.delta", {"blocks": [{"type": "odd", "data": SECRET.encode(), "index": 0}]}),
        ("llm.ai.delta", {"kwargs": {"card": 4111111111111111, "user": {"name": SECRET}, "raw": SECRET.encode()}}),
        ("llm.human.input", {"message": {"type": "human", "data": {"content": [{"type": "odd", "x": SECRET.encode()}]}}}),
        ("llm.ai.response", {"message": {"type": "ai", "data": {"additional_kwargs": {"user": {"name": SECRET}}}}}),
        ("llm.ai.response", {"message": {"type": "ai", "data": {"additional_kwargs": {"raw": SECRET.encode()}}}}),
    ],
)
def test_what_looks_like_structure_deeper_in_a_message(db: Path, kind: Any, data: dict[str, Any]) -> None:
    """In the arguments of a server's tool, `name` and `id` are text; so are another `name`, numbers, bytes."""
    with RunJournal(db, redact=patterns([r"sk-[a-z0-9]{20}", "credit_card"])) as journal:
        journal.append(event(kind, data, "c"))
    with RunJournal(db) as journal:
        found = repr(journal.read("r"))
    assert not [one for one in (SECRET, "4111111111111111", b64encode(SECRET.encode()).decode()) if one in found]


@pytest.mark.parametrize("size", [23, 65, 97])
@pytest.mark.parametrize("regex", [r"\bsk-[a-z0-9]{20}", r"^sk-[a-z0-9]{20}"])
def test_bytes_in_an_artifact_are_looked_at_by_themselves(
    open_with: Callable[..., RunJournal], size: int, regex: str
) -> None:
    """In the binary form of the artifact, their length stands in front of them, which may look like a letter."""
    journal = open_with(patterns([regex]))
    message: dict[str, Any] = {"type": "tool", "data": {"content": "", "tool_call_id": "c"}}
    packed.keep(message, "artifact", {"raw": f"{SECRET} {'x' * size}"[:size].encode()})
    assert packed.PACKED in message
    journal.append(event("llm.tool.result", {"message": message}))
    (result,) = journal.read("r")
    assert packed.PACKED not in result.data["message"]


def test_log_probabilities_are_left_out(open_with: Callable[..., RunJournal]) -> None:
    """They repeat the answer token by token. The floats of the message that are kept are known as before."""
    said = [{"token": one, "bytes": list(one.encode()), "logprob": 0.5} for one in (SECRET[:5], SECRET[5:])]
    told = {"logprobs": {"content": said}, "note": "fine"}
    journal = open_with(KEYS)
    journal.append(event("llm.ai.delta", {"text": SECRET[:5], "metadata": told}, "c"))
    journal.append(event("llm.ai.delta", {"blocks": [{"type": "text", "text": "", "index": 0, "logprobs": said}]}, "c"))
    journal.append(event("llm.ai.delta", {"kwargs": {"audio": {"logprobs": said}}}, "c"))
    odd = AIMessage(
        [{"type": "text", "text": SECRET, "logprobs": said}],
        response_metadata={"logprobs": [{"token": SECRET[:5], "logprob": -math.inf}], "score": math.inf},
    )
    data = {"message": {"type": "ai", "data": odd.model_dump()}}
    journal.append(event("run.start", {}))
    journal.append(event("llm.ai.response", data, "c"))
    assert SECRET[5:] not in repr(journal.read("r"))
    (message,) = journal.transcript("r")
    assert message.response_metadata == {"score": math.inf}


def test_objects_are_redacted_as_the_text_that_is_written(open_with: Callable[..., RunJournal], db: Path) -> None:
    """An object whose repr holds the secret, bytes, a number."""

    class Odd:
        def __repr__(self) -> str:
            return f"Odd({SECRET})"

    journal = open_with(patterns([r"sk-[a-z0-9]{20}", "credit_card"]))
    journal.append(event("tool.start", {"args": {"odd": Odd(), "raw": SECRET.encode(), "card": 4111111111111111, "n": 7}}))
    (start,) = journal.read("r")
    assert SECRET not in repr(start)
    assert "NrLWFiY2RlZmdo" not in repr(start)  # of its base64
    assert (start.data["args"]["card"], start.data["args"]["n"]) == ("[redacted]", 7)


@pytest.mark.parametrize("end", ["llm.ai.response", "llm.ai.partial", "llm.error", "run.end", "run.pause", "close"])
def test_what_is_held_back_is_written_when_the_call_ends(db: Path, end: Any) -> None:
    """Before the event that ends it, redacted; and after that, nothing is remembered."""
    with RunJournal(db, redact=KEYS) as journal:
        journal.append(event("run.start", {}))
        for piece in ("see sk", "-abc", ""):
            journal.append(event("llm.ai.delta", {"text": piece}, "c"))
        assert texts(journal) == ["see "]
        if end != "close":
            journal.append(event(end, {"status": "completed"} if end == "run.end" else {}, "c"))
            assert [one.kind for one in journal.read("r")][-2:] == ["llm.ai.delta", end]
            appender: Any = core_of(journal).appender
            assert not appender._calls
    with RunJournal(db) as journal:
        assert texts(journal) == ["see ", "sk-abc"]


def test_a_secret_that_is_cut_over_deltas_of_every_shape(open_with: Callable[..., RunJournal], db: Path) -> None:
    """At each place, in text, blocks, reasoning and arguments: the message that is put together lacks it."""
    shapes: list[Callable[[str, bool], dict[str, Any]]] = [
        lambda text, first: {"text": text},
        lambda text, first: {"text": text, "id": "m"} if first else {"text": text},
        lambda text, first: {"text": text, "index": 0},
        lambda text, first: (
            {"blocks": [{"type": "text", "text": text, "index": 0}]} if first else {"text": text, "index": 0}
        ),
        lambda text, first: {"blocks": [{"type": "thinking", "thinking": text, "index": 3}]},
        lambda text, first: {"blocks": [{"type": "text", "text": text}]},
        lambda text, first: {"reasoning": text, "index": "lc_1"},
        lambda text, first: {"kwargs": {"reasoning_content": text}},
        lambda text, first: {"kwargs": {"tool_calls": [{"index": 0, "function": {"arguments": text}}]}},
        lambda text, first: {"args": text, "index": 0},
        lambda text, first: {"json": text, "index": 0},
        lambda text, first: {"tool_calls": [{"name": None, "args": text, "id": None, "index": 0}]},
    ]
    text = f'{{"key": "a {SECRET} b"}}'
    journal = open_with(KEYS)
    for number, shape in enumerate(shapes):
        for cut in range(len(text) + 1):
            call = f"{number}-{cut}"
            for at, piece in enumerate((text[:cut], text[cut:])):
                journal.append(event("llm.ai.delta", shape(piece, not at), call))
            journal.append(event("llm.error", {}, call))
    for call in {one.call_id for one in journal.read("r")}:
        deltas = [one.data for one in journal.read("r") if one.kind == "llm.ai.delta" and one.call_id == call]
        said = Streamed(deltas, str(call))
        written = json.dumps([said.content, said.calls, [one.get("kwargs") for one in deltas]])
        joined = "".join(re.findall(r"[a-z0-9-]+", written))
        assert "sk-abc" not in written
        assert SECRET not in joined
        assert "redacted" in written, call
    journal.flush()
    assert b"sk-abcdefghij" not in bytes_of(db)


def test_the_place_of_a_block_is_kept(open_with: Callable[..., RunJournal]) -> None:
    """Its first words are held back, and another block begins: they come behind, in their own block."""
    journal = open_with(KEYS)
    for data in ({"text": "s", "index": 0}, {"thinking": "no", "index": 1}):
        journal.append(event("llm.ai.delta", data, "c"))
    journal.append(event("llm.error", {}, "c"))
    content: Any = Streamed([one.data for one in journal.read("r") if one.kind == "llm.ai.delta"], "c").content
    assert [(block["type"], block[block["type"]]) for block in content] == [("text", "s"), ("thinking", "no")]


def test_a_retry_begins_anew(open_with: Callable[..., RunJournal]) -> None:
    """What was held back of the first attempt does not get into the second one."""
    journal = open_with(KEYS)
    journal.append(event("llm.ai.delta", {"text": "first sk"}, "c"))
    journal.append(event("llm.ai.delta", {"restart": True, "text": "-abcdefghij0123456789"}, "c"))
    journal.append(event("llm.error", {}, "c"))
    assert [one.data for one in journal.read("r")][:3] == [
        {"text": "first "},
        {"text": "sk"},
        {"restart": True, "text": "-abcdefghij0123456789"},
    ]


def test_signed_words_that_changed_lose_their_signature() -> None:
    """In pieces, too: no provider would take them with it."""

    def deltas(word: str) -> list[Any]:
        call = CallTexts(lambda path, text, before, more: (text.replace("bad", "x"), ""))
        given = ({"thinking": word, "index": 0}, {"blocks": [{"type": "thinking", "signature": "sig", "index": 0}]})
        return [found for one in given for found in call.delta(one)]

    assert deltas("good")[1]["blocks"][0]["signature"] == "sig"
    assert "signature" not in deltas("bad")[1]["blocks"][0]


def test_the_redaction_is_told_what_a_text_is(open_with: Callable[..., RunJournal]) -> None:
    """The run, the call, the kind, the place, what came before, and whether it can grow."""
    seen: list[Text] = []

    def redact(text: Text) -> str:
        seen.append(text)
        return text.text

    journal = open_with(redact)
    journal.append(event("llm.ai.delta", {"text": "one "}, "c"))
    journal.append(event("llm.ai.delta", {"text": "two"}, "c"))
    journal.append(event("tool.start", {"name": "search", "tool_call_id": "c1", "args": {"q": "words"}}, "t"))
    assert seen == [
        Text(text="one ", more=True, run_id="r", call_id="c", kind="llm.ai.delta", path=("text",)),
        Text(text="two", before="one ", more=True, run_id="r", call_id="c", kind="llm.ai.delta", path=("text",)),
        Text(text="words", run_id="r", call_id="t", kind="tool.start", path=("args", "q")),
    ]
    assert pickle.loads(pickle.dumps(seen[0])) == seen[0]


@pytest.mark.parametrize(
    "redact",
    [
        lambda text: 1 / 0,
        lambda text: None,
        lambda text: Held("", "something else"),
        lambda text: Held("", text.text) if not text.more else text.text,
        lambda text: Held(7, ""),
    ],
    ids=["raises", "no text", "not its end", "holds back a whole text", "no text held"],
)
def test_a_redaction_that_fails(
    open_with: Callable[..., RunJournal], db: Path, caplog: pytest.LogCaptureFixture, redact: Any
) -> None:
    """The event keeps its shape without the text, the next barrier says so once, and no log has the text."""
    journal = open_with(redact)
    journal.append(event("tool.start", {"name": "search", "tool_call_id": "c1", "args": {"q": SECRET}}))
    with pytest.raises(errors.RedactionFailed) as caught:
        journal.flush()
    assert (caught.value.failed, caught.value.url) == (1, journal.url)
    journal.flush()
    (start,) = journal.read("r")
    assert start.data == {"name": "search", "tool_call_id": "c1", "args": {"q": ""}}
    assert SECRET.encode() not in bytes_of(db)
    assert SECRET not in caplog.text + str(caught.value)
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


@pytest.mark.parametrize(
    ("redact", "says"),
    [
        (lambda text: 5, "a result of type int, where the journal takes a str or Held"),
        (lambda text: Held(7, ""), r"a result of type Held\(int, str\)"),
        (lambda text: Held("", "words"), "a Held with a rest, for a text that cannot grow"),
    ],
)
def test_a_redaction_that_returns_something_else(open_with: Callable[..., RunJournal], redact: Any, says: str) -> None:
    """The error says what, and not a line of this package."""
    journal = open_with(redact)
    journal.append(event("tool.start", {"name": "search", "tool_call_id": "c1", "args": {"q": SECRET}}))
    with pytest.raises(errors.RedactionFailed, match=says):
        journal.flush()


def test_ctrl_c_in_the_middle_of_a_redaction(open_with: Callable[..., RunJournal]) -> None:
    """The event and what was held back before it are kept, the text that was being redacted is not; and Ctrl-C goes on."""

    def redact(text: Text) -> str | Held:
        if "c" in text.text and text.kind == "llm.error":
            raise KeyboardInterrupt
        return Held("", text.text) if text.more else text.text

    journal = open_with(redact)
    journal.append(event("llm.ai.delta", {"text": "held"}, "c"))
    with pytest.raises(KeyboardInterrupt):
        journal.append(event("llm.error", {"error": "cut"}, "c"))
    assert [dict(one.data) for one in journal.read("r")] == [{"text": "held"}, {"error": ""}]
    with pytest.raises(errors.RedactionFailed, match="KeyboardInterrupt"):
        journal.flush()


def test_what_is_appended_in_the_middle_of_a_redaction(open_with: Callable[..., RunJournal]) -> None:
    """By the redaction itself, as by a finalizer or a signal handler: redacted as well, and behind the event at hand. It
    cannot wait for the journal."""
    journal: RunJournal

    def redact(text: Text) -> str:
        if text.text == "outer":
            journal.append(event("llm.ai.delta", {"text": f"inner {SECRET}"}, "d"))
            with pytest.raises(errors.WouldDeadlock):
                journal.flush()
        return text.text.replace(SECRET, "#")

    journal = open_with(redact)
    journal.append(event("llm.ai.delta", {"text": "outer"}, "c"))
    assert texts(journal) == ["outer", "inner #"]


def test_what_is_appended_while_the_writer_has_the_lock(open_with: Callable[..., RunJournal], db: Path) -> None:
    """As a finalizer does that runs in the middle of `refill`."""
    journal = open_with(KEYS)
    appender: Any = core_of(journal).appender
    with appender._lock:
        appender._inside = True
        journal.append(event("llm.ai.delta", {"text": f"nested {SECRET} "}, "c"))
        appender._inside = False
        assert not appender.buffers
        appender.refill(1)
        assert appender.buffers["r"].seq == 1
    journal.append(event("llm.error", {}, "c"))
    assert texts(journal) == ["nested ", "[redacted] "]


def test_many_threads(open_with: Callable[..., RunJournal]) -> None:
    """Each call keeps its own texts, in order."""
    journal = open_with(KEYS)
    pieces = ["the key ", "s", "k-abcdefg", "hij01234", "56789", " end "] * 50

    def work(number: int) -> None:
        for piece in pieces:
            journal.append(event("llm.ai.delta", {"text": piece}, f"c{number}"))
        journal.append(event("llm.error", {}, f"c{number}"))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    events = journal.read("r")
    for number in range(8):
        said = "".join(one.text for one in events if one.call_id == f"c{number}")
        assert said == "the key [redacted] end " * 50


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_redacts_as_well(db: Path) -> None:
    """With an appender of its own: what the parent held back is the parent's."""
    with RunJournal(db, redact=KEYS) as journal:
        journal.append(event("llm.ai.delta", {"text": "parent s"}, "c"))
        journal.flush()
        pid = os.fork()
        if pid == 0:
            try:
                journal.append(Event(run_id="child", kind="llm.ai.delta", data={"text": f"child {SECRET}"}, call_id="c"))
                journal.close()
            finally:
                os._exit(0)
        os.waitpid(pid, 0)
        journal.append(event("llm.error", {}, "c"))
        assert texts(journal) == ["parent ", "s"]
        assert "".join(one.text for one in journal.read("child")) == "child [redacted]"


def test_calls_that_nothing_ends_are_not_remembered_for_ever(
    open_with: Callable[..., RunJournal], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest one is ended when there are too many."""
    monkeypatch.setattr("langchain_runjournal.journal.redaction._MOST_CALLS", 3)
    journal = open_with(KEYS)
    for number in range(5):
        journal.append(event("llm.ai.delta", {"text": "s"}, f"c{number}"))
    appender: Any = core_of(journal).appender
    assert list(appender._calls) == [("r", f"c{number}") for number in (2, 3, 4)]
    assert [one.call_id for one in journal.read("r")] == ["c0", "c1"]


def test_what_waits_without_a_spool_is_redacted(db: Path) -> None:
    """The overflow holds what the redaction left."""
    with RunJournal(":memory:", redact=KEYS) as journal:
        appender: Any = core_of(journal).appender
        appender._room = 0
        with appender._lock:
            journal.append(event("llm.ai.delta", {"text": f"a {SECRET} b "}, "c"))
            journal.append(event("llm.error", {"error": SECRET}, "c"))
            assert len(appender._overflow.entries) == 2
            assert SECRET not in repr(appender._overflow.entries)
            appender._room = 10
        journal.flush()
        assert texts(journal) == ["a [redacted] b "]
