"""Several machines: each is a network namespace with an address of its own, behind a switch whose cables can be pulled.

Each machine has its own namespace of process ids as well. So no process can look up a process of another machine, and an
owner there is judged by its heartbeats alone, as on real machines. Only root can make namespaces.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
import redis

from tests.support.servers import PostgresServer, RedisServer
from tests.support.starter import PATIENCE, ROOT, Process

_PREFIX: Final = "runjournal"
_NETWORK: Final = "10.77.0"
_numbers: Final = itertools.count(1)


def _ip(*words: str) -> str:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"ip {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


@functools.cache
def why_not() -> str | None:
    """Return why this system cannot make machines; None if it can. Remove what killed test processes have left."""
    if os.geteuid() != 0:
        return "only root can make network namespaces"
    if missing := [name for name in ("ip", "unshare", "nsenter", "setpriv") if shutil.which(name) is None]:
        return f"missing programs: {', '.join(missing)} (Debian: iproute2, util-linux)"
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        return "/dev/net/tun is missing: the container needs the device and CAP_NET_ADMIN"
    try:
        _remove_leftovers()
        with Lan() as lan:
            lan.machine("a").do("true")
    except (OSError, RuntimeError, subprocess.SubprocessError) as exc:
        return f"a namespace cannot be made here: {exc}"
    return None


def need_machines() -> None:
    """Skip the test where no machines can be made. With CI=true, fail: there, these tests must run."""
    reason = why_not()
    if reason is not None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"no machines: {reason}")


def _remove_leftovers() -> None:
    for line in _ip("netns", "list").splitlines():
        name = line.split()[0]
        prefix, _, rest = name.partition("-")
        pid = rest.partition("-")[0]
        if prefix == _PREFIX and pid.isdigit() and not Path(f"/proc/{pid}").exists():
            _remove(name)


def _remove(namespace: str) -> None:
    """Remove a namespace, and kill all processes in it."""
    give_up = time.monotonic() + PATIENCE
    while pids := _ip("netns", "pids", namespace).split():
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        if time.monotonic() > give_up:
            raise RuntimeError(f"processes of {namespace} do not end: {pids}")
        time.sleep(0.01)
    _ip("netns", "delete", namespace)


class Lan:
    """A switch, and the machines behind it. Leaving it kills all processes, and removes everything."""

    def __init__(self, home: Path | None = None) -> None:
        self._home = home
        self._name = f"{_PREFIX}-{os.getpid()}-{next(_numbers)}"
        self.switch = f"{self._name}-switch"
        self.machines: dict[str, Machine] = {}
        self._namespaces: list[str] = []

    def __enter__(self) -> Lan:  # noqa: PYI034 - Self is not in the oldest Python that we run on
        try:
            self._namespace(self.switch)
            _ip("-n", self.switch, "link", "add", "name", "lan", "type", "bridge")
            _ip("-n", self.switch, "link", "set", "dev", "lan", "up")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _namespace(self, name: str) -> None:
        _ip("netns", "add", name)
        self._namespaces.append(name)
        quiet = "for one in all default; do echo 1 > /proc/sys/net/ipv6/conf/$one/disable_ipv6; done 2>/dev/null; true"
        subprocess.run(["ip", "netns", "exec", name, "sh", "-c", quiet], check=True)

    def machine(self, name: str) -> Machine:
        """Add a machine. `name`: at most eight letters."""
        namespace, address = f"{self._name}-{name}", f"{_NETWORK}.{len(self.machines) + 1}"
        self._namespace(namespace)
        _ip("-n", self.switch, "link", "add", "name", name, "type", "veth", "peer", "name", "eth0", "netns", namespace)
        _ip("-n", self.switch, "link", "set", "dev", name, "master", "lan", "up")
        _ip("-n", namespace, "address", "add", f"{address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            _ip("-n", namespace, "link", "set", "dev", device, "up")
        home = None if self._home is None else self._home / name
        self.machines[name] = made = Machine(self, name, namespace, address, home)
        return made

    def close(self) -> None:
        for machine in self.machines.values():
            machine.close()
        while self._namespaces:
            _remove(self._namespaces.pop())
        self.machines.clear()


class Machine:
    """A machine with a cable to the switch. Its directory `home` is its volume, and outlives a kill."""

    def __init__(self, lan: Lan, name: str, namespace: str, address: str, home: Path | None) -> None:
        self.name, self.address, self.namespace = name, address, namespace
        self._lan = lan
        self._home = home
        self._cable: subprocess.Popen[str] | None = None
        self._first: subprocess.Popen[bytes] | None = None
        self._workers: list[FarProcess] = []
        self.start()

    # --- its processes ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the machine, with new namespaces of processes and mounts."""
        command = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "sleep", "infinity"]
        self._first = subprocess.Popen(self.beside(command), stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        give_up = time.monotonic() + PATIENCE
        while True:
            child = _child_of(self._first.pid)
            # The child has its namespaces when it has become `sleep`.
            if child is not None and _program_of(child) == "sleep":
                self._init = child
                return
            if self._first.poll() is not None or time.monotonic() > give_up:
                raise RuntimeError(f"unshare ended with {self._first.poll()}")
            time.sleep(0.005)

    @property
    def home(self) -> Path:
        """The volume of the machine."""
        assert self._home is not None
        self._home.mkdir(parents=True, exist_ok=True)
        return self._home

    def beside(self, command: Sequence[str]) -> list[str]:
        """Return the command that runs another one on the network of the machine, and outside of its process ids."""
        return ["setpriv", "--pdeathsig", "KILL", "ip", "netns", "exec", self.namespace, *command]

    def inside(self, command: Sequence[str]) -> list[str]:
        """Return the command that runs another one on the machine."""
        return ["setpriv", "--pdeathsig", "KILL", "nsenter", "-t", str(self._init), "-n", "-p", "-m", "--", *command]

    def environment(self) -> dict[str, str]:
        """Return the environment of the processes of the machine."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
        # `nsenter` begins in the root directory, and an installed wheel does not bring the tests.
        return {**kept, "HOME": str(self.home), "HOSTNAME": self.name, "PYTHONPATH": str(ROOT)}

    def do(self, *command: str) -> str:
        """Run a command on the machine, and return what it says."""
        return subprocess.run(self.inside(command), check=True, capture_output=True, text=True).stdout

    def work(self, module: str, *arguments: str) -> FarProcess:
        """Start a process that does what each line asks for (see `tests.support.starter`), and wait until it is up."""
        worker = FarProcess(self, [sys.executable, "-m", module, *arguments])
        self._workers.append(worker)
        return worker.up()

    # --- faults -------------------------------------------------------------------------------------------------------

    def cut(self) -> None:
        """Pull the cable out: nothing arrives any more, and neither end gets an error."""
        _ip("-n", self._lan.switch, "link", "set", "dev", self.name, "down")

    def restore(self) -> None:
        """Put the cable in again."""
        _ip("-n", self._lan.switch, "link", "set", "dev", self.name, "up")

    def delay(self, milliseconds: float, loss: float = 0.0, seed: int | None = None) -> None:
        """From now on, delay each frame in both directions, and drop `loss` percent of them."""
        self.undelay()
        slow, near, far = f"{self.name}-s", f"{self.name}-n", f"{self.name}-f"
        about = [near, far, str(milliseconds), str(loss), str(random.randrange(10**6) if seed is None else seed)]
        command = ["ip", "netns", "exec", self._lan.switch, sys.executable, "-m", "tests.support.cable", *about]
        alone = ["setpriv", "--pdeathsig", "KILL", *command]
        self._cable = subprocess.Popen(alone, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert self._cable.stdout is not None
        if self._cable.stdout.readline() != "up\n":
            raise RuntimeError("the cable did not start")
        _ip("-n", self._lan.switch, "link", "add", "name", slow, "type", "bridge")
        for device, bridge in ((near, slow), (far, "lan")):
            _ip("-n", self._lan.switch, "link", "set", "dev", device, "master", bridge, "up")
        _ip("-n", self._lan.switch, "link", "set", "dev", slow, "up")
        _ip("-n", self._lan.switch, "link", "set", "dev", self.name, "master", slow)

    def undelay(self) -> None:
        """Delay and drop nothing more."""
        if self._cable is not None:
            _ip("-n", self._lan.switch, "link", "set", "dev", self.name, "master", "lan")
            self._end_cable()
            _ip("-n", self._lan.switch, "link", "delete", "dev", f"{self.name}-s")

    def _end_cable(self) -> None:
        if self._cable is not None and self._cable.stdout is not None:
            self._cable.kill()
            self._cable.wait(PATIENCE)
            self._cable.stdout.close()
        self._cable = None

    def kill(self) -> None:
        """Kill all processes of the machine, as a loss of power does."""
        assert self._first is not None
        if self._first.poll() is None:
            os.kill(self._init, signal.SIGKILL)  # the kernel kills the others with the first one
        self._first.wait(PATIENCE)
        for worker in self._workers:
            worker.process.wait(PATIENCE)

    def replace(self, *, volume: bool) -> None:
        """Start the machine again after `kill`: with its old volume, or with an empty one."""
        if not volume:
            shutil.rmtree(self.home)
        self.start()

    def close(self) -> None:
        self.kill()
        for worker in self._workers:
            worker.close()
        self._end_cable()


def _child_of(pid: int) -> int | None:
    try:
        found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return None
    return int(found[0]) if found else None


def _program_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


class FarProcess(Process):
    """A process on a machine, as the test sees it."""

    def __init__(self, machine: Machine, command: list[str]) -> None:
        super().__init__(machine.home, machine.inside(command), machine.environment())

    def up(self) -> FarProcess:
        try:
            super().up()
        except AssertionError:
            raise RuntimeError(f"the worker did not start: {self.log()[-3000:]}") from None
        return self

    def log(self) -> str:
        """Return what the process has logged so far."""
        with Path(f"/proc/self/fd/{self._said.fileno()}").open(errors="replace") as said:
            return said.read()

    def signal(self, number: int) -> None:
        """Send a signal to the process itself, not to `nsenter`."""
        child = _child_of(self.process.pid)
        if child is not None:
            os.kill(child, number)

    def pause(self) -> None:
        """Suspend the process. `nsenter` suspends itself with it."""
        self.signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)

    def go_on(self) -> None:
        """Let a suspended process continue."""
        self.process.send_signal(signal.SIGCONT)
        self.signal(signal.SIGCONT)

    def kill(self) -> int:
        self.signal(signal.SIGKILL)
        return self.process.wait(PATIENCE)


# --- servers ------------------------------------------------------------------------------------------------------------


class _OnAMachine:
    """A server on a machine. Tests that look into it reach it by its Unix socket, which no cut cable concerns."""

    machine: Machine

    def _start(self, command: Sequence[str]) -> None:
        super()._start(self.machine.beside(command))  # type: ignore[misc]


class FarPostgres(_OnAMachine, PostgresServer):
    """A Postgres server on a machine."""

    def __init__(self, machine: Machine, **settings: str) -> None:
        super().__init__(**{"listen_addresses": "0.0.0.0", "fsync": "off", "max_connections": "200", **settings})
        self.machine = machine
        with (self.data / "pg_hba.conf").open("a") as rules:
            rules.write(f"host all all {_NETWORK}.0/24 trust\n")

    def is_ready(self) -> bool:
        try:
            psycopg.connect(self.near_url(), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@{self.machine.address}:{self.port}/{database}"

    def near_url(self, database: str = "postgres") -> str:
        """Return the URL for this process."""
        return f"postgresql://postgres@/{database}?host={self.directory}&port={self.port}"

    def new_database(self) -> str:
        name = f"test_{next(_numbers)}"
        with psycopg.connect(self.near_url(), autocommit=True) as con:
            con.execute(f"CREATE DATABASE {name}")  # type: ignore[arg-type, unused-ignore]
        return self.url(name)


class FarRedis(_OnAMachine, RedisServer):
    """A Redis server on a machine."""

    def __init__(self, machine: Machine, **settings: str) -> None:
        super().__init__(**{"bind": "0.0.0.0", "protected-mode": "no", "appendfsync": "no", **settings})
        self.machine = machine

    def is_ready(self) -> bool:
        try:
            with redis.Redis(unix_socket_path=str(self.directory / "redis.sock"), socket_timeout=2) as client:
                return bool(client.ping())
        except redis.RedisError:
            return False

    def url(self, database: int = 0) -> str:
        return f"redis://{self.machine.address}:{self.port}/{database}"


@contextmanager
def serving(server: Any) -> Iterator[Any]:
    """Start a server, and destroy it afterwards."""
    try:
        server.start()
        yield server
    finally:
        server.destroy()
