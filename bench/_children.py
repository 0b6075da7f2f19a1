"""Child processes that read a line and answer with a line of JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
"""The working directory of child processes, so that they import this package and this library."""


class Child:
    """A process that runs a module of this package."""

    def __init__(self, module: str, *arguments: str) -> None:
        command = [sys.executable, "-m", f"bench.{module}", *arguments]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self._process.stdin is None or self._process.stdout is None:
            raise AssertionError("the process has no pipes")
        self._in, self._out = self._process.stdin, self._process.stdout

    def tell(self, line: str) -> None:
        """Write a line to the child."""
        print(line, file=self._in, flush=True)

    def hear(self) -> Any:
        """Read the next line from the child, and parse it."""
        line = self._out.readline()
        if not line:
            raise AssertionError(f"a child process ended with {self._process.wait()} instead of answering")
        return json.loads(line)

    def ask(self, line: str) -> Any:
        """Write a line, and return the answer."""
        self.tell(line)
        return self.hear()

    def close(self) -> None:
        """Close the pipes, and wait until the child has ended."""
        self._in.close()
        self._out.close()
        self._process.wait(60)

    def __enter__(self) -> Child:  # noqa: PYI034 - Self is not in the oldest Python that we run on
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()
