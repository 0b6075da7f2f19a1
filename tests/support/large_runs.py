"""Runs of any number of calls, as events: an agent with tools, subagents, helpers, retries and fallbacks; it is stopped."""

from __future__ import annotations

import random
from typing import Any

from langchain_runjournal import Event, Run
from langchain_runjournal.events.run_state import advance, begin

_BEGAN = 1_795_045_986.0
_TEXT = "The direct train leaves at eight and arrives in the afternoon with a change in **Basel** or none at all"
_WORDS = _TEXT.split()
_TOOLS = ("search_trains", "search_hotels", "weather", "read_page", "book_seat")
_PLACES = ("Hamburg", "Zürich", "Basel", "Wien", "Kopenhagen", "Amsterdam")


class _Agent:
    """An agent that writes events with a clock of its own."""

    def __init__(self, calls: int, seed: int) -> None:
        self.random = random.Random(seed)
        self.left = calls
        self.calls = 0
        self.facts: list[tuple[float, int, str, dict[str, Any], str | None]] = []

    def add(self, at: float, kind: str, data: dict[str, Any], call: str | None = None) -> None:
        self.facts.append((at, len(self.facts), kind, data, call))

    def take(self) -> str:
        self.left -= 1
        self.calls += 1
        return f"call-{self.calls}"

    def model(
        self, at: float, *, node: str, namespace: str, step: int, tools: list[tuple[str, str, dict[str, Any]]], **about: Any
    ) -> tuple[str, float]:
        """A model call that is complete; its id, and when it ends."""
        call, pick = self.take(), self.random
        model = about.pop("model", "sonnet-large")
        fails = about.pop("fails", False)
        self.add(
            at,
            "llm.start",
            {"model": model, "role": "answer", "node": node, "checkpoint_ns": namespace, "step": step, **about},
            call,
        )
        now = at + pick.uniform(0.2, 0.9)
        words = [pick.choice(_WORDS) for _ in range(pick.randint(8, 60))]
        if about.get("role") == "helper":
            words = words[:4]
        for word in words[: 5 if fails else None]:
            now += pick.expovariate(40)
            self.add(now, "llm.ai.delta", {"text": f"{word} "}, call)
        now += 0.05
        if fails:
            self.add(now, "llm.error", {"error": "RateLimitError: 429"}, call)
            return call, now
        asked = [{"id": id, "name": name, "args": args, "type": "tool_call"} for id, name, args in tools]
        usage = {"input_tokens": 400 + 90 * self.calls, "output_tokens": len(words) + 30 * len(tools)}
        message = {
            "type": "ai",
            "content": " ".join(words),
            "id": f"lc_run--{call}",
            "tool_calls": asked,
            "usage_metadata": {**usage, "total_tokens": sum(usage.values())},
            "response_metadata": {"cost": round(usage["input_tokens"] * 3e-6 + usage["output_tokens"] * 15e-6, 6)},
        }
        self.add(now, "llm.ai.response", {"message": {"type": "ai", "data": message}}, call)
        return call, now

    def tool(
        self, at: float, id: str, name: str, args: dict[str, Any], *, namespace: str, step: int, **about: Any
    ) -> tuple[str, float]:
        call = self.take()
        place = {"node": "tools", "checkpoint_ns": namespace, "step": step}
        self.add(at, "tool.start", {"tool_call_id": id, "name": name, "args": args, **place, **about}, call)
        return call, at + self.random.uniform(0.15, 2.5)

    def returns(self, at: float, call: str, id: str, name: str, text: str, **about: Any) -> None:
        message = {
            "type": "tool",
            "content": text,
            "tool_call_id": id,
            "name": name,
            "status": about.pop("status", "success"),
        }
        self.add(at, "llm.tool.result", {"tool_call_id": id, "message": {"type": "tool", "data": message}, **about}, call)

    def subagent(self, at: float, id: str, namespace: str) -> float:
        """Model, tool, model inside of a tool; when it is done."""
        inner = f"{id}-i"
        _, at = self.model(
            at + 0.02,
            node="model",
            namespace=f"{namespace}|model:{id}a",
            step=1,
            tools=[(inner, "read_page", {"page": id})],
            role="subagent",
            inside=id,
            model="haiku-small",
        )
        call, end = self.tool(
            at + 0.01, inner, "read_page", {"page": id}, namespace=f"{namespace}|tools:{id}b", step=2, inside=id
        )
        self.returns(end, call, inner, "read_page", "A long page.", inside=id)
        _, at = self.model(
            end + 0.01,
            node="model",
            namespace=f"{namespace}|model:{id}c",
            step=3,
            tools=[],
            role="subagent",
            inside=id,
            model="haiku-small",
        )
        return at

    def turn(self, at: float, step: int) -> float:
        """One answer with its tools; when all are done."""
        pick = self.random
        namespace = f"agent:{step}"
        place: dict[str, Any] = {"node": "agent", "namespace": namespace, "step": step}
        if pick.random() < 0.3 and self.left > 6:
            helper = {"node": "router", "namespace": f"router:{step}", "step": step - 1}
            _, at = self.model(at, **helper, tools=[], role="helper", model="haiku-small")
        again: dict[str, Any] = {}
        if pick.random() < 0.25 and self.left > 6:
            failed, at = self.model(at, **place, tools=[], fails=True)
            again = {"attempt": 2, "replaces": [failed]}
            if pick.random() < 0.5:
                again["model"] = "opus-other"
        room = self.left - 1
        count = min(room, pick.choice((1, 1, 2, 3, 4)))
        asked: list[tuple[str, str, dict[str, Any]]] = []
        for at_ in range(count):
            name = "researcher" if pick.random() < 0.2 and room - count >= 3 else pick.choice(_TOOLS)
            room -= 3 * (name == "researcher")
            asked.append((f"t{step}-{at_}", name, {"city": pick.choice(_PLACES), "day": "Friday"}))
        _, at = self.model(at, **place, tools=asked, **again)
        return max([self.answered(at, one, step) for one in asked], default=at)

    def answered(self, at: float, one: tuple[str, str, dict[str, Any]], step: int) -> float:
        id, name, args = one
        namespace = f"tools:{id}"
        call, end = self.tool(at + 0.01, id, name, args, namespace=namespace, step=step + 1)
        if name == "researcher":
            end = self.subagent(at + 0.01, id, namespace) + 0.01
        if self.random.random() < 0.08:
            self.add(end, "tool.error", {"tool_call_id": id, "error": "TimeoutError: no answer"}, call)
        else:
            self.returns(
                end, call, id, name, "Found:\n" + "\n".join(f"line {at}" for at in range(self.random.randint(1, 24)))
            )
        return end


def large_run(calls: int, seed: int = 1, run_id: str = "01a1f114-0fc6-75e7-9f51-8483476f4d8e") -> tuple[Run, list[Event]]:
    """Return a run of so many calls that is stopped before its last call has ended."""
    agent = _Agent(calls, seed)
    agent.add(0.0, "run.start", {"thread_id": "trip-to-hamburg", "name": "travel agent", "metadata": {}})
    asked = {"type": "human", "content": "A train to Hamburg, a quiet hotel, and the weather, please."}
    agent.add(0.01, "llm.human.input", {"message": {"type": "human", "data": asked}})
    at, step = 0.05, 1
    while agent.left > 0:
        at, step = agent.turn(at, step) + 0.02, step + 2
    ended = max(
        (fact for fact in agent.facts if fact[2] in ("llm.ai.response", "llm.tool.result", "tool.error")), default=None
    )
    assert ended is not None
    last = max(fact[0] for fact in agent.facts if fact[4] == ended[4] and fact is not ended)
    stop = last + (ended[0] - last) * 0.6
    facts = sorted(fact for fact in agent.facts if fact[0] <= stop)
    facts.append((stop, 0, "run.stop", {"cause": "stop"}, None))
    written = []
    if ended[2] == "llm.ai.response":
        facts.append((stop + 0.01, 0, "llm.ai.partial", {"cause": "stop"}, ended[4]))
        written.append({"id": f"lc_run--{ended[4]}", "type": "ai", "origin": "partial"})
    facts.append(
        (stop + 0.03, 0, "run.settled", {"outcome": "settled", "messages": written, "before": "c1", "after": "c2"}, None)
    )
    facts.append((stop + 0.04, 0, "run.end", {"status": "interrupted", "cause": "stop", "usage": _usage(facts)}, None))
    run, events = begin(run_id, _BEGAN, "owner"), []
    for seq, (when, _, kind, data, call) in enumerate(facts, 1):
        kinds: Any = kind
        events.append(Event(run_id=run_id, kind=kinds, data=data, call_id=call, seq=seq, at=round(_BEGAN + when, 4)))
        run = advance(run, events[-1])
    return run, events


def _usage(facts: list[Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    model_of = {fact[4]: fact[3]["model"] for fact in facts if fact[2] == "llm.start"}
    for fact in facts:
        if fact[2] == "llm.ai.response":
            used = found.setdefault(model_of[fact[4]], {"calls": 0, "input_tokens": 0, "output_tokens": 0})
            used["calls"] += 1
            for name in ("input_tokens", "output_tokens"):
                used[name] += fact[3]["message"]["data"]["usage_metadata"][name]
    return found
