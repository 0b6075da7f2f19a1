"""`runjournal serve --demo` as a process, and pages of it in a real browser."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import end_process

PATIENCE = 60.0  # seconds, for what takes a few at most
ROOT = Path(__file__).parents[2]
FLAGS = "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-component-update"
ONLY_CONNECTION = re.compile(r"net::ERR_|Failed to fetch|404 \(Not Found\)")
"""What the browser itself says of a server that has gone, and of a conversation that has not begun."""


@contextmanager
def a_browser() -> Iterator[Any]:
    """Start a Chromium. Without one, skip the test; with CI=true it fails: there, these tests must run."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        chromium = None
    if chromium is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("needs playwright and a Chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=[*FLAGS.split(), "--disable-sync"])
        yield browser
        browser.close()


class ServeProcess:
    """The command in a process of its own, in a directory with its two files."""

    def __init__(self, home: Path, *options: str, port: int = 0, **environment: str) -> None:
        command = [sys.executable, "-m", "langchain_runjournal", "serve", "--port", str(port), *(options or ("--demo",))]
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        env = {**os.environ, "PYTHONPATH": path, "RUNJOURNAL_DEMO_PACE": "0.1", **environment}
        pipes: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(command, cwd=home, env=env, start_new_session=True, **pipes)
        self.said: list[str] = []
        self.url = ""
        self._is_up = threading.Event()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        if not self._is_up.wait(PATIENCE) or not self.url:
            self.end(signal.SIGKILL)
            raise AssertionError("".join(self.said))

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line)
            found = re.search(r"runjournal: (http://\S+)", line)
            if found and not self.url:
                self.url = found[1]
                self._is_up.set()
        self._is_up.set()

    @property
    def port(self) -> int:
        """The port on which it listens."""
        return int(re.findall(r":(\d+)/", self.url)[0])

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        """End it, if it has not ended, and return its exit code."""
        return end_process(self.process, how, self._reader)


class Chat:
    """One server after the other on one port and the same files, and pages of it in one browser."""

    def __init__(self, home: Path, browser: Any, **context: Any) -> None:
        self._home = home
        self._browser = browser
        self.complaints: list[str] = []
        self.server = ServeProcess(home)
        self.url = self.server.url
        self.context = self.new_context(**context)

    def new_context(self, **options: Any) -> Any:
        """A browser profile of its own: nothing of another one is known in it."""
        context = self._browser.new_context(**options)
        context.set_default_timeout(PATIENCE * 1000)
        context.on("request", self._look_at)
        return context

    def _look_at(self, request: Any) -> None:
        if not request.url.startswith((self.url, "data:")):
            self.complaints.append(f"a request to {request.url}")

    def page(self, address: str = "", context: Any = None) -> Any:
        """A page that reports everything that goes wrong in it."""
        page = (context or self.context).new_page()
        page.on("console", lambda said: self.complaints.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", lambda dialog: (self.complaints.append(dialog.message), dialog.dismiss()))
        page.goto(self.url + address)
        return page

    def kill_the_server(self) -> None:
        """Kill it as the kernel does when memory is short."""
        self.server.end(signal.SIGKILL)

    def start_it_again(self) -> None:
        """Start it on the same port and the same files."""
        self.server = ServeProcess(self._home, port=int(self.url.rpartition(":")[2].strip("/")))

    def close(self) -> None:
        """End both."""
        self.context.close()
        self.server.end()
