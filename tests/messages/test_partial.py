"""What is left of an answer that is cut off, wherever it is cut."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.language_models import BaseChatModel
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.messages.ai import add_ai_message_chunks
from langchain_core.outputs import ChatGenerationChunk, ChatResult

from langchain_runjournal import JournalCallbackHandler, RunJournal, is_partial
from langchain_runjournal.messages.chunks import chunk_delta, short_json, stream_event_delta
from langchain_runjournal.messages.partial import partial_message
from langchain_runjournal.messages.stream_assembly import Streamed
from tests.support.streams import STREAMS, long_argument

pytestmark = pytest.mark.guarantee("partial answer")


class Replay(BaseChatModel):
    """Gives the chunks of a recorded stream."""

    chunks: list[AIMessageChunk]

    @property
    def _llm_type(self) -> str:
        return "replay"

    def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
        raise NotImplementedError

    def _stream(self, *args: Any, **kwargs: Any) -> Iterator[ChatGenerationChunk]:
        for chunk in self.chunks:
            yield ChatGenerationChunk(message=chunk.model_copy(deep=True))


def cut(journal: RunJournal, chunks: list[AIMessageChunk], after: int) -> tuple[UUID, list[AIMessageChunk]]:
    """Stream, and leave after so many chunks."""
    run_id = uuid4()
    stream = Replay(chunks=chunks).stream("?", {"callbacks": [JournalCallbackHandler(journal)], "run_id": run_id})
    seen = [next(stream) for _ in range(after)]
    stream.close()  # type: ignore[attr-defined]
    return run_id, seen


CUTS = [
    pytest.param(stream, after, id=f"{name}-{after}")
    for name, stream in STREAMS.items()
    for after in range(1, len(stream()) + 1)
]


@pytest.mark.parametrize(("stream", "after"), CUTS)
def test_a_cut_leaves_exactly_the_visible_text(
    journal: RunJournal, stream: Callable[[], list[AIMessageChunk]], after: int
) -> None:
    """After any chunk: the words that LangChain's own addition makes of what was seen, under the id of the stream."""
    run_id, seen = cut(journal, stream(), after)
    # Of fresh chunks: those that were seen LangChain 1.4 has changed while it added them itself.
    whole = add_ai_message_chunks(*stream()[:after])
    partials = [message for message in journal.transcript(str(run_id)) if is_partial(message)]
    if not whole.text.strip():
        assert partials == []
    else:
        (partial,) = partials
        assert partial.text == whole.text
        assert partial.id == add_ai_message_chunks(seen[0], *seen[1:]).id
    recorded = [event for event in journal.read(str(run_id)) if event.kind == "llm.ai.partial"]
    assert len(recorded) == len(partials)


@pytest.mark.parametrize(("stream", "after"), CUTS)
def test_a_cut_leaves_nothing_that_could_be_executed_or_refused(
    journal: RunJournal, stream: Callable[[], list[AIMessageChunk]], after: int
) -> None:
    """No tool call, no block of one, no thought without a signature, no thought at the end, no id of a provider's item."""
    run_id, _ = cut(journal, stream(), after)
    for message in journal.transcript(str(run_id)):
        if not is_partial(message):
            continue
        assert isinstance(message, AIMessage)
        assert (message.tool_calls, message.invalid_tool_calls) == ([], [])
        assert set(message.additional_kwargs) == {"runjournal"}
        assert message.response_metadata["finish_reason"] == "interrupted"
        assert "id" not in message.response_metadata
        blocks = message.content if isinstance(message.content, list) else []
        kinds = [block["type"] for block in blocks if isinstance(block, dict)]
        assert not set(kinds) & {"tool_use", "function_call", "tool_call_chunk", "input_json_delta", "tool_call"}
        assert kinds.count("server_tool_use") == kinds.count("web_search_tool_result")
        for block in blocks:
            if isinstance(block, dict):
                assert "index" not in block
                assert block["type"] != "text" or "id" not in block
                if block["type"] in ("thinking", "reasoning"):
                    assert block.get("signature") or block["extras"]["signature"]
        assert not kinds or kinds[-1] == "text" or isinstance(blocks[-1], str) or kinds[-1] == "web_search_tool_result"


def test_a_signed_thought_stays_and_an_unsigned_one_goes(journal: RunJournal) -> None:
    """Anthropic: the thought is kept, whole, once text follows it; Gemini's, which nobody has signed, is not."""
    kept = journal.transcript(str(cut(journal, STREAMS["anthropic"](), 6)[0]))[-1]
    assert kept.content == [
        {"type": "thinking", "thinking": "The user wants it gone.", "signature": "c2lnbmVk"},
        {"type": "text", "text": "I will "},
    ]
    assert journal.transcript(str(cut(journal, STREAMS["gemini"](), 4)[0]))[-1].content == "Well, here it is"


def test_a_thought_is_never_the_last_thing_said() -> None:
    """Even a signed one: providers refuse a message that ends so. What is said before it stays."""
    blocks = [
        {"type": "text", "text": "First. ", "index": 0},
        {"type": "thinking", "thinking": "Then?", "signature": "s", "index": 1},
    ]
    partial = partial_message(Streamed([{"blocks": blocks}], "c"), run_id="r", call_id="c", reason="stop")
    assert partial is not None
    assert partial["data"]["content"] == [{"type": "text", "text": "First. "}]


def test_requests_are_told_of_and_not_made(journal: RunJournal) -> None:
    """Which tools were asked for, and which of the requests was complete, is in the mark of the message."""
    partial = journal.transcript(str(cut(journal, STREAMS["openai"](), 8)[0]))[-1]
    mark = partial.additional_kwargs["runjournal"]
    assert mark["calls"] == [
        {"id": "call_1", "name": "rm", "final": True},
        {"id": "call_2", "name": "ls", "final": False},
    ]
    assert (mark["origin"], mark["reason"], partial.response_metadata["model_provider"]) == (
        "partial",
        "disconnect",
        "openai",
    )


@pytest.mark.parametrize("odd", [{}, {"odd": object}], ids=["bytes only", "beside something that is no JSON"])
@pytest.mark.parametrize("place", [":memory:", "runs.db"])
def test_bytes_of_a_message_come_back(place: str, odd: dict[str, Any], tmp_path: Path) -> None:
    """Gemini keeps its audio in `additional_kwargs` as bytes, Bedrock its pictures in blocks; look-alikes stay."""
    audio = bytes(range(256)) * 8
    other = {"runjournal_bytes": "no base64!", "also": {"runjournal_bytes": "AAAA", "beside": 1}}
    content: list[Any] = [{"type": "text", "text": "Hear"}, {"image": {"source": {"bytes": bytearray(b"\xff\xd8")}}}]
    said = AIMessage(content, additional_kwargs={"audio": audio, "also": [audio[:3], other], **odd})
    with RunJournal(place if place == ":memory:" else str(tmp_path / place)) as journal:
        config: Any = {"callbacks": [JournalCallbackHandler(journal)], "run_id": uuid4()}
        GenericFakeChatModel(messages=iter([said])).invoke("?", config)
        journal.flush()
        (message,) = [one for one in journal.transcript(str(config["run_id"])) if isinstance(one, AIMessage)]
        assert message.content == content
        assert {key: message.additional_kwargs[key] for key in ("audio", "also")} == {
            "audio": audio,
            "also": [audio[:3], other],
        }
        # What is read as JSON is JSON.
        json.dumps([event.to_dict() for event in journal.read(str(config["run_id"]))])


def drive(journal: RunJournal, chunks: list[AIMessageChunk]) -> str:
    """Tell the handler of a stream that never ends, without LangChain's own addition at its end."""
    handler, run_id = JournalCallbackHandler(journal), uuid4()
    handler.on_chat_model_start({}, [[]], run_id=run_id)
    for chunk in chunks:
        handler.on_llm_new_token(chunk.content, chunk=ChatGenerationChunk(message=chunk), run_id=run_id)
    assert journal.run(str(run_id)).status == "running"
    return str(run_id)


def test_a_cut_inside_of_an_escape_of_a_long_argument(journal: RunJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    """50 kB of arguments, cut after each fragment: never through LangChain's parser, which needs seconds there and makes a
    valid call of the half."""
    args, chunks = long_argument()
    assert any(chunk.tool_call_chunks[0]["args"].endswith("\\u") for chunk in chunks[2:])
    run_ids = [drive(journal, chunks[:after]) for after in range(3, len(chunks) + 1)]
    parsed: list[object] = []
    monkeypatch.setattr("langchain_core.messages.ai.parse_partial_json", parsed.append)
    for number, run_id in enumerate(run_ids, 3):
        (partial,) = journal.transcript(run_id)
        assert isinstance(partial, AIMessage)
        assert partial.text == "Writing. "
        assert partial.tool_calls == []
        final = number == len(chunks)
        assert partial.additional_kwargs["runjournal"]["calls"] == [{"id": "w1", "name": "write", "final": final}]
    assert parsed == []
    whole = Streamed([event.data for event in journal.read(run_ids[-1]) if event.kind == "llm.ai.delta"], "c")
    assert whole.calls[0]["args"] == args


@pytest.mark.parametrize("name", STREAMS)
def test_putting_together_agrees_with_langchain(name: str) -> None:
    """Not only the words: all the content and the requests of a whole stream, as LangChain would add them."""
    chunks = STREAMS[name]()
    streamed = Streamed(deltas_of(chunks), "c")
    whole = add_ai_message_chunks(*chunks)
    ours = streamed.content
    theirs = [block for block in whole.content if block != ""] if isinstance(whole.content, list) else whole.content
    assert ours == theirs
    told = [{key: call[key] for key in ("name", "args", "id")} for call in whole.tool_call_chunks]
    assert [{key: call.get(key) for key in ("name", "args", "id")} for call in streamed.calls] == told


def deltas_of(chunks: list[AIMessageChunk]) -> list[Any]:
    """What the handler makes of chunks."""
    deltas: list[Any] = []
    for chunk in chunks:
        short = short_json(chunk.content, chunk.tool_call_chunks)
        deltas.append(json.loads(short) if short else chunk_delta(chunk.__dict__, None, None))
    return deltas


TEXTS = st.text(max_size=4)
BLOCKS = st.builds(
    lambda kind, words, index: {"type": kind, kind: words, "index": index},
    st.sampled_from(["text", "thinking", "reasoning"]),
    TEXTS,
    st.integers(0, 2),
)
CALLS = st.builds(lambda args, index, first: tool_call_chunk_of(args, index, first), TEXTS, st.integers(0, 2), st.booleans())


def tool_call_chunk_of(args: str, index: int, first: bool) -> dict[str, Any]:
    named = {"name": "f", "id": f"id{index}"} if first else {"name": None, "id": None}
    return {**named, "args": args, "index": index, "type": "tool_call_chunk"}


@given(st.lists(st.tuples(st.one_of(TEXTS, st.lists(BLOCKS, max_size=2)), st.lists(CALLS, max_size=2)), max_size=12))
def test_words_are_never_lost(parts: list[tuple[Any, list[dict[str, Any]]]]) -> None:
    """Whatever mixture of strings, blocks and fragments comes, every word is in what is put together."""
    deltas: list[Any] = []
    words = fragments = 0
    for content, calls in parts:
        if isinstance(content, str):
            words += len(content)
        else:
            words += sum(len(block[block["type"]]) for block in content)
        fragments += sum(len(call["args"]) for call in calls)
        short = short_json(content, calls)
        fields = {"content": content, "tool_call_chunks": calls}
        deltas.append(json.loads(short) if short else chunk_delta(fields, None, None))
    streamed = Streamed(deltas, "c")
    content = streamed.content
    if isinstance(content, str):
        assert len(content) == words
    else:
        kinds = ("text", "thinking", "reasoning")
        assert words == sum(
            len(one) if isinstance(one, str) else sum(len(one.get(key, "")) for key in kinds) for one in content
        )
    assert sum(len(call["args"]) for call in streamed.calls) == fragments


def test_the_event_protocol_says_the_same() -> None:
    """The v3 events of a message, as far as they came, leave the same partial as its chunks."""
    events = [
        {"event": "message-start", "role": "ai", "id": "lc_run--c"},
        {"event": "content-block-start", "index": 0, "content": {"type": "text", "text": ""}},
        {"event": "content-block-delta", "index": 0, "delta": {"type": "text-delta", "text": "One "}},
        {"event": "content-block-delta", "index": 0, "delta": {"type": "text-delta", "text": "two"}},
        {
            "event": "content-block-start",
            "index": 1,
            "content": {"type": "tool_call_chunk", "id": "t", "name": "f", "args": ""},
        },
        {"event": "content-block-delta", "index": 1, "delta": {"type": "tool-call-delta", "args": '{"a": 1'}},
        {"event": "content-block-start", "index": 2, "content": {"type": "image", "mime_type": "image/png"}},
        {"event": "content-block-delta", "index": 2, "delta": {"type": "data-delta", "data": "AAAA"}},
        {"event": "content-block-finish", "index": 0, "content": {"type": "text", "text": "One two"}},
        {
            "event": "content-block-finish",
            "index": 1,
            "content": {"type": "tool_call", "id": "t", "name": "f", "args": {"a": 1}},
        },
        {
            "event": "content-block-finish",
            "index": 2,
            "content": {"type": "image", "mime_type": "image/png", "base64": "AAAA"},
        },
        {"event": "message-finish", "usage": {"input_tokens": 1}, "metadata": {"finish_reason": "tool_calls"}},
    ]
    for count in range(len(events) + 1):
        deltas = [delta for event in events[:count] if (delta := stream_event_delta(event))]
        partial = partial_message(Streamed(deltas, "c"), run_id="r", call_id="c", reason="stop")
        if count < 3:
            assert partial is None
            continue
        assert partial is not None
        content = partial["data"]["content"]
        assert content[0] == {"type": "text", "text": "One " if count == 3 else "One two"}
        assert content[1:] == ([{"type": "image", "mime_type": "image/png", "base64": "AAAA"}] if count >= 11 else [])
        calls = partial["data"]["additional_kwargs"]["runjournal"].get("calls")
        assert calls == (None if count < 5 else [{"id": "t", "name": "f", "final": count >= 10}])


def test_what_the_provider_ran_itself_is_no_request_in_the_event_protocol() -> None:
    """A server's tool call stands in the content with its result, and never among the calls that were not run."""
    call = {"type": "server_tool_call", "id": "srvtoolu_1", "name": "web_search", "args": {"q": "x"}}
    found = {"type": "server_tool_result", "tool_call_id": "srvtoolu_1", "status": "success"}
    events = [
        {"event": "content-block-start", "index": 0, "content": {**call, "type": "server_tool_call_chunk", "args": ""}},
        {"event": "content-block-delta", "index": 0, "delta": {"type": "tool-call-delta", "args": '{"q": "x"}'}},
        {"event": "content-block-finish", "index": 0, "content": call},
        {"event": "content-block-finish", "index": 1, "content": found},
        {"event": "content-block-start", "index": 2, "content": {"type": "text", "text": ""}},
        {"event": "content-block-delta", "index": 2, "delta": {"type": "text-delta", "text": "Found"}},
    ]
    text = {"type": "text", "text": "Found"}
    for missing, content in ((None, [call, found, text]), (3, [text]), (2, [text])):
        deltas = [delta for at, event in enumerate(events) if at != missing and (delta := stream_event_delta(event))]
        partial = partial_message(Streamed(deltas, "c"), reason="stop")
        assert partial is not None
        assert partial["data"]["content"] == content
        assert "calls" not in partial["data"]["additional_kwargs"]["runjournal"]


STANDARD = {"model_provider": "anthropic", "output_version": "v1"}
SEALED = {"type": "non_standard", "value": {"type": "redacted_thinking", "data": "x", "index": 1}, "index": 1}
UNSEALED = {"type": "non_standard", "value": {"type": "redacted_thinking"}, "index": 1}
WORDS = {"type": "text", "text": "said"}
CODE = {"type": "executable_code", "executable_code": "1", "language": "PYTHON", "id": "u1"}
RESULT = {"type": "code_execution_result", "code_execution_result": "1", "outcome": 1, "tool_call_id": ""}
CODE_V1 = {"type": "server_tool_call", "name": "code_interpreter", "args": {"code": "1"}, "id": "u1"}
RESULT_V1 = {"type": "server_tool_result", "tool_call_id": "", "status": "success", "output": "1"}


@pytest.mark.parametrize(
    ("blocks", "metadata", "left"),
    [
        ([SEALED], STANDARD, None),
        ([SEALED, WORDS], STANDARD, [{"type": "non_standard", "value": {"type": "redacted_thinking", "data": "x"}}, WORDS]),
        ([UNSEALED, WORDS], STANDARD, [WORDS]),
        ([WORDS, SEALED], STANDARD, [WORDS]),
        ([WORDS, SEALED, {"type": "text", "text": "\n"}], STANDARD, [WORDS, {"type": "text", "text": "\n"}]),
        (["a", {"type": "thinking", "thinking": "hm"}, "b"], {}, "ab"),
        ([{"type": "thinking", "thinking": "hm", "index": 0}, "a"], {}, "a"),
        (["a", "b", WORDS], STANDARD, [{"type": "text", "text": "ab"}, WORDS]),
        (
            ["a", {"type": "image", "url": "u"}, "b"],
            {},
            [{"type": "text", "text": "a"}, {"type": "image", "url": "u"}, {"type": "text", "text": "b"}],
        ),
        ([WORDS, WORDS], {}, [WORDS, WORDS]),
        ([{**WORDS, "index": 1, "thinking": [{"type": "text", "text": "hm"}]}], {}, [WORDS]),
        ([CODE], {}, None),
        ([CODE, RESULT], {}, None),
        ([CODE, WORDS], {}, [WORDS]),
        ([RESULT, WORDS], {}, [WORDS]),
        (["", CODE, "", RESULT, "so"], {}, [CODE, RESULT, {"type": "text", "text": "so"}]),
        ([CODE_V1, RESULT_V1, WORDS], STANDARD, [CODE_V1, RESULT_V1, WORDS]),
        ([CODE_V1, WORDS, RESULT_V1, WORDS], STANDARD, [WORDS, WORDS]),
        ([WORDS, {"type": "function_call_signature", "signature": "s", "index": 0}], {}, [WORDS]),
        ([{"type": "function_call_signature", "signature": "s", "index": 0}], {}, None),
    ],
)
def test_what_stays_of_blocks(blocks: list[Any], metadata: dict[str, Any], left: Any) -> None:
    """A sealed thought before words only; a content of one form: a text, or blocks and nothing but blocks."""
    partial = partial_message(Streamed([{"blocks": blocks, "metadata": metadata}], "c"), reason="stop")
    assert (partial["data"]["content"] if partial else None) == left
