"""The parent's end of the process that the demonstration kills (`victim`)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO, Final, cast

from .directory import DemoFailed

_MODULE: Final = f"{__package__}.victim"
_TIMEOUT: Final = 60.0
_KILL: Final = getattr(signal, "SIGKILL", signal.SIGTERM)  # on Windows, SIGTERM ends a process just as abruptly


class VictimProcess:
    """A process that answers, and is killed in the middle of its answer.

    It begins to import as soon as this object exists, and to answer when :meth:`answer` is called.
    """

    def __init__(self, directory: Path, thread_id: str, pace: float) -> None:
        self._log = directory / "victim.log"
        self._loop = asyncio.get_running_loop()
        self._heard: asyncio.Queue[list[str] | None] = asyncio.Queue()
        root = str(Path(__file__).parents[2])
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        command = [sys.executable, "-m", _MODULE, str(directory), thread_id, str(pace)]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 - the command is our own module
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, "PYTHONPATH": path},
                start_new_session=True,  # Ctrl-C reaches only this process, which then ends the other one
            )
        self._stdin = cast("IO[bytes]", self._process.stdin)
        self._stdout = cast("IO[bytes]", self._process.stdout)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self._stdout:
            if line.endswith(b"\n"):
                self._put(json.loads(line))
        self._put(None)

    def _put(self, heard: list[str] | None) -> None:
        try:
            self._loop.call_soon_threadsafe(self._heard.put_nowait, heard)
        except RuntimeError:
            pass  # the loop is closed: the demonstration is ending

    async def answer(self, show: Callable[[str, str], None], enough: Callable[[], bool]) -> None:
        """Start the answer, and pass what it says to `show` until `enough` returns True."""
        await self._next()  # "ready"
        with contextlib.suppress(BrokenPipeError):  # the process is dead; _next() reports it
            self._stdin.write(b"go\n")
            self._stdin.flush()
        while not enough():
            show(*await self._next())

    async def _next(self) -> list[str]:
        try:
            heard = await asyncio.wait_for(self._heard.get(), _TIMEOUT)
        except (asyncio.TimeoutError, TimeoutError):
            raise DemoFailed(f"The process that was to be killed said nothing for {_TIMEOUT:.0f} seconds.") from None
        if heard is None:
            status = self._process.wait()
            last = self._log.read_text(errors="replace").strip().rpartition("\n")[2]
            raise DemoFailed(
                f"The process that was to be killed had ended before, with exit status {status}, and said:"
                f" {last or 'nothing'}"
            )
        return heard

    async def kill(self, show: Callable[[str, str], None]) -> int:
        """Send SIGKILL, pass what was still in the pipe to `show`, and return the exit status."""
        self._process.send_signal(_KILL)
        status = await asyncio.to_thread(self._process.wait)
        while (heard := await asyncio.wait_for(self._heard.get(), _TIMEOUT)) is not None:
            show(*heard)
        if status != -_KILL and os.name == "posix":
            raise DemoFailed(f"The kill did not end the process: it ended by itself, with exit status {status}.")
        return status

    def close(self) -> None:
        """End the process if it is still running, and release its pipes. Delete its log if it is empty."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        try:
            self._stdin.close()
        except OSError:
            pass  # the process ended before it read everything
        self._reader.join()
        self._stdout.close()
        if not self._log.stat().st_size:
            self._log.unlink()
