"""The page of the example server, in a real browser: whatever ends a connection or a server, what was read stays."""

from __future__ import annotations

import os
import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.journeys.test_server import PATIENCE, Server

try:
    from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright
except ImportError:  # see the fixture
    sync_playwright = None  # type: ignore[assignment]

pytestmark = [pytest.mark.slow, pytest.mark.look, pytest.mark.skipif(os.name != "posix", reason="signals")]

FLAGS = "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-component-update"
ONLY_CONNECTION = re.compile(r"net::ERR_|Failed to fetch")
"""What the browser itself says of a server that has gone."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if sync_playwright is None or chromium is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("needs playwright and a Chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=[*FLAGS.split(), "--disable-sync"])
        yield browser
        browser.close()


class Chat:
    """One server after the other on one port and the same files, and pages of it."""

    def __init__(self, home: Path, browser: Browser) -> None:
        self._home = home
        self._context = browser.new_context()
        self._context.set_default_timeout(PATIENCE * 1000)
        self.complaints: list[str] = []
        self.server = Server(home)
        self.url = str(self.server.client.base_url)

    def page(self, thread: str = "t", **size: Any) -> Page:
        """The page, when it has shown what the thread holds."""
        page = self._context.new_page()
        if size:
            page.set_viewport_size({"width": size["width"], "height": size["height"]})
        page.on("console", lambda said: self.complaints.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.goto(f"{self.url}/#{thread}")
        expect(page.get_by_role("status")).to_have_text(re.compile("sends|Answering"))
        return page

    def kill_the_server(self) -> None:
        self.server.end(signal.SIGKILL)

    def start_it_again(self) -> None:
        self.server = Server(self._home, "--port", self.url.rpartition(":")[2])

    def close(self) -> None:
        self._context.close()
        self.server.end()
        self.complaints += [self.server.complaints()] if self.server.complaints() else []


@pytest.fixture
def chat(browser: Browser, tmp_path: Path) -> Iterator[Chat]:
    """Nobody complains: the script of the page is allowed, nothing else is loaded, and nothing goes wrong in it."""
    expect.set_options(timeout=PATIENCE * 1000)
    chat = Chat(tmp_path, browser)
    yield chat
    chat.close()
    assert [said for said in chat.complaints if not ONLY_CONNECTION.search(said)] == []


def send(page: Page, text: str) -> None:
    page.get_by_label("Message").fill(text)
    page.get_by_label("Message").press("Enter")


def answers(page: Page) -> Locator:
    return page.locator(".ai .text")


def streams(page: Page) -> str:
    """Wait until the answer has said something, and is going on; gives what stands there."""
    words = page.locator(".ai.live .text")
    expect(words).to_contain_text(" 10 ")
    return words.inner_text()


def at_rest(page: Page) -> None:
    expect(page.get_by_role("button", name="Stop", exact=True)).to_be_hidden()
    expect(page.locator(".live")).to_have_count(0)


def counts_up(text: str) -> list[int]:
    """The numbers, which are 1, 2, 3 and so on: nothing is missing, nothing is there twice."""
    numbers = [int(word) for word in text.split()]
    assert numbers == list(range(1, len(numbers) + 1))
    return numbers


def test_stop_in_mid_answer(chat: Chat) -> None:
    """What was read stays, also after a reload, and says that it was stopped; "Continue" continues from there."""
    page = chat.page()
    send(page, "Count to 1000")
    seen = streams(page)
    page.keyboard.press("Escape")
    expect(page.locator(".ai .cut")).to_have_text("Stopped")
    at_rest(page)
    kept = answers(page).inner_text()
    assert kept.startswith(seen.strip())
    counts_up(kept)
    page.reload()
    expect(page.locator(".ai .cut")).to_have_text("Stopped")
    assert answers(page).inner_text() == kept
    page.get_by_role("button", name="Continue").click()
    expect(answers(page)).to_have_count(2)
    at_rest(page)
    assert len(counts_up(" ".join(answers(page).all_inner_texts()))) == 1000
    assert chat.server.thread()[2] == "human: Continue"


def test_reload_in_mid_answer(chat: Chat) -> None:
    """Nothing is missed and nothing is said twice; another tab shows the same, and can stop it, too."""
    page = chat.page()
    send(page, "Count to 100000")
    seen = streams(page)
    page.reload()
    other = chat.page()
    for one in (page, other):
        streams(one)
        expect(one.locator(".ai.live .text")).to_contain_text(seen.strip())
    other.get_by_role("button", name="Stop", exact=True).click()
    for one in (page, other):
        expect(one.locator(".ai .cut")).to_have_text("Stopped")
        expect(one.get_by_role("button", name="Continue")).to_be_visible()
    assert page.locator("#said").inner_text() == other.locator("#said").inner_text()
    counts_up(answers(page).inner_text())
    send(page, "hello")  # the other tab hears of it
    for one in (page, other):
        expect(answers(one).last).to_have_text("I have been given: human, ai (cut off), human")


def test_reload_while_a_tool_is_at_work(chat: Chat) -> None:
    """What the thread holds already is not shown twice, and in its order; the tool is at work, and can be stopped."""
    page = chat.page()
    send(page, "Weather in Rome, Nowhere")
    for _ in range(2):
        expect(page.locator(".tool")).to_have_text(["weather(Rome) \u2192 sunny in Rome", "weather(Nowhere)"])
        expect(answers(page)).to_have_text("Looking.")
        page.reload()
    expect(page.locator(".tool.done")).to_have_count(1)
    page.keyboard.press("Escape")
    expect(page.locator(".tool.bad")).to_contain_text("weather(Nowhere) \u2192 Interrupted while running (the user stopped")
    page.get_by_role("button", name="Continue").click()
    expect(answers(page)).to_have_text(["Looking.", "The others."])
    expect(page.locator(".tool")).to_have_count(3)  # Nowhere only: it knows of Rome


def test_the_server_is_killed(chat: Chat) -> None:
    """The page says so, keeps what it shows, comes back by itself, and shows what was kept; then the next message works."""
    page = chat.page()
    send(page, "Count to 100000")
    seen = streams(page)
    chat.kill_the_server()
    lost = page.get_by_role("alert")
    expect(lost).to_contain_text("Connection lost")
    assert answers(page).inner_text().startswith(seen.strip())
    shown = answers(page).inner_text()
    chat.start_it_again()
    expect(lost).to_be_hidden()
    expect(page.locator(".ai .cut")).to_have_text("Cut off: the server was killed")
    at_rest(page)
    kept = answers(page).inner_text()
    assert kept.startswith(shown.strip())
    counts_up(kept)
    send(page, "hello")
    expect(answers(page).last).to_have_text("I have been given: human, ai (cut off), human")


def test_the_server_is_killed_while_nothing_is_said(chat: Chat) -> None:
    """A message that cannot be sent stays in its box, and the page comes back without being told to."""
    page = chat.page()
    chat.kill_the_server()
    send(page, "hello")
    expect(page.get_by_role("alert")).to_contain_text("Connection lost")
    expect(page.get_by_label("Message")).to_have_value("hello")
    chat.start_it_again()
    expect(page.get_by_role("alert")).to_be_hidden()
    page.get_by_role("button", name="Send").click()
    expect(answers(page)).to_have_text("I have been given: human")
    expect(page.get_by_label("Message")).to_have_value("")


def test_a_message_while_an_answer_is_written(chat: Chat) -> None:
    """The user decides: not sent, stop the answer and send, or send when it is done. Tools are shown while they work."""
    page = chat.page()
    send(page, "Count to 100000")
    streams(page)
    send(page, "Weather in Rome, Nowhere")  # of Nowhere, nothing is ever heard
    page.get_by_role("button", name="Do not send").click()
    expect(page.get_by_label("Message")).to_have_value("Weather in Rome, Nowhere")
    page.get_by_label("Message").press("Enter")
    page.get_by_role("button", name="Stop it and send").click()
    expect(page.locator(".ai .cut")).to_have_text("Cut off by the next message")
    expect(page.locator(".tool.done")).to_have_text("weather(Rome) \u2192 sunny in Rome")
    expect(page.locator(".tool:not(.done):not(.bad)")).to_have_text("weather(Nowhere)")
    send(page, "hello")
    page.get_by_role("button", name="Send when it is done").click()
    expect(page.get_by_role("status")).to_have_text("Waiting for the running answer.")
    page.get_by_role("button", name="Stop", exact=True).click()
    expect(page.locator(".tool.bad")).to_contain_text("weather(Nowhere) \u2192 Interrupted while running")
    expect(answers(page).last).to_have_text("I have been given: human, ai (cut off), human, ai, tool, tool, human")
    at_rest(page)


@pytest.mark.parametrize("width", [360, 1280])
def test_what_is_shown_is_text(chat: Chat, width: int) -> None:
    """Markup is shown as it was written, in messages and in tools; a very long word does not make the page wider."""
    page = chat.page(width=width, height=740)
    evil = "<script>alert(1)</script><img src=x onerror=alert(2)>"
    page.on("dialog", lambda dialog: chat.complaints.append(dialog.message))
    send(page, f"Weather in {evil}")
    expect(answers(page).last).to_have_text(f"Now I know: sunny in {evil}.")
    at_rest(page)
    send(page, evil + "w" * 500)
    expect(answers(page).last).to_have_text("I have been given: human, ai, tool, ai, human")
    page.reload()
    expect(page.locator(".human")).to_have_text([f"Weather in {evil}", evil + "w" * 500])
    expect(page.locator(".tool")).to_have_text(f"weather({evil}) \u2192 sunny in {evil}")
    expect(page.locator("#said img, #said script")).to_have_count(0)
    for place in ("html", "#scroll", "#said"):
        box = page.locator(place)
        assert box.evaluate("one => one.scrollWidth") <= width, place
    expect(page.locator("#send")).to_be_in_viewport(ratio=1)


def test_a_message_whose_answer_is_lost_is_said_once(chat: Chat) -> None:
    """The server has it, and the page cannot know: sending it again begins no second run."""
    page = chat.page()
    page.route("**/messages", lambda route: (route.fetch(), route.abort()), times=1)
    send(page, "Count to 20")
    expect(answers(page)).to_have_text(re.compile(r" 20\s*$"))  # the page has found the run by itself
    at_rest(page)
    expect(page.get_by_label("Message")).to_be_editable()
    if page.get_by_label("Message").input_value():
        page.get_by_label("Message").press("Enter")
        expect(page.get_by_label("Message")).to_have_value("")
    at_rest(page)
    assert [line.partition(":")[0] for line in chat.server.thread()] == ["human", "ai"]


def test_a_message_whose_answer_is_lost_is_not_in_the_way_of_the_next(chat: Chat) -> None:
    """The page finds out that it has arrived; the same words are then another message, here and elsewhere."""
    page = chat.page()
    page.route("**/messages", lambda route: (route.fetch(), route.abort()), times=1)
    send(page, "Count to 20")
    expect(answers(page)).to_have_text(re.compile(r" 20\s*$"))
    expect(page.get_by_label("Message")).to_have_value("")
    for _ in range(2):
        at_rest(page)
        send(page, "Count to 20")
        expect(page.get_by_label("Message")).to_have_value("")
        expect(answers(page).last).to_have_text(re.compile(r" 20\s*$"))
        at_rest(page)
        page.get_by_role("button", name="New conversation").click()
        expect(page.get_by_role("heading", name="Interrupt me.")).to_be_visible()
    assert [line.partition(":")[0] for line in chat.server.thread()] == ["human", "ai"] * 2


def test_what_waits_in_one_conversation_does_not_lock_another(chat: Chat) -> None:
    """It goes on waiting there, and here one can speak."""
    page = chat.page()
    send(page, "Count to 100000")
    streams(page)
    send(page, "hello")
    page.get_by_role("button", name="Send when it is done").click()
    expect(page.get_by_role("status")).to_have_text("Waiting for the running answer.")
    page.get_by_role("button", name="New conversation").click()
    expect(page.get_by_role("heading", name="Interrupt me.")).to_be_visible()
    page.get_by_role("button", name="Count to 100", exact=True).click()
    expect(answers(page)).to_have_text(re.compile(r" 100\s*$"))
    at_rest(page)
    page.goto(f"{chat.url}/#t")
    expect(page.locator("#name")).to_have_text("t")
    page.get_by_role("button", name="Stop", exact=True).click()
    expect(answers(page).last).to_have_text("I have been given: human, ai (cut off), human")


def test_nobody_is_asked_about_an_answer_that_is_over(chat: Chat) -> None:
    """Neither when it ends meanwhile, nor behind a Stop: what is sent then comes next."""
    page = chat.page()
    send(page, "Count to 100000")
    streams(page)
    send(page, "hello")
    asked = page.get_by_role("alertdialog")
    expect(asked).to_be_visible()
    page.get_by_role("button", name="Stop", exact=True).click()
    expect(page.locator(".ai .cut")).to_have_text("Stopped")
    expect(asked).to_be_hidden()
    expect(page.get_by_label("Message")).to_have_value("hello")
    expect(page.get_by_label("Message")).to_be_focused()
    page.get_by_label("Message").fill("Count to 100000")
    page.keyboard.press("Enter")
    streams(page)
    page.get_by_label("Message").fill("hello")
    page.evaluate(  # in one turn of the page, as fast as nobody is
        """() => { document.getElementById("stop").click(); document.getElementById("send").click(); }"""
    )
    expect(answers(page).last).to_have_text(re.compile("^I have been given:"))
    expect(asked).to_be_hidden()
    at_rest(page)
    assert chat.server.thread()[-2] == "human: hello"


def test_a_stop_while_the_message_is_on_its_way(chat: Chat) -> None:
    """The run is stopped when it is there."""
    page = chat.page()
    held: list[Any] = []
    page.route("**/messages", lambda route: held.append(route), times=1)
    send(page, "Count to 100000")
    page.wait_for_function("document.getElementById('send').disabled")
    page.keyboard.press("Escape")
    expect(page.get_by_role("status")).to_have_text("Stopping.")
    held[0].continue_()
    expect(page.locator(".ai .cut, .more").first).to_be_visible()
    at_rest(page)
    assert len(chat.server.thread()) <= 2


def test_a_stop_that_does_not_arrive_is_said_again(chat: Chat) -> None:
    """Whoever has pressed Stop need not look whether it was heard."""
    page = chat.page()
    page.route("**/stop?wait=true", lambda route: route.abort(), times=1)
    send(page, "Count to 100000")
    streams(page)
    page.keyboard.press("Escape")
    expect(page.locator(".ai .cut")).to_have_text("Stopped")
    at_rest(page)
    counts_up(answers(page).inner_text())
