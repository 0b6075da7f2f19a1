"""A few cases of each storm of `tests/storms`, and the judge that runs them: it must say what goes wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/stat").exists() or not hasattr(os, "fork"), reason="Linux"),
]

ROOT = Path(__file__).parents[2]


def python(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *args], cwd=ROOT, capture_output=True, text=True, timeout=110)


SMALL = [
    *[("sqlite", *one) for one in (("writers", 5), ("recoverers", 4), ("forks", 8), ("mutations", 8), ("faults", 8))],
    *[("postgres", *one) for one in (("writers", 3), ("recoverers", 1), ("forks", 2), ("faults", 4))],
    ("redis", "faults", 4),
]


@pytest.mark.parametrize(("store", "name", "cases"), SMALL)
def test_a_small_storm(tmp_path: Path, store: str, name: str, cases: int) -> None:
    """Nothing is lost that was acknowledged, nothing wrong is served as right, and nothing hangs."""
    if name == "recoverers" and sys.version_info < (3, 11):
        pytest.skip("asynchronous nodes hand on no callbacks on Python 3.10")
    options = ["--store", store, "--count", str(cases), "--seed", "1", "--jobs", "2", "--keep", str(tmp_path)]
    done = python("-m", "tests.storms", name, *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr.startswith("seed 1\n")
    found = json.loads(done.stdout)
    assert (found["cases"], found["wrong"]) == (cases, 0)
    assert list(tmp_path.iterdir()) == []


JUDGE = """
import os, random, sys, time
from pathlib import Path
from tests.storms import _judge
_judge.PATIENCE = 1.0

def storm(case):
    if case.number == 0:
        raise _judge.Wrong("it was lost")
    if case.number == 1:
        case.fork(lambda: time.sleep(1000))
        time.sleep(1000)
    if case.number == 2:
        os.kill(os.getpid(), 9)
    if case.number == 3:
        raise ValueError("a mistake")
    case.kill(case.fork(lambda: time.sleep(1000)))
    case.counts["draws"] += case.random.randrange(1_000_000)

found = _judge.run("s", storm, range(6), 7, 2, Path(sys.argv[1]), tell=False)
print(sorted(found.wrong), sorted(found.counts.items()))
"""


def test_the_judge_says_what_goes_wrong(tmp_path: Path) -> None:
    """A broken promise, a hang, a death and a mistake; their files stay, and with the same seed the same is drawn."""
    homes = [tmp_path / "a", tmp_path / "b"]
    for home in homes:
        home.mkdir()
    first, again = (python("-c", JUDGE, str(home)) for home in homes)
    assert first.returncode == 0, first.stderr
    assert first.stdout == again.stdout
    for said in ("(0, 'it was lost')", "(1, 'it hung for 1 s')", "(2, 'its process died')", "(3, 'ValueError: a mistake')"):
        assert said in first.stdout
    assert "('cases', 6)" in first.stdout
    assert "('kills', 2)" in first.stdout
    assert sorted(path.name for path in homes[0].iterdir()) == ["s-0", "s-1", "s-2", "s-3"]
