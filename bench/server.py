"""The journal over HTTP, beside what one would write by hand: live, bursts, replay, idle connections, first frames."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, Final

from tests.support.servers import RedisServer, ServerMissing

from ._children import Child
from ._load import words
from ._stats import Sample, paired, seconds, size, spread, three, times
from ._tools import Bench, heading, note, table

_NAMES: Final = {
    "journal": "this server",
    "journal, one": "this server, a token each turn",
    "send": "(one send(2) each, raw sockets)",
    "uvicorn": "(one call of uvicorn's send each)",
    "queues": "a queue each, sse-starlette",
    "memory": "list and condition (DeerFlow, memory)",
    "redis": "a Redis stream, XREAD each (DeerFlow)",
    "rows": "a SQLite row per token",
}
_LIVE, _BURST, _MORE, _MERGED, _PLAIN, _ROWS, _IDLE = 2, 150_000, 3, 3_000_000, 1_000_000, 40, 20_000
_FLAT: Final = 5
"""Bytes per event: the limit below which memory counts as flat."""


def run(bench: Bench) -> None:
    """Run the section."""
    bench.begin("server")
    heading("21. The journal over HTTP")
    if find_spec("uvicorn") is None or find_spec("starlette") is None:
        note("left out: install the group `test`, which has starlette and uvicorn")
        return
    implementation = "httptools" if find_spec("httptools") is not None else "h11"
    note(
        f"uvicorn ({implementation}) and the program that writes the run in one process, clients on raw sockets in another."
    )
    note("Figures per core are by the CPU time of the server's process, with its threads; the collector is off meanwhile.")
    with _redis() as url:
        with _world(bench, implementation, url) as world:
            _live(bench, world)
            _burst(bench, world)
            _replay(bench, world)
            _first(bench, world)
        _idle(bench, implementation)
        _stuck(bench, implementation)


# --- the processes ----------------------------------------------------------------------------------------------------


class World:
    """A server and its clients."""

    def __init__(self, server: Child, clients: Child) -> None:
        self.server, self.clients = server, clients
        self.about = server.hear()
        clients.hear()
        self.port = self.about["port"]

    def serve(self, verb: str, **command: Any) -> Any:
        """Have the server do something."""
        return self.server.ask(json.dumps({"do": verb, **command}))

    def tell_clients(self, verb: str, **command: Any) -> None:
        """Have the clients do something, without waiting for their answer."""
        self.clients.tell(json.dumps({"do": verb, **command}))

    def ask(self, verb: str, **command: Any) -> Any:
        """Have the clients do something."""
        self.tell_clients(verb, **command)
        return self.clients.hear()

    def stream(self, way: str, clients: int, produce: dict[str, Any]) -> dict[str, float]:
        """Stream one run to clients. Return the CPU seconds of the server, and what the clients have got."""
        begun = self.serve("begin", way=way, clients=clients)
        self.ask("open", port=begun.get("port", self.port), paths=[begun.get("path")] * clients)
        self.serve("gc", on=False)
        before = self.serve("facts")["cpu"]
        self.tell_clients("drain")
        self.serve("produce", way=way, run=begun["run"], **produce)
        got = self.clients.hear()
        cpu = self.serve("facts")["cpu"] - before
        self.serve("gc", on=True)
        return {**got, "cpu": cpu}

    def read(self, path: str) -> dict[str, float]:
        """Read a run that is over with one client."""
        self.serve("gc", on=False)
        before = self.serve("facts")["cpu"]
        self.ask("open", port=self.port, paths=[path])
        got = self.ask("drain")
        cpu = self.serve("facts")["cpu"] - before
        self.serve("gc", on=True)
        return {**got, "cpu": cpu}


@contextmanager
def _world(bench: Bench, implementation: str, redis_url: str = "") -> Iterator[World]:
    arguments = [redis_url] if redis_url else []
    with bench.directory() as directory:
        server = Child("_http_server", str(directory), implementation, *arguments)
        with server, Child("_http_clients") as clients:
            yield World(server, clients)


@contextmanager
def _redis() -> Iterator[str]:
    server = RedisServer(appendfsync="everysec")
    try:
        server.start()
    except ServerMissing as missing:
        note(f"without Redis: {missing}")
        yield ""
        return
    try:
        yield server.new_database()
    finally:
        server.destroy()


def _ways(world: World, *names: str) -> list[str]:
    missing = {"queues"} if not world.about["sse"] else set()
    if missing:
        note("without sse-starlette: install the group `bench`")
    return [name for name in names if name not in missing]


# --- live and burst ---------------------------------------------------------------------------------------------------


def _live(bench: Bench, world: World) -> None:
    clients, count, rounds = 100, bench.pick(200, 20), bench.pick(3, 1)
    produce = {"count": count, "group": 1, "pause": 0.01}
    names = _ways(world, "send", "uvicorn", "journal", "queues", "memory")
    alone = {name: world.stream(name, 0, produce)["cpu"] / count for name in names}

    def measure(name: str) -> Callable[[], float]:
        def once() -> float:
            found = world.stream(name, clients, produce)
            _check(name, found, count + 2 * (name == "journal"), clients)
            return (found["cpu"] / count - alone[name]) / clients

        return once

    found = bench.rounds("server, live", {name: measure(name) for name in names}, rounds)
    note(
        f"Live: one run at 100 tokens/s to {clients} clients. CPU of the server for each delivery, without what the same run"
    )
    note(f"takes with no client. Medians of {rounds} rounds; a ratio is the median of the ratios of the rounds.")
    rows = []
    for name, values in found.items():
        ratio, sample = paired(values, found["send"]), Sample(values)
        target = ""
        if name == "journal":
            target = bench.at_most("server, live: CPU per delivery, times one send(2)", ratio, _LIVE, times)
        rows.append([_NAMES[name], seconds(sample.median), spread(sample), times(ratio), seconds(alone[name]), target])
    table(["", "CPU per delivery", "p25 .. p75", "x send(2)", "a token without clients", ""], rows)


def _burst(bench: Bench, world: World) -> None:
    clients, rounds = 100, bench.pick(3, 1)
    counts = {name: bench.pick(2_000, 100) for name in ("journal", "journal, one", "send", "queues", "memory")}
    counts |= {name: bench.pick(200, 50) for name in ("redis", "rows")}
    names = _ways(world, "journal", "journal, one", "send", "queues", "memory", "rows")
    names += ["redis"] if world.about["redis"] else []
    lost = dict.fromkeys(names, 0.0)

    def measure(name: str) -> Callable[[], float]:
        way, _, one = name.partition(", ")
        count = counts[name]

        def once() -> float:
            found = world.stream(way, clients, {"count": count, "group": 1 if one else 20, "pause": 0})
            if way != "memory":
                _check(name, found, count + 2 * (way == "journal"), clients)
            lost[name] = max(lost[name], 1 - found["frames"] / count / clients)
            return found["frames"] / found["cpu"]

        return once

    found = bench.rounds("server, burst", {name: measure(name) for name in names}, rounds)
    note(f"Burst: a run to {clients} clients as fast as it can, 20 tokens in a turn of the loop. Deliveries per CPU second.")
    rows = []
    for name, values in found.items():
        target, median, ratio = "", Sample(values).median, paired(found["journal"], values)
        if name == "journal":
            target = bench.at_least("server, burst: deliveries/s on a core", median, _BURST, three)
        if name == "queues":
            target = bench.at_least("server, burst: times sse-starlette", ratio, _MORE, times)
        gone = f"{lost[name]:.0%} lost" if name == "memory" and lost[name] > 0 else ""
        rows.append([_NAMES[name], three(median), times(ratio), gone, target])
    table(["", "deliveries/s", "this server is", "", ""], rows)


def _check(name: str, found: dict[str, float], count: int, clients: int) -> None:
    if not count - 2 <= found["least"] <= found["frames"] / clients <= count:
        raise AssertionError(f"{name}: {found} of {count} frames for {clients} clients")


# --- replay -----------------------------------------------------------------------------------------------------------


def _replay(bench: Bench, world: World) -> None:
    count, rounds = bench.pick(100_000, 5_000), bench.pick(5, 1)
    run_id = world.serve("store", count=count)
    paths = {
        "this server, ?merge=1": f"/runs/{run_id}/events?merge=1",
        "this server, each event": f"/runs/{run_id}/events",
        "a SQLite row per token, a write each": f"/rows/{run_id}",
        "a SQLite row per token, 1,000 in a write": f"/rows/{run_id}?rows=1000",
    }
    digest = hashlib.sha256("".join(words(count - 2)).encode()).hexdigest()
    walls: dict[str, list[float]] = {name: [] for name in paths}
    for name, path in paths.items():
        got = world.ask("text", port=world.port, path=path)
        if got["digest"] != digest or (got["frames"] != count and "merge" not in path):
            raise AssertionError(f"{name}: {got}")

    def measure(name: str) -> Callable[[], float]:
        def once() -> float:
            found = world.read(paths[name])
            walls[name].append(found["wall"])
            return count / found["cpu"]

        return once

    found = bench.rounds("server, replay", {name: measure(name) for name in paths}, rounds)
    merged, plain, by_row, _ = found.values()
    wall = {name: seconds(Sample(values).median) for name, values in walls.items()}
    note(f"Replay: a run of {count:,} events, which is over, to one client; events per CPU second. Texts are compared.")
    targets = {
        "this server, ?merge=1": bench.at_least("server, replay, merged: events/s", Sample(merged).median, _MERGED, three),
        "this server, each event": bench.at_least("server, replay, each: events/s", Sample(plain).median, _PLAIN, three),
        "a SQLite row per token, a write each": bench.at_least(
            "server, replay, merged: times a row per token", paired(merged, by_row), _ROWS, times
        ),
    }
    rows = [
        [name, three(Sample(values).median), wall[name], times(paired(merged, values)), targets.get(name, "")]
        for name, values in found.items()
    ]
    table(["", "events/s", "until the client has all", "merged is", ""], rows)


# --- first frames -----------------------------------------------------------------------------------------------------


def _first(bench: Bench, world: World) -> None:
    count, runs, rounds = bench.pick(100_000, 5_000), bench.pick(1_000, 50), bench.pick(9, 1)
    run_id = world.serve("store", count=count)
    (few,), short = world.serve("threads", count=1, runs=1)
    (many,), ids = world.serve("threads", count=1, runs=runs)
    paths = {
        "a run of 5 events, from the start": f"/runs/{short[-1]}/events",
        f"a run of {count:,} events, from the start": f"/runs/{run_id}/events",
        f"a run of {count:,} events, 10 from its end": f"/runs/{run_id}/events?cursor={run_id}:{count - 10}",
        "the same, ?merge=1": f"/runs/{run_id}/events?merge=1&cursor={run_id}:{count - 10}",
        "a thread of 1 run, from the start": f"/threads/{few}/events",
        f"a thread of {runs:,} runs, from the start": f"/threads/{many}/events",
        f"a thread of {runs:,} runs, in its last run": f"/threads/{many}/events?cursor={ids[-1]}:2",
        f"a thread of {runs:,} runs, behind its first run": f"/threads/{many}/events?cursor={ids[0]}:5",
    }

    def measure(path: str) -> Callable[[], float]:
        return lambda: float(world.ask("first", port=world.port, path=path))

    found = bench.rounds("server, first", {name: measure(path) for name, path in paths.items()}, rounds)
    note(f"Time from a request, on a new connection, to the first frame with an id; medians of {rounds}.")
    anchor = next(iter(found.values()))
    rows = [
        [name, seconds(Sample(values).median), spread(Sample(values)), times(paired(values, anchor)), ""]
        for name, values in found.items()
    ]
    table(["", "p50", "p25 .. p75", "x a short run", ""], rows)


# --- idle connections, readers that do not read -----------------------------------------------------------------------


def _idle(bench: Bench, implementation: str) -> None:
    warm, more, rest = 100, bench.pick(1_000, 100), bench.pick(3.0, 1.0)
    kinds = ("Starlette alone", "a stream of a run each", "a stream of a thread each")
    rows, alone = [], 0.0
    for kind in kinds:
        with _world(bench, implementation) as world:
            paths = _idle_paths(world, kind, warm + more)
            world.ask("open", port=world.port, paths=paths[:warm])
            before = world.serve("facts", after=rest)
            world.ask("open", port=world.port, paths=paths[warm:])
            middle = world.serve("facts", after=rest)
            later = world.serve("facts", after=rest)
        each = (middle["rss"] - before["rss"]) / more
        alone = alone or each
        counts = [three((middle[name] - before[name]) / more) for name in ("tasks", "threads", "databases", "timers")]
        busy = (later["cpu"] - middle["cpu"]) / rest / more
        target = ""
        if kind != kinds[0]:
            for name in ("threads", "databases", "timers"):
                few = (middle[name] - before[name]) / more
                bench.at_most(f"server, idle, {kind}: {name} each", few, 0.01, three)
            name = f"server, idle, {kind}: bytes each"
            target = bench.at_most(name, each, _IDLE, size)
        rows.append([kind, size(each), size(each - alone), *counts, seconds(busy), target])
        bench.progress("server, idle", len(rows), len(kinds))
    note(f"Idle: {more:,} more connections on which nothing comes, with {implementation}; private memory.")
    columns = ["", "bytes each", "without Starlette's", "tasks", "threads", "databases", "timers", "CPU each second", ""]
    table(columns, rows)


def _idle_paths(world: World, kind: str, count: int) -> list[str]:
    if kind == "Starlette alone":
        return ["/wait"] * count
    if kind == "a stream of a run each":
        return [f"/runs/{run_id}/events" for run_id in world.serve("running", count=count)]
    threads, _ = world.serve("threads", count=count, runs=1)
    return [f"/threads/{thread_id}/events" for thread_id in threads]


def _stuck(bench: Bench, implementation: str) -> None:
    count, readers = bench.pick(200_000, 10_000), 10
    rows = []
    growth = {}
    for who in (0, readers):
        with _world(bench, implementation) as world:
            (run_id,) = world.serve("running", count=1)
            paths = [f"/runs/{run_id}/events"] * who
            world.ask("open", port=world.port, paths=paths, buffer=4096)
            world.serve("append", run=run_id, count=count // 4)
            before = world.serve("facts", after=0.5)["rss"]
            world.serve("append", run=run_id, count=count)
            after = world.serve("facts", after=0.5)["rss"]
        growth[who] = (after - before) / count
        rows.append([f"{who} readers that do not read", size(before), size(after), three(growth[who]), ""])
    more = (growth[readers] - growth[0]) / readers
    rows[-1][-1] = bench.at_most("server, a reader that does not read: bytes per event", more, _FLAT, three)
    note(f"Private memory of the server while a run grows by {count:,} events.")
    table(["", "before", "after", "bytes per event", "more for each reader"], rows)
