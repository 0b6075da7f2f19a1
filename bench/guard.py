"""The cost of checking a history before each call of a model, and of repairing it."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

from langchain.agents.middleware.types import ModelRequest, ModelResponse
from langchain_core.messages import BaseMessage, HumanMessage, convert_to_openai_messages

from langchain_runjournal import RunJournal, ToolPairGuard, repair_tool_pairs

from ._models import Model
from ._stats import Sample, seconds, spread, times
from ._threads import THREAD, cut_off, history
from ._tools import Bench, heading, note, table

_LIMIT = 1e-3
_EACH = 20
_FUNCTION, _GUARD, _INFORMED = "repair_tool_pairs", "ToolPairGuard", "ToolPairGuard(journal)"
_CONVERSION = "convert_to_openai_messages"
_WHOLE, _CUT, _GAPS = "whole", "three calls open", "every tenth result missing"


def run(bench: Bench) -> None:
    """Run the section."""
    bench.begin("guard")
    count = bench.pick(1_000, 100)
    heading(f"12. Guarding the request to a model, {count:,} messages")
    with bench.directory() as directory:
        cut = next(one for one in cut_off(directory, [count]) if one.kind == "ToolNode")
        with cut.copy() as (graph, journal):
            begun = [*graph.get_state(THREAD).values["messages"], HumanMessage("Continue.", id="next")]
            histories = {_WHOLE: history(count), _CUT: begun, _GAPS: _with_gaps(count)}
            for name, messages in histories.items():
                _check(name, messages, journal)
            contenders = {
                (name, act): partial(_timed, work, messages)
                for name, messages in histories.items()
                for act, work in _acts(journal).items()
            }
            found = bench.interleave(
                "guard", {f"{name}: {act}": one for (name, act), one in contenders.items()}, _turns(bench)
            )
    samples = {key: found[f"{key[0]}: {key[1]}"] for key in contenders}
    note(f"Median of {_turns(bench)} shuffled repetitions of {_EACH} calls. ToolPairGuard: its wrap_model_call, around a")
    note("model that does nothing; with a journal, it looks there for missing results. For comparison, a conversion that")
    note("LangChain does with each history anyway.")
    table(
        ["history", "", "per call", "p25 .. p75", "to LangChain's", "target"],
        [_row(bench, count, *key, samples) for key in samples],
    )


def _turns(bench: Bench) -> int:
    return bench.pick(31, 3)


def _row(bench: Bench, count: int, name: str, act: str, found: dict[tuple[str, str], Sample]) -> list[str]:
    mine, said = found[name, act], ""
    if name == _WHOLE and act != _CONVERSION:
        said = bench.at_most(f"guard, {act}, whole history of {count:,}", mine.median, _LIMIT, seconds)
    ratio = times(mine.median / found[name, _CONVERSION].median)
    return [name if act == _FUNCTION else "", act, seconds(mine.median), spread(mine), ratio, said]


def _with_gaps(count: int) -> list[BaseMessage]:
    results = [message for message in history(count) if message.type == "tool"]
    gone = {message.id for message in results[::10]}
    return [message for message in history(count) if message.id not in gone]


def _acts(journal: RunJournal) -> dict[str, Callable[[list[BaseMessage]], object]]:
    acts: dict[str, Callable[[list[BaseMessage]], object]] = {
        _FUNCTION: repair_tool_pairs,
        _GUARD: partial(_guarded, ToolPairGuard()),
        _INFORMED: partial(_guarded, ToolPairGuard(journal)),
        _CONVERSION: convert_to_openai_messages,
    }
    return acts


def _guarded(guard: ToolPairGuard, messages: list[Any]) -> list[Any]:
    runtime: Any = SimpleNamespace(execution_info=SimpleNamespace(thread_id=THREAD["configurable"]["thread_id"]))
    given: list[Any] = []
    request: Any = ModelRequest(model=Model(), messages=messages, runtime=runtime)

    def model(called: Any) -> Any:
        given.append(called.messages)
        return ModelResponse(result=[])

    guard.wrap_model_call(request, model)
    made_whole: list[Any] = given[0]
    return made_whole


def _check(name: str, messages: list[BaseMessage], journal: RunJournal) -> None:
    repaired = repair_tool_pairs(messages)
    if (repaired is messages) is not (name == _WHOLE) or repair_tool_pairs(repaired) is not repaired:
        raise AssertionError(f"a history ({name}) was not repaired as it should be")
    if name == _CUT:
        results = [one for one in _guarded(ToolPairGuard(journal), messages) if one.type == "tool"]
        if [one.status for one in results[-3:]] != ["success", "success", "error"]:
            raise AssertionError("the guard did not find the results of the journal")


def _timed(work: Callable[[list[BaseMessage]], object], messages: list[BaseMessage]) -> float:
    gc.collect()
    began = time.perf_counter()
    for _ in range(_EACH):
        work(messages)
    return (time.perf_counter() - began) / _EACH
