"""A company with three machines for its workers and one for its servers, for tests of several machines."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from langgraph.checkpoint.postgres import PostgresSaver

from tests.support.machines import FarPostgres, FarProcess, FarRedis, Lan, Machine, serving
from tests.support.starter import PATIENCE, Failed

LEASE: Final = 3.0
NAMES: Final = ("a", "b", "c")


class Company:
    """Its machines, and a worker on each of them."""

    module = "tests.support.machine_worker"
    """The program of the workers."""

    def __init__(self, lan: Lan, journal: str, checkpoints: str, lease: float = LEASE) -> None:
        self.lan, self.lease = lan, lease
        self.urls = journal, checkpoints
        self.workers: dict[str, FarProcess] = {}

    def __getitem__(self, name: str) -> FarProcess:
        """Return the worker on a machine. Start it if it does not run."""
        worker = self.workers.get(name)
        if worker is None or worker.process.poll() is not None:
            worker = self.workers[name] = self.start(name)
        return worker

    def start(self, name: str, **options: Any) -> FarProcess:
        """Start one more worker on a machine. `options`: of `attach`."""
        return self.machine(name).work(self.module, *self.urls, str(self.lease), json.dumps(options))

    def all(self) -> list[FarProcess]:
        return [self[name] for name in NAMES]

    def machine(self, name: str) -> Machine:
        return self.lan.machines[name]

    def mend(self) -> None:
        """Repair what a test has broken."""
        for machine in self.lan.machines.values():
            machine.undelay()
            machine.restore()

    def logs(self) -> dict[str, str]:
        return {name: worker.log() for name, worker in self.workers.items()}


@contextmanager
def company_of(home: Path, journal: str = "postgres", lease: float = LEASE) -> Iterator[Company]:
    """Yield a company whose journal is on such a server, and whose checkpoints are in Postgres."""
    with contextlib.ExitStack() as opened:
        lan = opened.enter_context(Lan(home))
        servers = lan.machine("db")
        for name in NAMES:
            lan.machine(name)
        postgres = opened.enter_context(serving(FarPostgres(servers)))
        checkpoints = postgres.new_database()
        with PostgresSaver.from_conn_string(postgres.near_url(checkpoints.rpartition("/")[2])) as saver:
            saver.setup()
        url = checkpoints
        if journal == "redis":
            url = opened.enter_context(serving(FarRedis(servers))).new_database()
        elif journal == "sqlite":
            url = str(home / "runs.db")
        yield Company(lan, url, checkpoints, lease)


def new_thread() -> str:
    return f"thread-{uuid4().hex[:8]}"


def until(look: Callable[[], Any]) -> Any:
    """Look until there is something, and return it."""
    give_up = time.monotonic() + PATIENCE
    while not (found := look()):
        assert time.monotonic() < give_up
        time.sleep(0.05)
    return found


def ending(run: dict[str, Any]) -> tuple[str, str | None, bool]:
    return run["status"], run["cause"], run["settled"]


def error_of(asked: Any) -> str | None:
    """Return the name of the error with which a worker answers; None if it does what it was asked for."""
    try:
        asked.result(PATIENCE)
    except Failed as failed:
        return failed.error
    return None
