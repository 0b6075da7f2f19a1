"""Ways in which a real Postgres server fails: connections that end, a full disk, passwords and certificates."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from langchain_runjournal import Event, RunJournal, errors
from langchain_runjournal.journal.core import core_of
from tests.support.servers import PostgresServer

PATIENCE = 60.0
"""The seconds to wait for something that happens soon, unless something is broken."""
PASSWORD = "t0p-Secret"
"""A password that stands in URLs, and nowhere else."""


def wait_for(true: Callable[[], Any], what: str = "it") -> None:
    """Wait for a state of a server. Use this where no event can be awaited."""
    give_up = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < give_up, f"{what} did not happen"
        time.sleep(0.005)


# --- servers ----------------------------------------------------------------------------------------------------------


def started(directory: Path | None = None, **settings: str) -> PostgresServer:
    """Return a server that a test may break."""
    settings = {"fsync": "off", "max_connections": "50", "shared_buffers": "16MB", **settings}
    server = PostgresServer(directory=directory, **settings)
    server.start()
    return server


def new_database(server: PostgresServer, **query: str) -> str:
    """Return the URL of an empty database, with a password and with options of the URL."""
    url = server.new_database().replace("postgres@", f"postgres:{PASSWORD}@")
    options = "&".join(f"{name}={value}" for name, value in {"busy_timeout": "1", **query}.items())
    return f"{url}?{options}"


@contextmanager
def admin(server: PostgresServer, database: str = "postgres") -> Iterator[psycopg.Connection[Any]]:
    """Yield a connection of the administrator."""
    with psycopg.connect(server.url(database), autocommit=True) as con:
        yield con


def name_of(url: str) -> str:
    """Return the name of the database of a URL."""
    return url.rpartition("/")[2].partition("?")[0]


def terminate(con: psycopg.Connection[Any]) -> int:
    """Terminate all other connections. Return how many there were."""
    query = (
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname IS NOT NULL"
    )
    row = con.execute(query).fetchone()
    assert row is not None
    return int(row[0])


def configure(server: PostgresServer, **settings: str | None) -> None:
    """Change settings of a running server, or reset them, and wait until new connections have them."""
    with admin(server) as con:
        for name, value in settings.items():
            how = "SET {} = {}" if value is not None else "RESET {}"
            text = how.format(name, f"'{value}'")
            con.execute(f"ALTER SYSTEM {text}")  # type: ignore[arg-type]
        reload(con)


def reload(con: psycopg.Connection[Any]) -> None:
    """Have a server read its files, and wait until it has."""
    asked = con.execute("SELECT pg_conf_load_time()").fetchone()
    con.execute("SELECT pg_reload_conf()")
    wait_for(lambda: con.execute("SELECT pg_conf_load_time()").fetchone() != asked, "the reload")


def hba(server: PostgresServer, *lines: str) -> None:
    """Replace the rules that say who may connect and how. Over the Unix socket, the administrator always may."""
    (server.data / "pg_hba.conf").write_text("".join(f"{line}\n" for line in ("local all postgres trust", *lines)))
    with psycopg.connect(socket_url(server), autocommit=True) as con:
        reload(con)


def socket_url(server: PostgresServer, database: str = "postgres") -> str:
    return f"postgresql://postgres@/{database}?host={server.directory}&port={server.port}"


def role(server: PostgresServer, database: str, *settings: str, password: str = PASSWORD) -> str:
    """Create a role that owns a schema in a database. Return its name."""
    name = f"role_{uuid4().hex}"
    with psycopg.connect(socket_url(server, database), autocommit=True) as con:
        con.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{password}'")  # type: ignore[arg-type]
        con.execute(f"CREATE SCHEMA runjournal AUTHORIZATION {name}")  # type: ignore[arg-type]
        for setting in settings:
            con.execute(f"ALTER ROLE {name} SET {setting}")  # type: ignore[arg-type]
    return name


# --- certificates -----------------------------------------------------------------------------------------------------


def certificates(directory: Path) -> Path:
    """Make two certificate authorities, ca and other-ca, and a certificate of each for a server called localhost: server and
    other. Return the directory."""

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=directory, check=True, capture_output=True)

    new_key = ["-newkey", "rsa:2048", "-nodes"]
    for ca, name in (("ca", "server"), ("other-ca", "other")):
        openssl("req", "-x509", *new_key, "-days", "2", "-keyout", f"{ca}.key", "-out", f"{ca}.crt", "-subj", f"/CN={ca}")
        openssl("req", *new_key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", "/CN=localhost")
        signed = ["-CA", f"{ca}.crt", "-CAkey", f"{ca}.key", "-CAcreateserial", "-days", "2"]
        openssl("x509", "-req", "-in", f"{name}.csr", *signed, "-out", f"{name}.crt")
    return directory


def owned(path: Path) -> None:
    """Give files to the user of the server. It refuses a key that others may read."""
    for one in (path, *path.rglob("*")):
        if os.geteuid() == 0:
            shutil.chown(one, "postgres", "postgres")
        one.chmod(0o700 if one.is_dir() else 0o600)


# --- disks ------------------------------------------------------------------------------------------------------------


class Disk:
    """A small file system in memory. Only root can make one."""

    def __init__(self, *, megabytes: int) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="runjournal-disk-", dir="/tmp"))  # the server's user must reach it
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=0777", "tmpfs", str(self.directory)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            reason = f"no file system can be mounted here: {done.stderr.strip()}"
            (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)

    def fill(self) -> None:
        """Leave no byte free."""
        with (self.directory / "filler").open("ab", buffering=0) as filler, contextlib.suppress(OSError):
            while True:
                filler.write(bytes(4096))

    def free(self) -> None:
        (self.directory / "filler").unlink()

    def unmount(self) -> None:
        subprocess.run(["umount", "-l", str(self.directory)], check=True)
        self.directory.rmdir()


# --- a program --------------------------------------------------------------------------------------------------------


class Program:
    """A program that appends to a journal while the server of the journal fails."""

    def __init__(self, url: str, spools: Path, **options: Any) -> None:
        self.journal = RunJournal(url, spool_dir=spools, **options)
        self.url, self.spools = url, spools
        self.run_id = f"run-{uuid4()}"
        self.said: list[str] = []

    def say(self, times: int = 50) -> None:
        """Append tokens, on a thread of its own: an append that waits for the server fails the test."""
        self._while(lambda: [self._append() for _ in range(times)])

    def until_said(self, times: int) -> None:
        """Wait until the program that is talking has appended so many tokens more."""
        goal = len(self.said) + times
        wait_for(lambda: len(self.said) >= goal)

    def _append(self) -> None:
        text = f"{len(self.said)} "
        self.journal.append(Event(run_id=self.run_id, kind="llm.ai.delta", data={"text": text}, call_id="c"))
        self.said.append(text)

    @staticmethod
    def _while(work: Callable[[], Any]) -> None:
        raised: list[BaseException] = []

        def run() -> None:
            try:
                work()
            except BaseException as exc:
                raised.append(exc)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(PATIENCE)
        assert not thread.is_alive(), "it waits"
        if raised:
            raise raised[0]

    @contextmanager
    def talking(self) -> Iterator[None]:
        """Append all the time, a token a millisecond, on another thread."""
        stop, raised = threading.Event(), []

        def talk() -> None:
            try:
                while not stop.wait(0.001):
                    self._append()
            except BaseException as exc:
                raised.append(exc)

        thread = threading.Thread(target=talk, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(PATIENCE)
        assert not thread.is_alive()
        assert raised == []

    def flush_fails(self) -> str:
        """Flush, which fails, and says where the events are. Return what it says."""
        raised: list[errors.WriteFailed] = []

        def flush() -> None:
            with pytest.raises(errors.WriteFailed) as caught:
                self.journal.flush()
            raised.append(caught.value)

        self._while(flush)
        [error] = raised
        text = str(error)
        assert f"in the spool in {self.spools}, safe from a kill" in text
        assert PASSWORD not in text + repr(error) + repr(error.__cause__)
        return text

    def flush(self) -> None:
        """Flush until it succeeds: after an outage, the first attempt may find a dead connection."""
        give_up = time.monotonic() + PATIENCE
        while True:
            try:
                self._while(self.journal.flush)
            except errors.WriteFailed:
                assert time.monotonic() < give_up
            else:
                return

    def everything_is_there(self, url: str | None = None) -> None:
        """Flush. Then another journal reads each event once, in order, and this one closes and leaves no spool."""
        self.flush()
        self.reads_all(self.journal)
        self.journal.close()
        with RunJournal(url or self.url, spool_dir=self.spools) as other:
            self.reads_all(other)
            assert core_of(other).store.check() == []
        assert [path.name for path in self.spools.iterdir()] == []

    def reads_all(self, journal: RunJournal) -> None:
        read = [(event.seq, event.text) for event in journal.read(self.run_id)]
        said = list(enumerate(self.said, start=1))
        wrong = [pair for pair in zip_longest(read, said) if pair[0] != pair[1]]
        assert not wrong, f"{len(wrong)} of {len(said)} differ: {wrong[:3]} ... {wrong[-3:]}"
