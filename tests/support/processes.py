"""How a server that a test has started ends."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from contextlib import suppress

PATIENCE = 60.0


def end_process(process: subprocess.Popen[str], how: signal.Signals, reader: threading.Thread) -> int:
    """End a process, if it has not ended, with its children and the thread that reads what it says. Return its exit code."""
    if process.poll() is None:
        process.send_signal(how)
    try:
        process.wait(PATIENCE)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        reader.join(PATIENCE)
        assert process.stderr is not None
        process.stderr.close()
    return process.returncode
