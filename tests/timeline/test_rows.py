"""The rows of a timeline: which call is inside of what, and what is folded when there are very many."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_runjournal.timeline.calls import ModelCall
from langchain_runjournal.timeline.rows import MOST, Row, calls_of, drawn, in_sight, rows
from langchain_runjournal.timeline.timeline import Timeline, timeline
from tests.support.large_runs import large_run
from tests.timeline.test_timeline import Story


def drawn_rows(line: Timeline) -> tuple[Row, ...]:
    return rows(line.models, line.tools)


def tree(found: Any) -> list[Any]:
    """Names, each with those inside of it."""
    told = []
    for row in found:
        own = "" if row.call is None else row.call.model if isinstance(row.call, ModelCall) else str(row.call.tool_call_id)
        name = " ".join(filter(None, (own, f"[{row.name}]" if row.name else "")))
        told.append([name, *tree(row.children)] if row.children else name)
    return told


def at(namespace: str, step: int = 1) -> dict[str, Any]:
    return {"checkpoint_ns": namespace, "node": namespace.split("|")[-1].partition(":")[0], "step": step}


def test_the_calls_of_a_node_are_under_it() -> None:
    """Attempts of one task, and tools that run side by side in tasks of their own; a call that is alone names its node."""
    story = Story().begin().says("m1", "x", model="a", **at("agent:1")).add("llm.error", {"error": "429"}, "m1")
    story.answers("m2", "y", model="b", replaces=["m1"], attempt=2, **at("agent:1"))
    story.starts("c1", **at("tools:1", 2)).starts("c2", **at("tools:2", 2)).gives("c1", "c2")
    story.answers("m3", "z", model="a", **at("agent:2", 3)).ends()
    assert tree(drawn_rows(story.line)) == [["[agent]", "a", "b"], ["[tools]", "c1", "c2"], "a [agent]"]


def test_without_a_superstep_only_calls_in_a_row_are_one_visit() -> None:
    """Events that a program wrote by hand may name the node alone; and without a node, each call is a row."""
    story = Story().begin()
    for call, node in (("m1", "a"), ("m2", "a"), ("m3", "b"), ("m4", "a")):
        story.answers(call, "x", model=call, node=node)
    story.answers("m5", "x", model="m5").ends()
    assert tree(drawn_rows(story.line)) == [["[a]", "m1", "m2"], "m3 [b]", "m4 [a]", "m5"]


def test_a_subgraph_is_around_its_nodes() -> None:
    """Each visit of it is a group; one that has a single call is named by the whole way."""
    story = Story().begin().answers("m1", "x", model="m1", **at("main:1|model:1"))
    story.starts("c1", **at("main:1|tools:1", 2)).gives("c1").answers("m2", "y", model="m2", **at("main:1|model:2", 3))
    story.answers("m3", "z", model="m3", **at("side:1|1|model:1")).ends()
    assert tree(drawn_rows(story.line)) == [
        ["[main]", "m1 [model]", "c1 [tools]", "m2 [model]"],
        "m3 [side / model]",
    ]


def test_a_subagent_is_inside_of_its_tool() -> None:
    """Also where its own tools repeat the ids of the outer ones, as some providers number them anew in each answer."""
    story = Story().begin().answers("m1", "x", model="m1", tools=("c1", "c2"), **at("agent:1"))
    story.starts("c1", **at("tools:1", 2)).starts("c2", **at("tools:2", 2))
    story.answers("s1", "y", model="s1", role="subagent", inside="c1", **at("tools:1|model:1"))
    story.add("tool.start", {"tool_call_id": "c1", "name": "n", "inside": "c1", **at("tools:1|tools:9", 2)}, "inner")
    story.answers("s2", "z", model="s2", role="subagent", inside="c1", **at("tools:1|model:2", 3))
    story.answers("o", "z", model="o", role="subagent", inside="c2")
    story.gives("c1", "c2").ends()
    assert tree(drawn_rows(story.line)) == [
        "m1 [agent]",
        ["[tools]", ["c1", "s1 [model]", "c1 [tools]", "s2 [model]"], ["c2", "o"]],
    ]


def test_what_names_no_known_tool_is_a_row_of_its_own() -> None:
    """A tool of which the journal has no start, or one that began later, is around nothing."""
    story = Story().begin().answers("m1", "x", model="m1", inside="gone").answers("m2", "x", model="m2", inside="c1")
    story.starts("c1", inside="c1").gives("c1").ends()
    assert tree(drawn_rows(story.line)) == ["m1", "m2", "c1"]


@pytest.mark.parametrize("calls", [1, 9, 45])
def test_a_run_that_fits_is_all_open(calls: int) -> None:
    """Each call has a row in sight."""
    line = timeline(*large_run(calls))
    assert {row.call.seq for row in in_sight(drawn_rows(line)) if row.call} == {c.seq for c in (*line.models, *line.tools)}


def test_groups_fold_until_few_rows_are_in_sight() -> None:
    """The largest ones first: small ones stay open."""
    story = Story().begin()
    for turn in range(4):
        story.answers(f"m{turn}", "x", **at(f"agent:{turn}", 2 * turn))
        ids = [f"c{turn}-{number}" for number in range(25 if turn == 2 else 12)]
        for id in ids:
            story.starts(id, **at(f"tools:{id}", 2 * turn + 1))
        story.gives(*ids, wait=0.01)
    found = drawn_rows(story.ends().line)
    assert [row.is_open for row in found if row.children] == [True, True, False, True]
    assert len(in_sight(found)) == 8 + 36


def test_500_calls_are_a_row_for_each_node() -> None:
    """With all calls inside; nothing is lost."""
    line = timeline(*large_run(500, seed=4))
    found = drawn_rows(line)
    assert sorted(row.name for row in found) == ["agent", "router", "tools"]
    assert not any(row.is_open for row in found)
    assert sum(row.calls for row in found) == len(line.models) + len(line.tools) == 500
    assert (
        drawn(found) == {call.seq for row in found for call in calls_of(row)} == {c.seq for c in (*line.models, *line.tools)}
    )


def test_hundreds_of_nodes_share_a_row() -> None:
    """The busiest ones have a row each."""
    story = Story().begin()
    for number in range(300):
        story.answers(f"m{number}", "x", **at(f"node{number}:1", number))
        if number == 7:
            story.answers("again", "x", **at("node7:2", 999))
    found = drawn_rows(story.ends().line)
    assert len(in_sight(found)) == MOST
    assert (found[-1].name, found[-1].calls) == ("241 others", 241)
    assert ("node7", 2) in {(row.name, row.calls) for row in found}


def test_of_very_many_calls_the_first_and_the_last_have_rows() -> None:
    """And one row says how many are left out."""
    story = Story().begin()
    for number in range(5_000):
        story.answers(f"m{number}", wait=0.01, node="model")
    (group,) = drawn_rows(story.ends().line)
    (left,) = [row for row in group.children if row.call is None]
    assert len(group.children) - 1 + left.calls == 5_000
    assert len(group.children) <= 700
    seqs = [row.call.seq for row in group.children if row.call]
    assert (seqs[0], seqs[-1]) == (3, len(story.events) - 2)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 400), st.integers(0, 10_000))
def test_any_run_is_legible(calls: int, seed: int) -> None:
    """Few rows in sight, in the order of time within each list, and each call in one row."""
    line = timeline(*large_run(calls, seed))
    found = drawn_rows(line)
    assert len(in_sight(found)) <= MOST
    every = [call.seq for row in found for call in calls_of(row)]
    assert sorted(every) == sorted(call.seq for call in (*line.models, *line.tools))

    def check(inner: Any) -> None:
        began = [row.began for row in inner]
        assert began == sorted(began)
        for row in inner:
            assert row.calls == len(calls_of(row))
            check(row.children)

    check(found)
