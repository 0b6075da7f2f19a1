"""The journal on Redis, beside what one would write by hand: time and bytes per token, replay, capture."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import redis

from langchain_runjournal import Event
from tests.support.servers import RedisServer, ServerMissing

from . import _server_stores as stores
from ._server_rivals import RedisEntries
from ._stats import times
from ._tools import Bench, heading, note

_EACH = "MULTI, XADD, EXPIRE, EXEC each (DeerFlow)"
_TARGET = 90


def run(bench: Bench) -> None:
    """Run the section."""
    bench.begin("redis")
    heading("19. The journal on Redis")
    for policy in ("everysec", "always"):
        try:
            server = RedisServer(appendfsync=policy)
            server.start()
        except ServerMissing as missing:
            note(f"left out: {missing}")
            return
        try:
            with bench.directory() as directory:
                _on(bench, server, policy, directory)
        finally:
            server.destroy()


def _on(bench: Bench, server: RedisServer, policy: str, directory: Path) -> None:
    url = server.new_database()
    with closing(redis.Redis.from_url(url)) as client, closing(RedisEntries(server.new_database())) as rivals:
        note(f"Redis {client.info('server')['redis_version']} on this machine, over TCP; appendonly, appendfsync {policy}.")
        stores.connections(bench, lambda: len(client.client_list()), url, directory)
        _per_token(bench, rivals, url, directory, policy)
        if policy == "everysec":
            _sizes(bench, rivals, client, server.new_database(), directory)
            _replay(bench, rivals, url, directory)
            stores.capture(bench, directory, server.new_database(), "Redis")


def _per_token(bench: Bench, rivals: RedisEntries, url: str, directory: Path, policy: str) -> None:
    few = bench.pick(1_000, 100)
    ways: dict[str, Callable[[list[Event]], None]] = {
        _EACH: rivals.publish_each,
        "XADD each": rivals.add_each,
        "XADD each, 100 in a pipeline": lambda events: rivals.add_pipelined(events, 100),
        f"by hand: an XADD for {stores.BATCH} texts": lambda events: rivals.add_batches(events, stores.BATCH),
    }
    with stores.watched(url, directory) as (journal, store):
        found = stores.per_token(bench, f"redis, {policy}", stores.Loads(journal, store), ways, _EACH, few)
    anchor = found[_EACH][0].median
    for name in ("100 runs at 100 tokens/s", f"{stores.BATCH} tokens, flush"):
        ratio = anchor / found[f"journal: {name}"][0].median
        bench.at_least(f"redis, {policy}, {name}: times less than MULTI each", ratio, _TARGET, times)


def _sizes(bench: Bench, rivals: RedisEntries, client: redis.Redis, url: str, directory: Path) -> None:
    runs, count = bench.pick((50, 1_000), (5, 200))
    total = runs * count

    def held() -> tuple[int, int]:
        return client.info("memory")["used_memory_dataset"], client.info("persistence")["aof_current_size"]

    with stores.watched(url, directory) as (journal, _):
        before = held()
        events = [stores.write_run(journal, count, bench.random)[1] for _ in range(runs)]
        live = held()
    closed = held()
    theirs = held()
    for one in events:
        rivals.add_pipelined(one, 100)
    rows = held()
    note(f"{runs} runs of {count:,} tokens, in batches of {stores.BATCH}.")
    stores.sizes(
        sum(len(event.data["text"]) for event in events[0]) / count,
        [
            (
                f"journal, {runs} runs of {count:,} tokens in batches of {stores.BATCH}: memory",
                (live[0] - before[0]) / total,
            ),
            ("journal, closed: memory", (closed[0] - before[0]) / total),
            ("journal: append-only file", (live[1] - before[1]) / total),
            ("an entry for each event: memory", (rows[0] - theirs[0]) / total),
            ("an entry for each event: append-only file", (rows[1] - theirs[1]) / total),
        ],
    )


def _replay(bench: Bench, rivals: RedisEntries, url: str, directory: Path) -> None:
    count = bench.pick(100_000, 5_000)
    with stores.watched(url, directory) as (journal, _):
        run_id, events = stores.write_run(journal, count)
        rivals.add_pipelined(events, 1_000)
        stores.replay(bench, journal, "XRANGE, 1,000 entries a page", rivals.read, run_id)
