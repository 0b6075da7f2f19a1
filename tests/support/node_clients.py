"""The npm packages that stand for browsers: installed once into a directory that git ignores, and run with node."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
AI_SDK = ROOT / "tests" / "clients" / "ai-sdk"
LANGGRAPH = ROOT / "tests" / "clients" / "langgraph"
PATIENCE = 300.0


def missing(reason: str) -> None:
    """Fail where CI runs, and skip on the machine of somebody who has no node."""
    (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)


def install(source: Path = AI_SDK) -> Path:
    """Return the directory in which the programs of `source` can run, with its packages."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        missing("needs node and npm")
    manifest = (source / "package.json").read_text("utf-8")
    home = ROOT / ".clients" / f"{source.name}-{hashlib.sha256(manifest.encode()).hexdigest()[:12]}"
    home.mkdir(parents=True, exist_ok=True)
    with (home / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # suites of CI run side by side
        if not (home / ".ready").exists():
            (home / "package.json").write_text(manifest, "utf-8")
            # No lock file: it would name the registry that this machine uses.
            # Some packages name peers that the registry lacks: each manifest names all that its programs need.
            command = [
                str(npm),
                "install",
                "--legacy-peer-deps",
                "--package-lock=false",
                "--no-audit",
                "--no-fund",
                "--loglevel=error",
            ]
            done = subprocess.run(command, cwd=home, capture_output=True, text=True, timeout=PATIENCE)
            if done.returncode:
                missing(f"npm install failed: {done.stderr[-2000:]}")
            (home / ".ready").touch()
        for program in source.glob("*.mjs"):
            if not (home / program.name).exists() or (home / program.name).read_bytes() != program.read_bytes():
                shutil.copy(program, home)
    return home


def run(home: Path, program: str, *args: str, given: Any = None, patience: float = PATIENCE) -> Any:
    """Run a program, with JSON as its input, and return the JSON that it prints."""
    command = ["node", program, *args]
    text = json.dumps(given) if given is not None else ""
    done = subprocess.run(command, cwd=home, input=text, capture_output=True, text=True, timeout=patience)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout)
