"""A storm over three machines: cables are pulled, machines and the server go away, and messages arrive all the time.

``make machines`` runs it. MACHINES_SEED and MACHINES_STEPS repeat or prolong a storm.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter

import pytest

from tests.support.company import NAMES, Company, new_thread, until
from tests.support.starter import PATIENCE, Failed

pytestmark = [pytest.mark.slow, pytest.mark.storm, pytest.mark.timeout(1800)]

STEPS = int(os.environ.get("MACHINES_STEPS", "30"))
SAYS = ("hello {}", "count 20 {}", "work {}")


class Client:
    """It sends messages to the worker of one machine, one after the other, whatever happens to that machine."""

    def __init__(self, company: Company, name: str, threads: list[str], seed: int) -> None:
        self.company, self.name, self.threads = company, name, threads
        self.random = random.Random(f"{seed} {name}")
        self.sent: dict[str, tuple[str, str]] = {}
        """By message: its thread, and how its run ended, or the error that the client got."""
        self.away, self.idle, self.over = threading.Event(), threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self.over.is_set():
            if self.away.is_set():
                self.idle.set()
                time.sleep(0.02)
                continue
            self.idle.clear()
            text = self.random.choice(SAYS).format(f"{self.name}{len(self.sent)}")
            thread = self.random.choice(self.threads)
            self.sent[text] = thread, self._send(thread, text)

    def _send(self, thread: str, text: str) -> str:
        try:
            worker = self.company.workers[self.name]
            asked = worker.ask("send", thread=thread, text=text, if_busy=self.random.choice(["wait", "wait", "stop"]))
            while not asked.done():
                if worker.process.poll() is not None:
                    return "killed"
                time.sleep(0.01)
            return str(asked.result()["status"])
        except Failed as failed:
            return failed.error
        except OSError:
            return "killed"


@pytest.mark.parametrize("company", ["postgres", "redis"], indirect=True)
def test_a_storm(company: Company) -> None:
    """A message whose run has completed is in its thread once, with its answer. Every thread is whole, and every run has
    ended. No model ever gets a broken history."""
    seed = int(os.environ.get("MACHINES_SEED", time.time_ns() % 10**6))
    chance, threads = random.Random(seed), [new_thread() for _ in range(6)]
    for worker in company.all():
        worker.do("open_gate")
    clients = [Client(company, name, threads, seed) for name in NAMES]
    for client in clients:
        client.thread.start()
    logs: list[str] = []
    try:
        for _ in range(STEPS):
            time.sleep(chance.uniform(0.2, 1.5))
            hit(company, chance, {client.name: client for client in clients}, logs)
    finally:
        company.mend()
        for client in clients:
            client.over.set()
            client.thread.join(PATIENCE)
    until(lambda: all(not worker.do("recover") and settled(company, threads) for worker in company.all()))
    logs += company.logs().values()
    assert "RequestRefused" not in "".join(logs)
    check(company, threads, clients, seed)


def hit(company: Company, chance: random.Random, clients: dict[str, Client], logs: list[str]) -> None:
    """Let one fault happen."""
    name = chance.choice(NAMES)
    machine = company.machine(name)
    match chance.choice(["cut", "cut", "kill", "server", "slow"]):
        case "cut":
            machine.cut()
            time.sleep(chance.choice([0.3, 1.0, company.lease + 1, 2 * company.lease]))
            machine.restore()
        case "server":
            company.machine("db").cut()
            time.sleep(chance.choice([0.3, 1.0, company.lease + 1]))
            company.machine("db").restore()
        case "slow":
            machine.delay(chance.uniform(1, 50), loss=chance.uniform(0, 10))
            time.sleep(chance.uniform(0.5, 3))
            machine.undelay()
        case "kill":
            clients[name].away.set()
            machine.kill()
            clients[name].idle.wait(PATIENCE)
            logs.append(company.workers[name].log())
            machine.replace(volume=chance.random() < 0.5)
            company[name].do("open_gate")
            clients[name].away.clear()


def settled(company: Company, threads: list[str]) -> bool:
    runs = [run for thread in threads for run in company["a"].do("runs", thread=thread)]
    return all(run["status"] != "running" and (run["settled"] or run["problem"]) for run in runs)


def check(company: Company, threads: list[str], clients: list[Client], seed: int) -> None:
    sent = {text: found for client in clients for text, found in client.sent.items()}
    print(f"seed {seed}:", Counter(how for _, how in sent.values()))
    assert set(Counter(how for _, how in sent.values())) & {"completed"}
    for thread in threads:
        story, left = company["b"].do("thread", thread=thread)
        assert left == []
        asked = [line.removeprefix("U ") for line in story if line.startswith("U ")]
        assert len(asked) == len(set(asked)), seed
        for text, (at, how) in sent.items():
            assert at == thread or text not in asked
            if at == thread and how == "completed":
                assert text in asked, (seed, text)
                answer = story[story.index(f"U {text}") + 1 :]
                last = next((place for place, line in enumerate(answer) if line.startswith("U ")), len(answer))
                assert answer[last - 1].startswith("A "), (seed, text, answer[:last])
