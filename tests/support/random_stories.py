"""Random runs, as the journal records them: parallel answers and helpers, tools, retries, pauses, custom events, cuts."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from typing import Any

from langchain_runjournal import Event, Run
from langchain_runjournal.events import KINDS
from langchain_runjournal.events.run_state import advance, begin

WORDS = ("so ", "it ", "is\n", "“quoted” ", "ünd ", "<b>no markup</b> ", "\u2028", "  ", "end")
CAUSES = ("stop", "timeout", "shutdown", "crash", "disconnect")


class _Call:
    """One model call: its deltas, and the message that they add up to."""

    def __init__(self, rng: random.Random, id: str, role: str) -> None:
        self.rng, self.id, self.role = rng, id, role
        self.deltas: list[Any] = []
        self.calls: list[dict[str, Any]] = []
        self.content: Any = ""
        self.kwargs: dict[str, Any] = {}
        rng.choice([self._plain, self._blocks, self._beside, self._whole])()
        if rng.random() < 0.5:
            self._ask()

    def _words(self) -> list[str]:
        return [self.rng.choice(WORDS) for _ in range(self.rng.randrange(1, 6))]

    def _plain(self) -> None:
        words = self._words()
        self.content = "".join(words)
        self.deltas = [{"text": word} for word in words]

    def _whole(self) -> None:
        self.content = "".join(self._words())

    def _beside(self) -> None:
        thoughts, words = self._words(), self._words()
        self.kwargs, self.content = {"reasoning_content": "".join(thoughts)}, "".join(words)
        self.deltas = [{"kwargs": {"reasoning_content": one}} for one in thoughts] + [{"text": word} for word in words]

    def _blocks(self) -> None:
        self.content, kinds = [], self.rng.choices(["thinking", "reasoning", "text", "text"], k=self.rng.randrange(1, 4))
        if self.rng.random() < 0.3:
            self.deltas.append({"text": "of the first try ", "index": 7})
            self.deltas.append({"restart": True})
        for index, kind in enumerate(kinds):
            words = self._words()
            self.content.append({"type": kind, kind: "".join(words), "index": index})
            self.deltas.append({"blocks": [{"type": kind, kind: words[0], "index": index}]})
            self.deltas += [{kind: word, "index": index} for word in words[1:]]
        if kinds[-1] == "text" and self.rng.random() < 0.3:
            self.content[-1]["annotations"] = [{"type": "citation", "url": "https://example.org/a", "title": "A"}]
            self.deltas.append({"finish": {"type": "text", "index": len(kinds) - 1, **_cited(self.content[-1])}})

    def _ask(self) -> None:
        for number in range(self.rng.randrange(1, 3)):
            args = {"q": "".join(self._words())}
            call = {
                "name": self.rng.choice(["search", "rm"]),
                "args": args,
                "id": f"{self.id}-{number}",
                "type": "tool_call",
            }
            self.calls.append(call)
            if self.deltas:
                text, index = json.dumps(args), 10 + number
                self.deltas.append({"tool_calls": [{"name": call["name"], "args": "", "id": call["id"], "index": index}]})
                at = self.rng.randrange(len(text))
                self.deltas += [{"args": text[:at], "index": index}, {"args": text[at:], "index": index}]

    def message(self) -> dict[str, Any]:
        data = {
            "content": self.content,
            "id": f"lc_run--{self.id}",
            "tool_calls": self.calls,
            "additional_kwargs": self.kwargs,
        }
        return {"type": "ai", "data": {"type": "ai", **data}}


def _cited(block: Mapping[str, Any]) -> dict[str, Any]:
    return {"annotations": block["annotations"]}


class RandomRun:
    """One run, whose events follow from a seed."""

    def __init__(self, seed: int, run_id: str = "5f0c1d6e-0000-4000-8000-000000000001") -> None:
        self.rng = random.Random(seed)
        self.run_id, self.events = run_id, list[Event]()
        self.calls = 0
        self.ending = "open"
        self._write()

    def __repr__(self) -> str:
        return "\n".join(f"{one.seq} {one.kind} {one.call_id} {dict(one.data)}" for one in self.events)

    @property
    def run(self) -> Run:
        run = begin(self.run_id, 1.0, "owner")
        for event in self.events:
            run = advance(run, event)
        return run

    def add(self, kind: Any, data: Mapping[str, Any], call: str | None = None) -> None:
        if kind in KINDS:
            self.events.append(
                Event(run_id=self.run_id, kind=kind, data=data, call_id=call, seq=len(self.events) + 1, at=1.0)
            )

    def _write(self) -> None:
        self.add("run.start", {"thread_id": "t", "name": "agent", "metadata": {}})
        self.add("llm.human.input", {"message": {"type": "human", "data": {"content": "hi", "type": "human", "id": "h"}}})
        for step in range(self.rng.randrange(1, 4)):
            self._superstep(step)
        if self.rng.random() < 0.2:
            self.add("run.pause", {"interrupts": [{"id": "i1", "value": {"ok?": 1}}]})
        self._end()

    def _superstep(self, step: int) -> None:
        tasks = [self._task(step, number) for number in range(self.rng.randrange(1, 4))]
        while tasks:
            task = self.rng.choice(tasks)
            if next(task, None) is None:
                tasks.remove(task)

    def _task(self, step: int, number: int) -> Iterator[bool]:
        """Yield after each event, so that tasks are interleaved."""
        rng, name = self.rng, f"node:{step}{number}"
        role = rng.choices(["answer", "helper", "subagent"], [7, 2, 1])[0]
        replaces: list[str] = []
        for attempt in range(1, 4):
            self.calls += 1
            call = _Call(rng, f"c{self.calls}", role)
            about = {"model": "m", "role": role, "task": name, "task_step": step, "attempt": attempt}
            self.add("llm.start", {**about, **({"replaces": replaces} if replaces else {})}, call.id)
            yield True
            fails = rng.random() < 0.3 and attempt < 3
            said = call.deltas[: rng.randrange(len(call.deltas) + 1)] if fails else call.deltas
            for delta in said:
                self.add("llm.ai.delta", delta, call.id)
                self._maybe_custom()
                yield True
            if not fails:
                break
            self.add("llm.error", {"error": "ConnectionError: secret"}, call.id)
            if said:
                self.add("llm.ai.partial", {"error": "ConnectionError: secret"}, call.id)
            replaces = [call.id]
            yield True
        changed = {"role": "helper"} if role == "answer" and rng.random() < 0.1 else {}
        self.add("llm.ai.response", {"message": call.message(), **changed}, call.id)
        yield True
        yield from self._decide(call, {**changed, "role": changed.get("role", role)}["role"], name, step)

    def _decide(self, call: _Call, role: str, name: str, step: int) -> Iterator[bool]:
        rng = self.rng
        gave = role == "answer" if rng.random() < 0.85 else role == "helper"
        end: dict[str, Any] = {"gave": [call.id] if gave else [], "kept": [] if gave else [call.id]}
        if rng.random() < 0.15:
            message = {"type": "ai", "data": {"type": "ai", "content": "of the node itself", "id": f"own-{call.id}"}}
            if gave and rng.random() < 0.5:
                message["data"] = {**call.message()["data"], "content": "other words"}
            end["messages"] = [message]
        self.add("task.end", {"node": "n", "task": name, "task_step": step, **end}, None)
        yield True
        for one in call.calls if gave or rng.random() < 0.2 else ():
            self.add("tool.start", {"tool_call_id": one["id"], "name": one["name"], "args": one["args"]}, f"t-{one['id']}")
            yield True
            if rng.random() < 0.2:
                inside = {"model": "m", "role": "subagent", "inside": one["id"]}
                self.add("llm.start", inside, f"in-{one['id']}")
                self.add("llm.ai.delta", {"text": "said inside"}, f"in-{one['id']}")
                yield True
            if rng.random() < 0.9:
                data = {"content": f"found by {one['id']}", "tool_call_id": one["id"], "name": one["name"], "type": "tool"}
                data["status"] = rng.choice(["success", "success", "error"])
                self.add("llm.tool.result", {"tool_call_id": one["id"], "message": {"type": "tool", "data": data}})
            yield True

    def _maybe_custom(self) -> None:
        if self.rng.random() < 0.1:
            value = self.rng.choice([1, "two", {"type": "progress", "id": "p", "done": 0.5}, {"__proto__": {"x": 1}}])
            self.add(
                "run.custom", {"value": value, "ns": [], "node": "n", "name": self.rng.choice([None, "weather", "partial"])}
            )

    def _end(self) -> None:
        """End the run well, or cut it off after any of its events."""
        self.ending = self.rng.choice(["completed", "interrupted", "interrupted", "failed", "open"])
        if self.ending != "completed":
            del self.events[self.rng.randrange(1, len(self.events) + 1) :]
        if self.ending == "interrupted":
            self.add("run.end", {"status": "interrupted", "cause": self.rng.choice(CAUSES)})
        elif self.ending == "failed":
            self.add("run.end", {"status": "failed", "error": "KeyError: 'secret'"})
        elif self.ending == "completed":
            self.add("run.end", {"status": "completed"})
