"""`make peers`: the suites of LangGraph, LangChain and others, bare and with the journal under them.

Prints for each suite and mode how many of the tests that pass bare fail with the journal, and which. Exits with 1 if one of
them is not among those that count handlers (`_suites.COUNTS`). What has been run for these versions, and for this state of
the package, is not run again: `--fresh` does.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
import venv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.peers._suites import COUNTS, MODES, NEEDS, SUITES, Suite

ROOT: Final = Path(__file__).resolve().parents[2]
PER_TEST: Final = 60
"""Seconds that a test may take."""
PER_SUITE: Final = 3600
AGAIN: Final = 100
"""As many failures are run a second time, alone; with more, something is wrong with all of them."""


def main() -> int:
    """Run what was asked for. 1 if a test fails that passes bare, and counts no handlers."""
    options = _options()
    work: Path = options.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    bin_ = _environment(work)
    suites = [suite for suite in SUITES if suite.package in options.only]
    absent, places = [], {}
    for suite in suites:
        version, place = _sources(work, bin_, suite)
        if place is None:
            absent.append(f"{suite.package} {version}")
        else:
            places[suite.package] = (version, place)
    if absent:
        print(f"no tests in the source distribution of: {', '.join(absent)}")
    results: dict[str, Any] = {}
    for suite in suites:
        if suite.package in places:
            results[suite.package] = _run_all(work, bin_, suite, *places[suite.package], options)
    (work / "results.json").write_text(json.dumps(results, indent=1))
    return _report(results, work)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.peers", description=__doc__)
    parser.add_argument("--work", type=Path, default=ROOT / ".peers", help="where the environment and the results are kept")
    parser.add_argument("--only", nargs="+", default=[suite.package for suite in SUITES], metavar="PACKAGE")
    parser.add_argument("--modes", nargs="+", default=list(MODES), choices=MODES)
    parser.add_argument(
        "--workers", default=str(min(4, os.cpu_count() or 1)), help="processes for a suite; 0 for none but one"
    )
    parser.add_argument("--fresh", action="store_true", help="run again what has been run")
    return parser.parse_args()


# --- what is run ----------------------------------------------------------------------------------------------------------


def _version(package: str) -> str | None:
    """The version that our own tests run with."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _pinned(package: str) -> str:
    version = _version(package)
    return package if version is None else f"{package}=={version}"


def _environment(work: Path) -> Path:
    """An environment of its own, with the versions of the packages that our own tests run with."""
    wanted = [*(_pinned(suite.package) for suite in SUITES), *NEEDS]
    place, ready = work / "env", work / "env" / "ready"
    if not ready.exists() or ready.read_text() != "\n".join(wanted):
        print(f"making an environment in {place}", flush=True)
        venv.create(place, with_pip=True, clear=True)
        _call([place / "bin" / "python", "-m", "pip", "install", "--quiet", "--upgrade", "pip>=25.1"])
        _call([place / "bin" / "python", "-m", "pip", "install", "--quiet", *wanted])
        ready.write_text("\n".join(wanted))
    return place / "bin"


def _sources(work: Path, bin_: Path, suite: Suite) -> tuple[str, Path | None]:
    """The version of a package, and the directory of its tests; None if its source distribution carries none."""
    version = _call([bin_ / "python", "-c", f"import importlib.metadata as m; print(m.version({suite.package!r}))"]).strip()
    place = work / "suites" / f"{suite.package}-{version}"
    if not place.exists():
        loaded = work / "sdists"
        exact = ["--no-binary", ":all:", "--no-deps", "--dest", loaded, f"{suite.package}=={version}"]
        _call([bin_ / "python", "-m", "pip", "download", "--quiet", *exact])
        (archive,) = loaded.glob(f"{suite.package.replace('-', '_')}-{version}.tar.gz")
        unpacked = work / "sdists" / archive.name.removesuffix(".tar.gz")
        with tarfile.open(archive) as file:
            file.extractall(loaded, filter="data")
        place.mkdir(parents=True)
        # The tests alone: what they test comes from the environment.
        for name in ("tests", "pyproject.toml"):
            if (unpacked / name).exists():
                shutil.move(unpacked / name, place / name)
        shutil.rmtree(unpacked)
    return version, place if (place / "tests").exists() else None


def _path(work: Path) -> Path:
    """What a suite may import of ours: the package, and the plugin. Not our tests: theirs are called `tests`, too."""
    path = work / "path"
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    (path / "langchain_runjournal").symlink_to(ROOT / "langchain_runjournal")
    (path / "runjournal_peers.py").symlink_to(Path(__file__).with_name("runjournal_peers.py"))
    return path


def _state() -> str:
    """Names the state of the package."""
    found = hashlib.sha256()
    for path in [*sorted((ROOT / "langchain_runjournal").rglob("*.py")), Path(__file__).with_name("runjournal_peers.py")]:
        found.update(path.read_bytes())
    return found.hexdigest()[:12]


def _call(command: Sequence[object], **options: Any) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False, **options)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    return done.stdout


# --- running --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Place:
    """Where a suite is run, and how."""

    work: Path
    bin: Path
    suite: Suite
    tests: Path

    def run(self, mode: str, out: Path, what: Sequence[str], *, workers: str) -> dict[str, Any]:
        """Run tests, and read what came of each."""
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        spread = ("-n", workers) if workers != "0" else ("-p", "no:xdist")
        plain = (
            "-o",
            "addopts=",
            "-p",
            "no:cacheprovider",
            "-p",
            "runjournal_peers",
            f"--timeout={PER_TEST}",
            "-q",
            "--tb=short",
        )
        command = [self.bin / "python", "-m", "pytest", *plain, *spread, *self.suite.options, *what]
        env = {
            **{
                key: value
                for key, value in os.environ.items()
                if not key.startswith(("PYTEST_", "LANGSMITH_", "LANGCHAIN_"))
            },
            "PYTHONPATH": str(_path(self.work)),
            "RUNJOURNAL_PEERS": mode,
            "RUNJOURNAL_PEERS_OUT": str(out),
            "NO_DOCKER": "true",
        }
        with (out / "log").open("w") as log:
            process = subprocess.Popen(list(map(str, command)), cwd=self.tests, env=env, stdout=log, stderr=log)
            try:
                _watch(process, out, f"{self.suite.package} {mode}")
            finally:
                process.kill()
        if not (out / "tests.jsonl").exists():
            raise SystemExit(f"no test of {self.suite.package} has run: see {out / 'log'}")
        return {**_read(out), "counts": _counts(out), "said": [json.loads(line) for line in _lines(out, "said.jsonl")]}


def _watch(process: subprocess.Popen[bytes], out: Path, what: str) -> None:
    """Say how far it is, where somebody looks on."""
    began = time.monotonic()
    while process.poll() is None:
        try:
            process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            if time.monotonic() - began > PER_SUITE:
                raise SystemExit(f"{what} took more than {PER_SUITE} s: see {out / 'log'}") from None
        if sys.stdout.isatty():
            print(f"\r{what}: {sum(1 for _ in _lines(out))} tests, {time.monotonic() - began:.0f} s ", end="", flush=True)
    if sys.stdout.isatty():
        print("\r\x1b[K", end="")


def _lines(out: Path, name: str = "tests.jsonl") -> Iterator[str]:
    path = out / name
    if path.exists():
        yield from path.read_text().splitlines()


def _read(out: Path) -> dict[str, Any]:
    """What came of each test; a fixture that fails makes its test fail."""
    tests: dict[str, str] = {}
    why: dict[str, str] = {}
    for line in map(json.loads, _lines(out)):
        if tests.get(line["id"]) != "failed" or line["when"] == "setup":
            tests[line["id"]] = line["outcome"]
        if line["outcome"] == "failed":
            why[line["id"]] = line["why"]
    return {"tests": tests, "why": why}


def _counts(out: Path) -> dict[str, int]:
    total: dict[str, int] = {}
    for line in _lines(out, "counts.jsonl"):
        for key, value in json.loads(line).items():
            total[key] = total.get(key, 0) + value
    return total


def _run_all(work: Path, bin_: Path, suite: Suite, version: str, tests: Path, options: argparse.Namespace) -> dict[str, Any]:
    place = _Place(work, bin_, suite, tests)
    bare = _once(place, "bare", work / "runs" / f"{suite.package}-{version}-bare", options)
    passed = {id for id, outcome in bare["tests"].items() if outcome == "passed"}
    found: dict[str, Any] = {"version": version, "passed_bare": len(passed), "modes": {}}
    for mode in options.modes:
        if mode in suite.why_not:
            continue
        got = _once(place, mode, work / "runs" / f"{suite.package}-{version}-{mode}-{_state()}", options)
        failed = sorted(id for id in passed if got["tests"].get(id) != "passed")
        steady = [id for id in failed if id not in got["passed_alone"]]
        known = COUNTS.get((suite.package, mode), {})
        found["modes"][mode] = {
            **got["counts"],
            "failed": {id: got["why"].get(id, "it has not run") for id in steady},
            "counting": [id for id in steady if _plain(id) in known],
            "passed_alone": got["passed_alone"],
            "errors_logged": [said for said in got["said"] if said["level"] == "ERROR"],
        }
        print(_sentence(suite.package, version, found, mode), flush=True)
    return found


def _once(place: _Place, mode: str, out: Path, options: argparse.Namespace) -> dict[str, Any]:
    """A suite in one mode; its failures a second time, alone, because some suites hold tests that depend on others."""
    kept = out.with_name(f"{out.name}.json")
    if kept.exists() and not options.fresh:
        return dict(json.loads(kept.read_text()))
    got = place.run(mode, out, [place.suite.tests], workers=options.workers)
    failed = [id for id, outcome in got["tests"].items() if outcome == "failed"]
    got["passed_alone"] = []
    if mode != "bare" and 0 < len(failed) <= AGAIN:
        again = place.run(mode, out.with_name(f"{out.name}-again"), failed, workers="0")
        got["passed_alone"] = [id for id, outcome in again["tests"].items() if outcome == "passed"]
    kept.write_text(json.dumps(got))
    return got


# --- saying it ------------------------------------------------------------------------------------------------------------


def _plain(id: str) -> str:
    return id.partition("[")[0]


def _sentence(package: str, version: str, found: dict[str, Any], mode: str) -> str:
    got = found["modes"][mode]
    under = {"attach": f"{got['graphs']} graphs attached", "handler": f"{got['runs']} runs recorded"}
    with_it = under.get(mode, f"{got['savers']} savers wrapped")
    counting = f", {len(got['counting'])} of them because they count" if got["counting"] else ""
    logged = len(got["errors_logged"])
    errors = f"; the journal logged {logged} error{'s' if logged > 1 else ''}" if logged else ""
    alone = f"; {len(got['passed_alone'])} passed when run alone" if got["passed_alone"] else ""
    return (
        f"{package} {version}, {mode}: {found['passed_bare']} passed bare, {len(got['failed'])} of them fail"
        f"{counting} ({with_it}{errors}{alone})"
    )


def _report(results: dict[str, Any], work: Path) -> int:
    unexpected = 0
    for package, found in results.items():
        for mode, got in found["modes"].items():
            for id in got["failed"]:
                reason = COUNTS.get((package, mode), {}).get(_plain(id))
                unexpected += reason is None
                print(f"  {package} {mode}: {id}{'' if reason is None else f' (known: {reason})'}")
    print(f"what came of each test: {work / 'results.json'}")
    return 1 if unexpected else 0


if __name__ == "__main__":
    raise SystemExit(main())
