"""The other end of a process that is killed."""

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

from ._place import DemoFailed

_MODULE: Final = f"{__package__}._killed"
_LONG: Final = 60.0
_KILL: Final = getattr(signal, "SIGKILL", signal.SIGTERM)  # Windows has but one way, and it is as rude


class Child:
    """A process that answers, and is killed in the middle. It begins to import at once, and to answer when it is told to."""

    def __init__(self, directory: Path, thread_id: str, pace: float) -> None:
        self._log = directory / "killed.log"
        self._loop = asyncio.get_running_loop()
        self._heard: asyncio.Queue[list[str] | None] = asyncio.Queue()
        root = str(Path(__file__).parents[2])
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        command = [sys.executable, "-m", _MODULE, str(directory), thread_id, str(pace)]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 - ourselves
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, "PYTHONPATH": path},
                start_new_session=True,  # Ctrl-C is for us: we end it
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
            pass  # the loop is closed: we are leaving

    async def answer(self, show: Callable[[str, str], None], enough: Callable[[], bool]) -> None:
        """Let it begin, and show what it says until that is enough."""
        await self._next()  # it is ready
        with contextlib.suppress(BrokenPipeError):  # it is dead: that is what we hear next
            self._stdin.write(b"go\n")
            self._stdin.flush()
        while not enough():
            show(*await self._next())

    async def _next(self) -> list[str]:
        try:
            heard = await asyncio.wait_for(self._heard.get(), _LONG)
        except (asyncio.TimeoutError, TimeoutError):
            raise DemoFailed(f"The process that was to be killed said nothing for {_LONG:.0f} seconds.") from None
        if heard is None:
            status = self._process.wait()
            last = self._log.read_text(errors="replace").strip().rpartition("\n")[2]
            raise DemoFailed(
                f"The process that was to be killed had ended before, with exit status {status}, and said:"
                f" {last or 'nothing'}"
            )
        return heard

    async def kill(self, show: Callable[[str, str], None]) -> int:
        """End it with SIGKILL, show what was on its way to us, and return how it ended."""
        self._process.send_signal(_KILL)
        status = await asyncio.to_thread(self._process.wait)
        while (heard := await asyncio.wait_for(self._heard.get(), _LONG)) is not None:
            show(*heard)
        if status != -_KILL and os.name == "posix":
            raise DemoFailed(f"The process did not end by the kill, but by itself, with exit status {status}.")
        return status

    def leave(self) -> None:
        """Make sure that nothing of it is left."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        try:
            self._stdin.close()
        except OSError:
            pass  # it had not read all
        self._reader.join()
        self._stdout.close()
        if not self._log.stat().st_size:
            self._log.unlink()
