"""A server is examined when a store is opened: what it promises is said, and what would lose events is refused."""

from __future__ import annotations

import logging
import subprocess
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis
from redis import exceptions as driver

from langchain_runjournal import Event, RunJournal, errors
from langchain_runjournal.events.segments import pack
from langchain_runjournal.stores import Owner, open_store, path_of
from langchain_runjournal.stores.redis import owners
from langchain_runjournal.stores.redis.failures import failure_of
from langchain_runjournal.stores.redis.promises import promise_of
from langchain_runjournal.stores.redis.server import Server
from langchain_runjournal.stores.redis.urls import settings_of
from tests.support.servers import RedisServer, free_port, redis_url

SECRET = "s3cr3t-p%40ss"


@pytest.fixture
def start() -> Iterator[Callable[..., RedisServer]]:
    """A function that starts a server with these settings."""
    servers: list[RedisServer] = []

    def start(**settings: str) -> RedisServer:
        servers.append(RedisServer(**settings))
        servers[-1].start()
        return servers[-1]

    yield start
    for server in servers:
        server.destroy()


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def configure(server: RedisServer, name: str, value: str) -> None:
    with redis.Redis(port=server.port) as client:
        client.config_set(name, value)


@pytest.mark.parametrize(
    ("settings", "promise", "level", "words"),
    [
        ({"appendfsync": "always"}, "always", logging.INFO, "survives the server"),
        ({"appendfsync": "everysec"}, "everysec", logging.WARNING, "a second of events may be lost"),
        ({"appendfsync": "no"}, "no", logging.WARNING, "30 seconds of events may be lost"),
        ({"appendonly": "no"}, "nothing", logging.WARNING, "nothing since its last snapshot survives"),
    ],
)
def test_what_a_server_promises_is_said_once(
    start: Callable[..., RedisServer],
    caplog: pytest.LogCaptureFixture,
    settings: dict[str, str],
    promise: str,
    level: int,
    words: str,
) -> None:
    """In one line of the log, and in the attribute `promise` of the store."""
    server = start(**settings)
    caplog.set_level(logging.INFO, "langchain_runjournal")
    store = open_store(server.url())
    assert getattr(store, "promise") == promise  # noqa: B009 - not every store has it
    store.close()
    [record] = [one for one in caplog.records if "the journal is in" in one.getMessage()]
    assert record.levelno == level
    assert words in record.getMessage()


def test_a_server_that_promises_less_than_required_is_refused(start: Callable[..., RedisServer]) -> None:
    """`require=everysec` takes "always" as well, and nothing below."""
    server = start(appendfsync="everysec")
    open_store(f"{server.url()}?require=everysec").close()
    with pytest.raises(errors.StoreUnusable, match="require=always, but if the server crashes") as raised:
        open_store(f"{server.url()}?require=always")
    assert "CONFIG SET appendfsync always" in str(raised.value)
    configure(server, "appendfsync", "always")
    for required in ("everysec", "always"):
        open_store(f"{server.url()}?require={required}").close()
    configure(server, "appendonly", "no")
    with pytest.raises(errors.StoreUnusable, match="CONFIG SET appendonly yes"):
        open_store(f"{server.url()}?require=everysec")


def test_a_server_that_does_not_say_is_no_reason_for_an_error(
    start: Callable[..., RedisServer], caplog: pytest.LogCaptureFixture
) -> None:
    """Managed servers refuse CONFIG. What INFO says still counts, and the rest is said to be unknown."""
    server = start()
    with redis.Redis(port=server.port) as client:
        client.acl_setuser(
            "app", enabled=True, nopass=True, keys=["{runjournal}:*"], categories=["+@all"], commands=["-config"]
        )
    url = f"redis://app:x@127.0.0.1:{server.port}"
    store = open_store(url)
    assert getattr(store, "promise") == "unknown"  # noqa: B009
    store.close()
    assert "does not say how it writes to its disk" in caplog.text
    with pytest.raises(errors.StoreUnusable, match="does not say"):
        open_store(f"{url}?require=everysec")
    configure(server, "maxmemory-policy", "allkeys-lru")
    with pytest.raises(errors.StoreUnusable, match="allkeys-lru"):
        open_store(url)


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl", "volatile-lru"])
def test_a_server_that_evicts_is_refused(start: Callable[..., RedisServer], policy: str) -> None:
    """Whether it has a limit now or not: it would delete the events of runs, or their TTL ahead of time."""
    server = start()
    configure(server, "maxmemory-policy", policy)
    with pytest.raises(errors.StoreUnusable, match=f"eviction policy {policy}") as raised:
        RunJournal(server.url())
    assert "Set maxmemory-policy noeviction" in str(raised.value)


def test_a_policy_that_is_set_later_is_said(start: Callable[..., RedisServer], caplog: pytest.LogCaptureFixture) -> None:
    """Once for each policy, with a later heartbeat: the journal cannot refuse a server that it uses already."""

    def said() -> list[str]:
        return [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR]

    server = start()
    store = open_store(server.url())
    beats = iter(range(0, 100 * owners._ASK_EVERY, owners._ASK_EVERY))

    def beat() -> None:
        store.beat(Owner(owner_id="me", place="here", pid=1, born="0", lease=15.0, beats=next(beats)))

    beat()
    configure(server, "maxmemory-policy", "allkeys-lru")
    beat()
    beat()
    [line] = said()
    assert "allkeys-lru" in line
    assert "set maxmemory-policy to noeviction" in line
    configure(server, "maxmemory-policy", "noeviction")
    beat()
    configure(server, "maxmemory-policy", "volatile-ttl")
    beat()
    assert len(said()) == 2
    store.close()


def test_a_replica_is_refused(start: Callable[..., RedisServer]) -> None:
    """It takes no writes, and lags behind what it is asked."""
    primary = start()
    replica = start(replicaof=f"127.0.0.1 {primary.port}")
    with pytest.raises(errors.StoreUnusable, match=r"a replica, which takes no writes\. Name the primary server"):
        RunJournal(replica.url())


def test_an_old_server_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Redis before 6.2 lacks commands that the scripts need."""
    monkeypatch.setattr(Server, "call", lambda *_: b"redis_version:6.0.16\r\nrole:master\r\n")
    with pytest.raises(errors.StoreUnusable, match=r"it is Redis 6\.0\.16\. Use Redis 6.2 or later"):
        promise_of(Server(settings_of("redis://127.0.0.1")))


def test_one_node_of_a_cluster_is_enough(start: Callable[..., RedisServer]) -> None:
    """If it has the slot of the prefix: all keys have one hash tag. A node without that slot says so."""
    server = start(**{"cluster-enabled": "yes", "databases": "1", "cluster-port": str(free_port())})
    with redis.Redis(port=server.port) as client:
        slot = client.execute_command("CLUSTER", "KEYSLOT", "{runjournal}:store")
        client.execute_command("CLUSTER", "ADDSLOTS", *[one for one in range(16384) if one != slot])
        with pytest.raises(errors.StoreFailed, match=r"CLUSTERDOWN Hash slot not served\. Name the node of the cluster"):
            open_store(server.url())
        client.execute_command("CLUSTER", "ADDSLOTS", slot)
        until(lambda: "cluster_state:ok" in str(client.execute_command("CLUSTER", "INFO")))
    with RunJournal(server.url()) as journal:
        journal.append(Event(run_id="r", kind="run.start"))
        journal.flush()
        assert len(journal.read("r")) == 1
    with pytest.raises(errors.StoreUnusable, match="a cluster has only database 0"):
        open_store(server.url(1))


def test_another_node_of_a_cluster_is_refused() -> None:
    """It answers MOVED, and will do so for ever."""
    settings = settings_of("redis://127.0.0.1")
    found = failure_of(driver.MovedError("3999 127.0.0.1:6381"), settings, opening=True)
    assert isinstance(found, errors.StoreUnusable)
    assert "MOVED 3999 127.0.0.1:6381. Name the node of the cluster that has the slot" in str(found)
    assert isinstance(failure_of(driver.MovedError("3999 127.0.0.1:6381"), settings), errors.StoreFailed)


# --- who may use it -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("who", ["", ":wrong@", "app:wrong@", "nobody:wrong@"])
def test_a_wrong_password_is_no_reason_to_try_again(start: Callable[..., RedisServer], who: str) -> None:
    """The store is unusable, and the error does not show the password that was given."""
    server = start(requirepass="right")
    with redis.Redis(port=server.port, password="right") as client:
        client.acl_setuser("app", enabled=True, passwords=["+right"], keys=["*"], categories=["+@all"])
    with pytest.raises(errors.StoreUnusable, match="Check the user and the password in the URL") as raised:
        open_store(f"redis://{who}127.0.0.1:{server.port}")
    assert "wrong@" not in "".join(traceback.format_exception(raised.value))


ACL = (
    "+@connection +info +config|get +eval +evalsha +xadd +xrange +xrevrange +xread +hset +hsetnx +hget +hmget +hgetall"
    " +hkeys +hexists +hdel +hincrby +zadd +zrem +zrange +zrevrange +zrangebyscore +zrevrangebyscore +zcard +zcount +zscore"
    " +sadd +srem +smembers +srandmember +get +set +unlink +exists +expire +pexpire +pttl +persist +time +scan +bgrewriteaof"
)
"""The commands of docs/stores.md."""


def test_a_user_with_the_documented_commands_is_enough(start: Callable[..., RedisServer]) -> None:
    """On the keys of the journal alone; and a command less is noticed when the journal is opened, by its name."""
    server = start()
    assert ACL in " ".join((Path(__file__).parents[2] / "docs/stores.md").read_text().split())
    with redis.Redis(port=server.port) as client:
        client.acl_setuser("app", enabled=True, nopass=True, keys=["{runjournal}:*"], commands=ACL.split())
        url = f"redis://app:x@127.0.0.1:{server.port}/0"
        with RunJournal(f"{url}?retain=60") as journal:
            journal.append(Event(run_id="r", kind="run.start", data={"thread_id": "t"}))
            journal.append(Event(run_id="r", kind="run.end"))
            journal.flush()
            assert [event.kind for event in journal.follow("r")] == ["run.start", "run.end"]
            assert journal.prune(keep_last=0, vacuum=True) == ["r"]
        store = open_store(url)
        store.append("me", [pack("s", 1, [Event(run_id="s", kind="run.start", data={"thread_id": "t"}, seq=1)])])
        assert store.claim("s", "you", 1)
        assert store.request_stop("s", "stop") is not None
        assert store.stops("you") == {"s": "stop"}
        store.learn("g", ["a"])
        assert store.hold("t", "h", None) == "h"
        store.release("t", "h")
        assert store.check() == []
        store.tidy()
        store.close()
        for command in ("xadd", "zrangebyscore", "unlink", "evalsha"):
            client.acl_setuser(
                "less", enabled=True, nopass=True, keys=["{runjournal}:*"], commands=[*ACL.split(), f"-{command}"]
            )
            with pytest.raises(errors.StoreUnusable, match=f"(?i){command}.*Give the user the commands"):
                open_store(f"redis://less:x@127.0.0.1:{server.port}")


@pytest.mark.parametrize("where", ["user", "query"])
def test_a_password_is_shown_nowhere(
    start: Callable[..., RedisServer], caplog: pytest.LogCaptureFixture, tmp_path: Path, where: str
) -> None:
    """Neither in a repr, nor in the log, nor in an error while the server is away."""
    plain = SECRET.replace("%40", "@")
    server = start(requirepass=plain)
    end = f"127.0.0.1:{server.port}/0"
    url = f"redis://:{SECRET}@{end}" if where == "user" else f"redis://{end}?password={SECRET}"
    caplog.set_level(logging.DEBUG)
    journal = RunJournal(url, spool_dir=tmp_path)
    store = journal._core.store
    journal.append(Event(run_id="r", kind="run.start"))
    journal.flush()
    server.kill()
    journal.append(Event(run_id="r", kind="run.end"))
    with pytest.raises(errors.WriteFailed) as raised:
        journal.flush()
    shown = [*traceback.format_exception(raised.value), caplog.text, repr(journal), journal.url, repr(vars(store))]
    server._process = None
    with pytest.raises(errors.WriteFailed) as closing:
        journal.close()
    shown += traceback.format_exception(closing.value)
    for text in shown:
        assert plain not in text
        assert SECRET not in text


def test_a_server_that_quotes_what_it_was_sent(start: Callable[..., RedisServer], tmp_path: Path) -> None:
    """A server without AUTH answers with the password. Neither the error nor its causes show it."""
    (tmp_path / "redis.conf").write_text("rename-command AUTH nothing\n")
    server = start(include=str(tmp_path / "redis.conf"))
    quotes = pytest.raises(driver.ResponseError, match="letmein")
    with redis.Redis(port=server.port, password="letmein", protocol=2) as client, quotes:
        client.ping()
    with pytest.raises(errors.StoreUnusable, match=r"unknown command 'AUTH'.*\*\*\*") as raised:
        open_store(f"redis://:letmein@127.0.0.1:{server.port}/0")
    assert "letmein" not in str(raised.value) + repr(raised.value)
    assert raised.value.__cause__ is None


# --- TLS ----------------------------------------------------------------------------------------------------------------


def certificates(place: Path) -> None:
    """Make a CA, and a certificate of 127.0.0.1 that it has signed."""

    def run(*command: str) -> None:
        subprocess.run(["openssl", *command], cwd=place, check=True, capture_output=True)

    new = ("req", "-newkey", "rsa:2048", "-nodes")
    # From Python 3.13 on, the certificate of a CA must say what its key may be used for.
    about = ("-subj", "/CN=ca", "-days", "2", "-addext", "keyUsage=critical,keyCertSign,cRLSign")
    run(*new, "-x509", "-keyout", "ca.key", "-out", "ca.crt", *about)
    run(*new, "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=server")
    (place / "names").write_text("subjectAltName=IP:127.0.0.1\nauthorityKeyIdentifier=keyid\n")
    signing = ("-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names")
    run("x509", "-req", "-in", "server.csr", "-out", "server.crt", *signing)


def test_tls(start: Callable[..., RedisServer], tmp_path: Path) -> None:
    """With the CA of the server everything works, followers included; without it the server is not trusted."""
    certificates(tmp_path)
    port = free_port()
    names = {"tls-port": port, "tls-cert-file": "server.crt", "tls-key-file": "server.key", "tls-ca-cert-file": "ca.crt"}
    settings = {name: str(value if name == "tls-port" else tmp_path / str(value)) for name, value in names.items()}
    server = start(**settings, **{"tls-auth-clients": "no"})
    url = f"rediss://127.0.0.1:{port}/0"
    with RunJournal(f"{url}?ssl_ca_certs={tmp_path}/ca.crt") as journal:
        journal.append(Event(run_id="r", kind="run.start"))
        journal.append(Event(run_id="r", kind="run.end"))
        assert [event.kind for event in journal.follow("r")] == ["run.start", "run.end"]
    other_name = f"rediss://localhost:{port}/0?ssl_ca_certs={tmp_path}/ca.crt"
    for wrong in (url, other_name):
        with pytest.raises(errors.StoreUnreachable, match="Check the certificates"):
            open_store(wrong)
    open_store(f"{other_name}&ssl_check_hostname=false").close()
    open_store(f"{url}?ssl_cert_reqs=none").close()
    with pytest.raises(errors.StoreUnreachable):
        open_store(f"rediss://127.0.0.1:{server.port}")


# --- URLs ---------------------------------------------------------------------------------------------------------------


def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    """The error says what to check. It is a `StoreFailed`, because the server may come back."""
    for url in (f"redis://127.0.0.1:{free_port()}", f"unix://{tmp_path}/none.sock"):
        with pytest.raises(errors.StoreUnreachable, match=r"cannot be reached.*Check that the server runs"):
            RunJournal(url)
    assert issubclass(errors.StoreUnreachable, errors.StoreFailed)


def test_a_unix_socket_and_the_names_of_valkey(start: Callable[..., RedisServer]) -> None:
    """All of them name the same server, and so the same store."""
    server = start()
    ids = set()
    for url in (
        server.url(),
        f"unix://{server.directory}/redis.sock?db=0",
        f"valkey://127.0.0.1:{server.port}",
        f"Redis://127.0.0.1:{server.port}?db=0&busy_timeout=2.5&client_name=me&socket_keepalive=yes",
    ):
        store = open_store(url)
        ids.add(store.store_id)
        assert store.path is None
        store.close()
    assert len(ids) == 1
    with pytest.raises(errors.StoreUnreachable):
        open_store(f"valkeys://127.0.0.1:{server.port}")


def test_options_stand_in_the_url() -> None:
    """`busy_timeout` may also be a keyword. What the driver does not understand, or would break the store, is refused."""
    url = redis_url()
    store = open_store(f"{url}?busy_timeout=2.5")
    assert getattr(store, "busy_timeout") == 2.5  # noqa: B009
    store.close()
    store = open_store(url, busy_timeout=3)
    assert getattr(store, "busy_timeout") == 3  # noqa: B009
    store.close()
    for query, words in {
        "retian=5": "Did you mean 'retain'",
        "decode_responses=true": "does not know the option 'decode_responses'",
        "busy_timeout=never": "busy_timeout must be a finite number above 0",
        "busy_timeout=0": "busy_timeout must be a finite number above 0",
        "retain=1.5": "retain must be a whole number of seconds above 0",
        "retain=0": "retain must be",
        "require=perhaps": "require does not know the value 'perhaps'",
        "prefix=a{b": "prefix must be text with at most one pair of braces",
    }.items():
        with pytest.raises(errors.InvalidArgument, match=words):
            open_store(f"{url}?{query}")
    with pytest.raises(errors.UnknownOption, match="synchronous"):
        open_store(url, synchronous="full")
    with pytest.raises(errors.InvalidArgument, match="left out where the URL gives it"):
        open_store(f"{url}?busy_timeout=2", busy_timeout=3)


@pytest.mark.parametrize("url", ["redis:runs", "redis://h:p@host:port/", "redis://host/name", "unix://"])
def test_a_url_that_names_no_server(url: str) -> None:
    """The error shows the URL without its password."""
    with pytest.raises(errors.UnknownStore) as raised:
        open_store(url)
    assert ":p@" not in "".join(traceback.format_exception(raised.value))
    with pytest.raises(errors.UnknownStore, match="no file"):
        path_of(url)


def test_two_prefixes_are_two_stores() -> None:
    """They share a database, and nothing else."""
    url = redis_url()
    one, other = (open_store(f"{url}?prefix={prefix}") for prefix in ("a", "b{tag}"))
    assert one.store_id != other.store_id
    one.append("me", [pack("r", 1, [Event(run_id="r", kind="run.start", seq=1)])])
    assert other.runs(thread_id=None, status=None, limit=None) == []
    with redis.Redis.from_url(url) as client:
        assert {key.partition(b":")[0] for key in client.keys("*")} == {b"{a}", b"b{tag}"}
    one.close()
    other.close()
