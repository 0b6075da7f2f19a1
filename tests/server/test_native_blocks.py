"""Blocks of the native dialect: frames that are encoded together are those that are encoded one by one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from langchain_runjournal import Event
from langchain_runjournal.events import Run
from langchain_runjournal.server.dialects.native import NATIVE

TEXTS = st.text(st.characters() | st.sampled_from("\x85\u2028\u2029\x0b\r\n"), max_size=5)
DATA = st.one_of(
    TEXTS.map(lambda text: {"text": text}),
    st.builds(lambda text, index: {"args": text, "index": index}, TEXTS, st.integers(0, 1)),
    st.just({"blocks": [{"type": "text", "text": "\ud800"}], "n": 1.5}),
)
CALLS = st.sampled_from([None, "call", 'a "call"\n'])
TIMES = st.one_of(st.integers(0, 4 * 10**12).map(lambda moment: moment / 1000), st.sampled_from([0.0, 5, 0.1 + 0.2]))


@given(st.lists(st.tuples(DATA, CALLS, TIMES)), st.booleans(), st.sampled_from(["run", "ä run:\n1"]))
def test_a_block_is_its_frames(facts: list[tuple[dict[str, object], str | None, float]], merge: bool, run_id: str) -> None:
    """`FrameBlock.encode` returns the bytes of all `Frame.encode`, half surrogate pairs included."""
    events = [
        Event(run_id=run_id, kind="llm.ai.delta", data=data, call_id=call, seq=seq, at=at)
        for seq, (data, call, at) in enumerate(facts, 1)
    ]
    block = NATIVE.projector(Run(run_id=run_id, thread_id="thread")).block(events, merge=merge)
    assert block.encode() == b"".join(frame.encode() for frame in block)
    assert list(block) == [block[at] for at in range(len(block))] == block[:]
    block.encode().decode()
    if not merge:
        assert len(block) == len(events)
