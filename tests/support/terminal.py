"""A program in a terminal of its own, as a person would use it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self

_OWN = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b\][^\x07]*\x07|[\x01\x02]")


class Terminal:
    """Run a module of Python in a pseudo terminal; wait for what it writes, and press keys."""

    def __init__(self, *command: str, width: int = 100, height: int = 50, cwd: Path | None = None, **env: str) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        # The shell of the tests may have set these.
        inherited = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES", "NO_COLOR")}
        self.process = subprocess.Popen(
            [sys.executable, "-c", _OWN, sys.executable, "-m", *command],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=cwd,
            env={**inherited, "TERM": "xterm-256color", **env},
            start_new_session=True,
        )
        os.close(slave)
        self.raw = ""
        self._seen = 0

    @property
    def text(self) -> str:
        """All that the program has written, without colours."""
        return _ESCAPES.sub("", self.raw).replace("\r", "")

    def _read(self, give_up: float) -> bool | None:
        """Read more: True if there was something, False at the end, None at the deadline."""
        ready, _, _ = select.select([self.master], [], [], max(0.0, give_up - time.monotonic()))
        if not ready:
            return None
        try:
            found = os.read(self.master, 65536)
        except OSError:
            return False  # Linux raises this when the other end is closed
        self.raw += found.decode(errors="replace")
        return bool(found)

    def wait_for(self, pattern: str, timeout: float = 30.0) -> re.Match[str]:
        """Read until the pattern matches behind the previous match."""
        give_up = time.monotonic() + timeout
        while (found := re.compile(pattern, re.S).search(self.text, self._seen)) is None:
            assert self._read(give_up), f"waited in vain for {pattern!r}, after:\n{self.text}"
        self._seen = found.end()
        return found

    def send(self, keys: str) -> None:
        """Press keys."""
        os.write(self.master, keys.encode())

    def end(self, timeout: float = 30.0) -> int:
        """Read until the program has ended; return its exit status."""
        give_up = time.monotonic() + timeout
        while self._read(give_up) is not False:
            assert time.monotonic() < give_up, f"it is still running:\n{self.text}"
        return self.process.wait(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *about: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        with contextlib.suppress(OSError):
            os.close(self.master)
