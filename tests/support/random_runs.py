"""Random runs, as events: text, reasoning, parallel tools, pauses, and runs that are cut off."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from langchain_runjournal import Event

_WORDS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
_CALLS = st.sampled_from(["c1", "c2", "c3"])


def _event(kind: Any, data: Any, call: str | None = None) -> tuple[Any, Any, str | None]:
    return kind, data, call


_STEPS: Any = st.one_of(
    st.builds(lambda text, call: _event("llm.ai.delta", {"text": text}, call), _WORDS, _CALLS),
    st.builds(
        lambda text, key, at, call: _event("llm.ai.delta", {key: text, "index": at}, call),
        _WORDS,
        st.sampled_from(["text", "reasoning", "thinking", "args"]),
        st.integers(0, 2),
        _CALLS,
    ),
    st.builds(lambda call: _event("llm.start", {"role": "answer"}, call), _CALLS),
    st.builds(
        lambda text, call: _event("llm.ai.response", {"message": {"type": "ai", "data": {"content": text}}}, call),
        _WORDS,
        _CALLS,
    ),
    st.builds(lambda call: _event("llm.ai.partial", {"cause": "stop"}, call), _CALLS),
    st.builds(lambda call: _event("tool.start", {"tool_call_id": call, "name": "look", "args": {"n": 1}}, call), _CALLS),
    st.builds(
        lambda text, call: _event(
            "llm.tool.result", {"message": {"type": "tool", "data": {"content": text, "tool_call_id": call}}}, call
        ),
        _WORDS,
        _CALLS,
    ),
    st.builds(lambda call: _event("tool.error", {"error": "no"}, call), _CALLS),
    st.builds(
        lambda text: _event("run.custom", {"value": {"at": text}, "ns": ["sub:1"], "node": "look", "name": None}), _WORDS
    ),
    st.just(_event("run.checkpoint", {"applied": "x", "step": 1})),
    st.just(_event("run.pause", {"interrupts": [{"value": "May I?"}]})),
    st.just(_event("run.stop", {"cause": "stop"})),
)
_ENDS: Any = st.sampled_from(
    [
        _event("run.end", {"status": "completed"}),
        _event("run.end", {"status": "interrupted", "cause": "stop"}),
        _event("run.end", {"status": "failed", "error": "ValueError: no"}),
    ]
)
_LATE: Any = st.lists(st.just(_event("llm.tool.result", {"late": True})), max_size=2)


@st.composite
def runs(draw: Any, *, ended: bool = True) -> list[Any]:
    """Return the events of a run as functions of its id. `ended`: the run has its end, and maybe late events behind it."""
    facts = [_event("run.start", {"thread_id": "t", "name": "agent"}), *draw(st.lists(_STEPS, max_size=12))]
    if ended:
        facts += [draw(_ENDS), *draw(_LATE)]
    return facts


def events_of(run_id: str, facts: list[Any], thread_id: str | None = "t") -> list[Event]:
    """Return the events of a run with this id."""
    found = []
    for kind, data, call in facts:
        if kind == "run.start":
            data = {**data, "thread_id": thread_id}
        found.append(Event(run_id=run_id, kind=kind, data=data, call_id=call))
    return found
