"""Make the pictures of the page of `runjournal serve`: a real server, looked at in Chromium.

python docs/pictures/serve.py        needs playwright and a Chromium (CHROMIUM=path, if it is not found)
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, expect, sync_playwright

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
PATIENCE = 60_000


def start(home: str, port: str = "0") -> tuple[subprocess.Popen[str], str]:
    """Start a server, and return it with its address."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "langchain_runjournal", "serve", "--demo", "--port", port]
    env = {**os.environ, "PYTHONPATH": path, "RUNJOURNAL_DEMO_PACE": "0.3"}
    server = subprocess.Popen(command, cwd=home, env=env, stderr=subprocess.PIPE, text=True)
    assert server.stderr is not None
    return server, re.findall(r"http://\S+", server.stderr.readline())[0]


def send(page: Page, text: str, *, wait: bool = True) -> None:
    page.get_by_label("Message", exact=True).fill(text)
    page.keyboard.press("Enter")
    page.wait_for_timeout(200)
    if wait:
        expect(page.get_by_role("button", name="Stop", exact=True)).to_be_hidden()
        page.wait_for_timeout(300)


def main() -> None:
    expect.set_options(timeout=PATIENCE)
    with tempfile.TemporaryDirectory() as home, sync_playwright() as playwright:
        server, url = start(home)
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])

        def tab(width: int, height: int, scheme: Any, address: str = url) -> Page:
            size: Any = {"width": width, "height": height}
            page = browser.new_context(viewport=size, color_scheme=scheme, device_scale_factor=1).new_page()
            page.goto(address)
            return page

        page = tab(1100, 760, "light")
        for text in ("Count to 12", "What is a journal?", "Think about eleven birds"):
            send(page, text)
            page.get_by_role("button", name="New chat").click()
        send(page, "Weather in Rome, Oslo and Reykjavik")
        send(page, "Send a mail to Ada", wait=False)
        expect(page.locator(".question")).to_be_visible()
        page.wait_for_timeout(300)
        page.screenshot(path=HERE / "serve.png")
        phone = tab(390, 760, "light")
        send(phone, "مرحبا")
        phone.screenshot(path=HERE / "serve-rtl.png")
        dark = tab(1100, 760, "dark")
        send(dark, "Show me a table and some code")
        dark.screenshot(path=HERE / "serve-dark.png")
        phone = tab(390, 760, "dark")
        send(phone, "Tell me a story", wait=False)
        phone.wait_for_timeout(700)
        server.send_signal(signal.SIGKILL)
        server.wait()
        expect(phone.get_by_role("alert")).to_be_visible()
        phone.wait_for_timeout(500)
        phone.screenshot(path=HERE / "serve-killed.png")
        server, _ = start(home, url.rpartition(":")[2].strip("/"))
        expect(phone.get_by_role("button", name="Continue")).to_be_visible()
        phone.wait_for_timeout(500)
        phone.screenshot(path=HERE / "serve-back.png")
        browser.close()
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
