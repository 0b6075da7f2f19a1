"""The one call without a limit of time, on a real network: the system notices a cable that was cut, and the call ends."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.support.failing_postgres import wait_for
from tests.support.machines import FarPostgres, Lan, Machine, need_machines
from tests.support.starter import ROOT

pytestmark = pytest.mark.slow
PATIENCE = 60.0
_WAITS = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'VACUUM%' AND wait_event_type = 'Lock'"
_PROGRAM = """
import sys
from langchain_runjournal.errors import StoreUnreachable
from langchain_runjournal.stores.postgres import PostgresStore

store = PostgresStore(sys.argv[1])
store.read("r", 0, None)
print("up", flush=True)
sys.stdin.readline()
try:
    store.vacuum()
except StoreUnreachable:
    print("unreachable", flush=True)
"""


@pytest.fixture
def lan(tmp_path: Path) -> Iterator[Lan]:
    need_machines()
    with Lan(tmp_path) as lan:
        yield lan


@pytest.fixture
def server(lan: Lan) -> Iterator[FarPostgres]:
    server = FarPostgres(lan.machine("db"))
    server.start()
    yield server
    server.destroy()


def vacuums(machine: Machine, url: str) -> subprocess.Popen[str]:
    """Start a program on a machine that vacuums on a signal, and wait until it is connected."""
    program = subprocess.Popen(
        machine.inside([sys.executable, "-c", _PROGRAM, url]),
        cwd=ROOT,
        env=machine.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert program.stdout is not None
    assert program.stdout.readline() == "up\n"
    return program


def knows(machine: Machine, other: Machine) -> None:
    """Have a machine know the hardware address of another one, as that of a router: else it notices that nobody answers."""
    link = other.do("ip", "-o", "link", "show", "dev", "eth0").split()
    hardware = link[link.index("link/ether") + 1]
    machine.do("ip", "neigh", "replace", other.address, "lladdr", hardware, "dev", "eth0", "nud", "permanent")


def unconfirmed(machine: Machine) -> int:
    """Return the number of bytes that a machine has sent, and whose arrival nobody has confirmed."""
    return sum(int(line.split()[2]) for line in machine.do("ss", "-t", "-n", "-H").splitlines())


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_cable_is_cut_while_a_vacuum_waits(when: str, lan: Lan, server: FarPostgres) -> None:
    """Its statement is on the way, and nobody confirms it; or the server works on it, and nobody says anything."""
    machine = lan.machine("a")
    knows(machine, server.machine)
    program = vacuums(machine, server.url())
    with psycopg.connect(server.near_url()) as holder, psycopg.connect(server.near_url(), autocommit=True) as con:
        holder.execute("LOCK TABLE runjournal.events")
        if when == "before":
            machine.cut()
        assert program.stdin is not None
        program.stdin.write("\n")
        program.stdin.flush()
        if when == "meanwhile":
            wait_for(lambda: con.execute(_WAITS).fetchone() == (1,), "the vacuum")
            wait_for(lambda: not unconfirmed(machine), "the confirmation")
            machine.cut()
        said, _ = program.communicate(timeout=PATIENCE)
        assert said == "unreachable\n"
