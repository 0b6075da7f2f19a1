"""The page of `runjournal serve`, in a real browser: whatever ends a connection or a server, what was read stays."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.serving import ONLY_CONNECTION, PATIENCE, Chat, ServeProcess, a_browser

try:
    from playwright.sync_api import Browser, Locator, Page, expect
except ImportError:  # see the fixture
    expect = None  # type: ignore[assignment]

pytest.importorskip("uvicorn")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.look,
    pytest.mark.guarantee("client leaves"),
    pytest.mark.skipif(os.name != "posix", reason="signals"),
]

EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with a_browser() as opened:
        expect.set_options(timeout=PATIENCE * 1000)
        yield opened


@pytest.fixture
def chat(browser: Browser, tmp_path: Path) -> Iterator[Chat]:
    """Nobody complains: the policy allows what the page does, nothing else is loaded, and nothing goes wrong in it."""
    chat = Chat(tmp_path, browser)
    yield chat
    chat.close()
    assert [said for said in chat.complaints if not ONLY_CONNECTION.search(said)] == []


def box(page: Page) -> Locator:
    return page.get_by_label("Message", exact=True)


def send(page: Page, text: str) -> None:
    box(page).fill(text)
    box(page).press("Enter")
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")  # it is drawn


def answers(page: Page) -> Locator:
    return page.locator(".ai .body > .text")


def stop_button(page: Page) -> Locator:
    return page.get_by_role("button", name="Stop", exact=True)


def streams(page: Page) -> str:
    """Wait until the answer has said something, and is going on; gives what stands there."""
    words = page.locator(".ai.live .body > .text")
    expect(words).to_contain_text(" 10 ")
    return str(words.inner_text())


def at_rest(page: Page) -> None:
    """Wait until the run is over, and the page has read its thread."""
    expect(stop_button(page)).to_be_hidden()
    expect(page.locator(".live, .pending")).to_have_count(0)
    expect(page.locator("#said.busy")).to_have_count(0)


def counts_up(text: str) -> list[int]:
    """The numbers, which are 1, 2, 3 and so on: nothing is missing, nothing is there twice."""
    numbers = [int(word) for word in text.split()]
    assert numbers == list(range(1, len(numbers) + 1))
    return numbers


# --- one conversation -------------------------------------------------------------------------------------------------


def test_an_answer_with_a_table_and_code(chat: Chat) -> None:
    """Markdown becomes elements; code can be copied; the run's timeline is a link away; the title is the first words."""
    page = chat.page()
    chat.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Show me a table and some code").click()
    expect(page.locator(".ai blockquote a")).to_have_attribute("rel", "noopener noreferrer")
    at_rest(page)
    expect(page.locator(".ai th")).to_have_text(["store", "several machines", "needs a server"])
    expect(page.locator(".ai td strong")).to_have_text("Postgres")
    expect(page.locator(".ai ol > li ul > li")).to_have_count(2)
    page.get_by_role("button", name="Copy code").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    code = page.evaluate("navigator.clipboard.readText()")
    assert code == page.locator(".ai pre code").text_content()
    assert code.startswith("async with RunJournal")
    expect(page.locator("h1")).to_have_text("Show me a table and some code")
    expect(page.locator("#threads a")).to_have_text("Show me a table and some code")
    with chat.context.expect_page() as opened:
        page.get_by_role("link", name="Timeline of the run").click()
    expect(opened.value.get_by_role("heading", name="Timeline")).to_be_visible()


def test_stop_and_continue(chat: Chat) -> None:
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
    expect(answers(page).last).to_have_text(re.compile(r" 1000\s*$"))
    at_rest(page)
    assert len(counts_up(" ".join(answers(page).all_inner_texts()))) == 1000
    expect(page.locator(".human .words")).to_have_text(["Count to 1000", "Continue."])


def test_reload_in_mid_answer(chat: Chat) -> None:
    """Nothing is missed and nothing is said twice; another tab shows the same, and can stop it, too."""
    page = chat.page("#t")
    send(page, "Count to 100000")
    seen = streams(page)
    page.reload()
    other = chat.page("#t")
    for one in (page, other):
        streams(one)
        expect(one.locator(".ai.live .body > .text")).to_contain_text(seen.strip())
    stop_button(other).click()
    for one in (page, other):
        expect(one.locator(".ai .cut")).to_have_text("Stopped")
        at_rest(one)
        expect(one.get_by_role("button", name="Continue")).to_be_visible()
    assert page.locator("#said").inner_text() == other.locator("#said").inner_text()
    counts_up(answers(page).inner_text())
    send(page, "hello")  # the other tab hears of it
    for one in (page, other):
        expect(answers(one).last).to_contain_text("I have been given: human, ai (cut off), human.")


def test_the_server_is_killed(chat: Chat) -> None:
    """The page says so, keeps what it shows, comes back by itself, and shows what was kept; then the next message works."""
    page = chat.page()
    send(page, "Count to 100000")
    seen = streams(page)
    chat.kill_the_server()
    lost = page.get_by_role("alert")
    expect(lost).to_contain_text("reconnecting")
    shown = answers(page).inner_text()
    assert shown.startswith(seen.strip())
    chat.start_it_again()
    expect(lost).to_be_hidden()
    expect(page.locator(".ai .cut")).to_have_text("Cut off: the server was killed")
    at_rest(page)
    kept = answers(page).inner_text()
    assert kept.startswith(shown.strip())
    counts_up(kept)
    send(page, "hello")
    expect(answers(page).last).to_contain_text("I have been given: human, ai (cut off), human.")


def test_a_message_that_cannot_be_sent(chat: Chat) -> None:
    """It is sent when the server is back, once; also if the page was loaded again meanwhile."""
    page = chat.page("#t")
    send(page, "hello")
    expect(answers(page)).to_contain_text("I have been given: human.")
    at_rest(page)
    chat.kill_the_server()
    send(page, "Count to 20")
    expect(page.locator(".human.pending")).to_contain_text("Count to 20")
    expect(page.get_by_role("alert")).to_contain_text("reconnecting")
    chat.start_it_again()
    expect(answers(page).last).to_have_text(re.compile(r" 20\s*$"))
    at_rest(page)
    expect(page.locator(".human .words")).to_have_text(["hello", "Count to 20"])


def test_an_answer_to_the_request_that_is_lost(chat: Chat) -> None:
    """The server has the message, and the page cannot know: it repeats the request, and no second run begins."""
    page = chat.page("#t")
    page.route("**/runs", lambda route: (route.fetch(), route.abort()), times=1)
    send(page, "Count to 20")
    expect(answers(page)).to_have_text(re.compile(r" 20\s*$"))
    at_rest(page)
    expect(page.locator(".human .words")).to_have_text(["Count to 20"])
    expect(answers(page)).to_have_count(1)


def test_reasoning_and_tools(chat: Chat) -> None:
    """Reasoning folds; tools say what they do while they work, and open to their arguments and their result."""
    page = chat.page()
    send(page, "Think about eleven birds")
    at_rest(page)
    reasoning = page.locator(".reasoning")
    expect(reasoning.locator(".text")).to_be_hidden()
    reasoning.get_by_text("Reasoning").click()
    expect(reasoning).to_contain_text("So I subtract one")
    send(page, "Weather in Rome, Nowhere")
    tools = page.locator(".tool")
    expect(tools.nth(0)).to_have_attribute("data-status", "done")
    expect(tools.nth(1)).to_have_attribute("data-status", "running")
    expect(page.locator(".thinking")).to_contain_text("Asking the weather station of Nowhere")
    page.reload()
    expect(tools.nth(0)).to_have_attribute("data-status", "done")
    expect(tools.nth(1)).to_have_attribute("data-status", "running")
    expect(answers(page)).to_have_text([re.compile("Eleven birds"), "Looking."])
    page.keyboard.press("Escape")
    expect(tools.nth(1)).to_have_attribute("data-status", "interrupted")
    at_rest(page)
    tools.nth(0).locator("summary").click()
    expect(tools.nth(0).locator("pre").nth(0)).to_have_text('{\n  "city": "Rome"\n}')
    expect(tools.nth(0).locator("pre").nth(1)).to_have_text("snow in Rome")


@pytest.mark.parametrize(
    ("answer", "said"),
    [("Approve", "was sent"), ("Reject", "was not sent."), ("ask me tomorrow", "was not sent, because: ask me tomorrow")],
)
def test_a_question(chat: Chat, answer: str, said: str) -> None:
    """A run that waits for a human asks, also after a reload and in another tab; the answer resumes it everywhere."""
    page, other = chat.page("#t"), chat.page("#t")
    send(page, "Send a mail to Ada")
    for one in (page, other):
        expect(one.locator(".question")).to_contain_text("Shall I send this mail to ada@example.org?")
    page.reload()
    question = page.locator(".question")
    expect(question.locator("dd")).to_contain_text("the journal kept every word")
    expect(page.locator(".tool")).to_have_attribute("data-status", "waiting")
    if answer in ("Approve", "Reject"):
        question.get_by_role("button", name=answer).click()
    else:
        question.get_by_label("Answer in words").fill(answer)
        question.get_by_role("button", name="Answer", exact=True).click()
    for one in (page, other):
        expect(answers(one).last).to_contain_text(said)
        expect(one.locator(".question")).to_have_count(0)
        expect(one.locator(".tool")).to_have_attribute("data-status", "done")


APPROVALS = """
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.tools import tool
from langchain_runjournal.testing import Call, ScriptedChatModel

@tool
def pay(amount: int) -> str:
    "Pay."
    return f"{amount} paid"

def say(messages):
    if messages[-1].type == "human":
        return ["Two payments. ", Call("pay", {"amount": 1}), Call("pay", {"amount": 2})]
    return "; ".join(message.text for message in messages if message.type == "tool")

middleware = HumanInTheLoopMiddleware(interrupt_on={"pay": True})
graph = create_agent(ScriptedChatModel(say), [pay], middleware=[middleware], name="payer")
"""


def test_decisions_about_several_tools(browser: Browser, tmp_path: Path) -> None:
    """LangChain's HumanInTheLoopMiddleware gets a decision for each tool, in their order, with the reason of a rejection."""
    (tmp_path / "payer.py").write_text(APPROVALS)
    server = ServeProcess(tmp_path, "payer:graph")
    try:
        page = browser.new_context().new_page()
        page.goto(server.url)
        send(page, "Pay both")
        questions = page.locator(".question")
        expect(questions).to_have_count(2)
        questions.nth(1).get_by_role("textbox").fill("too much")
        questions.nth(1).get_by_role("button", name="Reject").click()
        questions.nth(0).get_by_role("button", name="Approve").click()
        expect(answers(page).last).to_contain_text("1 paid")
        expect(answers(page).last).to_contain_text("too much")
        page.context.close()
    finally:
        server.end()


def test_a_long_conversation(chat: Chat) -> None:
    """A hundred answers are drawn once: the elements of those that do not change stay when something is said."""
    page = chat.page("#t")
    start = "text => fetch('threads/t/runs', {method: 'POST', headers: {'content-type': 'application/json'}, body: text})"
    for number in range(50):
        body = {"if_busy": "wait", "input": {"messages": [{"role": "user", "content": f"Count to {number + 1}"}]}}
        page.evaluate(start, json.dumps(body))
    expect(answers(page)).to_have_count(50)
    at_rest(page)
    expect(answers(page).last).to_have_text(re.compile(r" 50\s*$"))
    expect(answers(page).last).to_be_in_viewport()
    page.evaluate("for (const one of document.querySelectorAll('.text > p')) one.dataset.old = 1")
    send(page, "Count to 60")
    expect(answers(page).last).to_have_text(re.compile(r" 60\s*$"))
    at_rest(page)
    expect(page.locator(".text > p[data-old]")).to_have_count(50)
    page.locator("#scroll").evaluate("one => one.scrollTo(0, 0)")
    page.get_by_role("button", name="To the newest message").click()
    expect(answers(page).last).to_be_in_viewport()


def test_edit_and_regenerate(chat: Chat) -> None:
    """An edited message is said instead of the old one, with everything behind it; so is a new answer. Elsewhere, too."""
    page, other = chat.page("#t"), chat.page("#t")
    send(page, "Count to 20")
    expect(answers(page)).to_have_text(re.compile(r" 20\s*$"))
    at_rest(page)
    send(page, "hello")
    expect(answers(page)).to_have_count(2)
    at_rest(page)
    first = page.locator(".human").first
    first.hover()
    first.get_by_role("button", name="Edit the message").click()
    expect(first.get_by_role("textbox")).to_have_value("Count to 20")
    page.keyboard.press("Escape")
    expect(first.locator(".words")).to_have_text("Count to 20")
    first.get_by_role("button", name="Edit the message").click()
    first.get_by_role("textbox").fill("Count to 30")
    page.keyboard.press("Enter")
    for one in (page, other):
        expect(answers(one)).to_have_text([re.compile(r" 30\s*$")])
        at_rest(one)
        expect(one.locator(".human .words")).to_have_text(["Count to 30"])
    page.get_by_role("button", name="Regenerate the answer").click()
    at_rest(page)
    for one in (page, other):
        expect(answers(one)).to_have_text([re.compile(r" 30\s*$")])
        expect(one.locator(".human .words")).to_have_text(["Count to 30"])
    page.reload()
    expect(answers(page)).to_have_text([re.compile(r" 30\s*$")])


def test_an_answer_that_fails(chat: Chat) -> None:
    """The words stay, and the page says that it failed and why."""
    page = chat.page()
    send(page, "Fail after some words")
    expect(page.locator(".failed")).to_contain_text("the provider dropped the stream")
    at_rest(page)
    expect(answers(page)).to_have_text("These words are shown, and kept, although")
    expect(page.locator(".cut")).to_have_text("Cut off by an error")


def test_a_message_while_an_answer_is_written(chat: Chat) -> None:
    """The user decides: not sent, stop the answer and send, or send when it is done."""
    page = chat.page()
    send(page, "Count to 100000")
    streams(page)
    send(page, "hello")
    page.get_by_role("button", name="Do not send").click()
    expect(box(page)).to_have_value("hello")
    box(page).press("Enter")
    page.get_by_role("button", name="Stop it and send").click()
    expect(page.locator(".ai .cut")).to_have_text("Cut off by the next message")
    expect(answers(page).last).to_contain_text("human, ai (cut off), human.")
    at_rest(page)
    send(page, "Weather in Nowhere")
    expect(page.locator(".tool")).to_have_attribute("data-status", "running")
    send(page, "Count to 20")
    page.get_by_role("button", name="Send when it is done").click()
    expect(page.get_by_role("status").filter(has_text="Answering")).to_be_visible()
    stop_button(page).click()
    expect(answers(page).last).to_have_text(re.compile(r" 20\s*$"))
    at_rest(page)


# --- many conversations -----------------------------------------------------------------------------------------------


def test_the_list_of_conversations(chat: Chat) -> None:
    """A title from the first words; a search; a deletion that asks first, and that the other tab shows."""
    page = chat.page()
    for text in ("Count to 5", "Think about eleven birds", "hello there"):
        send(page, text)
        at_rest(page)
        expect(page.locator("#threads a").filter(has_text=text)).to_have_count(1)
        page.get_by_role("button", name="New chat").click()
        expect(page.locator("#empty")).to_be_visible()
    listed = page.locator("#threads a")
    expect(listed).to_have_text(["hello there", "Think about eleven birds", "Count to 5"])
    page.get_by_label("Search conversations").fill("eleven")
    expect(listed).to_have_text(["Think about eleven birds"])
    page.get_by_label("Search conversations").fill("xyz")
    expect(page.get_by_text("Nothing found.")).to_be_visible()
    page.get_by_label("Search conversations").fill("")
    listed.filter(has_text="birds").click()
    expect(answers(page)).to_contain_text("ten are left")
    other = chat.page(page.url.removeprefix(chat.url))
    expect(answers(other)).to_contain_text("ten are left")
    page.locator("#threads li").filter(has_text="birds").get_by_role("button").click()
    page.get_by_role("button", name="Cancel").click()
    expect(listed).to_have_count(3)
    page.locator("#threads li").filter(has_text="birds").get_by_role("button").click()
    expect(page.get_by_role("dialog")).to_contain_text("Think about eleven birds")
    page.get_by_role("button", name="Delete", exact=True).click()
    for one in (page, other):
        expect(one.locator("#threads a")).to_have_text(["hello there", "Count to 5"])
        expect(one.locator("#empty")).to_be_visible()


def test_a_switch_in_mid_answer(chat: Chat) -> None:
    """Another conversation is undisturbed by an answer; back in the first one, nothing is missing."""
    page = chat.page()
    send(page, "Count to 100000")
    seen = streams(page)
    page.get_by_role("button", name="New chat").click()
    send(page, "Think about eleven birds")
    at_rest(page)
    expect(answers(page)).to_have_count(1)
    page.locator("#threads a").filter(has_text="Count").click()
    expect(page.locator(".ai.live .body > .text")).to_contain_text(seen.strip())
    page.keyboard.press("Escape")
    expect(page.locator(".ai .cut")).to_have_text("Stopped")
    at_rest(page)
    counts_up(answers(page).inner_text())


# --- how it looks, and who can use it ---------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("colours", ["light", "dark"])
def test_phone_and_desktop(chat: Chat, width: int, colours: Any) -> None:
    """Nothing is wider than the screen; the colours are those of the system, and then those that the user chooses."""
    page = chat.page("#t", chat.new_context(viewport={"width": width, "height": 740}, color_scheme=colours))
    send(page, "Show me a table and some code")
    at_rest(page)
    send(page, "echo " + "w" * 500)
    at_rest(page)
    for place in ("html", "#scroll", "#said"):
        assert page.locator(place).evaluate("one => one.scrollWidth") <= width, place
    expect(page.locator("#send")).to_be_in_viewport(ratio=1)
    back = "getComputedStyle(document.body).backgroundColor"
    first = page.evaluate(back)
    assert (first == "rgb(255, 255, 255)") == (colours == "light")
    opposite = "light" if colours == "dark" else "dark"
    while page.evaluate("document.documentElement.dataset.theme") != opposite:
        page.get_by_role("button", name="Colours").click()
    assert page.evaluate(back) != first
    page.reload()
    assert page.evaluate(back) != first
    if width < 800:
        page.get_by_role("button", name="Conversations", exact=True).click()
        expect(page.get_by_role("button", name="New chat")).to_be_focused()
        page.keyboard.press("Escape")
        expect(page.get_by_role("button", name="Conversations", exact=True)).to_be_focused()


def test_right_to_left(chat: Chat) -> None:
    """Text takes the direction of its first letter, in messages, lists and tables; code and tools keep theirs."""
    page = chat.page()
    send(page, "مرحبا")
    at_rest(page)
    direction = "one => getComputedStyle(one).direction"
    for place in (".human .words", ".ai p", ".ai ul", ".ai table", "h1"):
        assert page.locator(place).first.evaluate(direction) == "rtl", place
    send(page, "Show me some code")
    at_rest(page)
    assert page.locator(".ai pre").evaluate(direction) == "ltr"
    assert page.locator(".ai p").last.evaluate(direction) == "ltr"


def test_keyboard_and_screen_reader(chat: Chat) -> None:
    """Everything can be reached and has a name; a finished answer is announced once; Shift+Enter begins a new line."""
    page = chat.page()
    expect(box(page)).to_be_focused()
    box(page).press_sequentially("echo one")
    page.keyboard.press("Shift+Enter")
    box(page).press_sequentially("two")
    page.keyboard.press("Enter")
    at_rest(page)
    expect(page.locator(".human .words")).to_have_text("echo one\ntwo", use_inner_text=True)
    expect(page.locator("#spoken")).to_have_text(re.compile(r"one\s+two"))
    expect(page.locator("#spoken")).to_have_attribute("aria-live", "polite")
    nameless = """() => [...document.querySelectorAll("button, a, input, textarea")].filter((one) =>
        one.checkVisibility() && !(one.ariaLabel || one.textContent.trim() || one.title)).map((one) => one.outerHTML)"""
    assert page.evaluate(nameless) == []
    page.locator("body").evaluate("document.activeElement.blur()")
    reached = []
    for _ in range(30):
        page.keyboard.press("Tab")
        label = "document.activeElement.ariaLabel || document.activeElement.textContent.trim()"
        reached.append(page.evaluate(label))
    order = ["Skip to the message box", "New chat", "Search conversations", "Edit the message", "Copy the answer", "Message"]
    places = [reached.index(name) for name in order]
    assert places == sorted(places)


# --- hostile words ----------------------------------------------------------------------------------------------------


def test_what_is_shown_is_text(chat: Chat) -> None:
    """Markup is shown as it was written: in messages, answers, tools, titles, questions and languages of code."""
    page = chat.page("#t")
    send(page, f"echo {EVIL}")
    expect(answers(page)).to_have_text(EVIL)
    at_rest(page)
    send(page, f"Weather in {EVIL}")
    expect(answers(page).last).to_contain_text(f"in {EVIL}.")
    at_rest(page)
    send(
        page,
        f"echo [a](javascript:alert(3)) [b](data:text/html,x) <b>c</b> ![d](https://example.org/x.png)\n```{EVIL}\nx\n```",
    )
    at_rest(page)
    page.reload()
    expect(page.locator("#title")).to_contain_text("<script>")
    expect(page.locator(".tool .brief")).to_have_text(EVIL)
    expect(answers(page).last).to_contain_text("[a](javascript:alert(3)) [b](data:text/html,x) <b>c</b>")
    expect(page.locator("#said img, #said script, #said b:not(.tool b), #threads script, #threads img")).to_have_count(0)
    addresses = page.locator("#said .text a").evaluate_all("all => all.map((one) => one.href)")
    assert addresses == ["https://example.org/x.png"]


MARKDOWN = """import(new URL("page/markdown_blocks.js", location)).then((found) => {
    const types = (blocks) => blocks.map((one) => one.type), whole = types(found.blocksOf(%(text)s, false));
    const wrong = [];
    for (let end = 1; end <= %(text)s.length; end += 1) {
        const shown = types(found.blocksOf(%(text)s.slice(0, end), true));
        if (shown.some((type, at) => type !== whole[at])) wrong.push([%(text)s.slice(0, end).slice(-30), shown]);
    }
    return wrong;
})"""


def test_markdown_does_not_flicker(chat: Chat) -> None:
    """However much of a text has arrived, each block that is shown has the kind that it keeps."""
    from langchain_runjournal.demo.chat_texts import ARABIC, FORMATTED, STORY

    page = chat.page()
    for text in (FORMATTED, ARABIC, STORY, "- one\n- two\n\n***\n\n~~~\nx\n~~~\n\n|a|b|\n|:-|-:|\n|1|\n\nend **bold** `x"):
        assert page.evaluate(MARKDOWN % {"text": json.dumps(text)}) == []


INLINE = """import(new URL("page/markdown.js", location)).then((found) => {
    const place = document.createElement("div");
    found.renderMarkdown(place, %s, %s);
    return place.innerHTML;
})"""


@pytest.mark.parametrize(
    ("text", "is_open", "shown"),
    [
        ("a **b *c* d** _e_ ~~f~~", False, "a <strong>b <em>c</em> d</strong> <em>e</em> <del>f</del>"),
        ("***a***", False, "<strong><em>a</em></strong>"),
        ("snake_case_name 2*3*4 a * b", False, "snake_case_name 2<em>3</em>4 a * b"),
        ("`a*b*` ``x`y``", False, '<code dir="auto">a*b*</code> <code dir="auto">x`y</code>'),
        (r"\*a\* \<b>", False, "*a* &lt;b&gt;"),
        ("**bo", True, "<strong>bo</strong>"),
        ("**bo", False, "**bo"),
        ("a [li", True, "a li"),
        ("a [li](https://x", True, "a li"),
        ("a *", True, "a "),
        ("5 * 3", True, "5 * 3"),
        (
            "(https://a.b/c_(d)).",
            False,
            '(<a href="https://a.b/c_(d)" target="_blank" rel="noopener noreferrer">https://a.b/c_(d)</a>).',
        ),
        ("[x](vbscript:a)", False, "[x](vbscript:a)"),
        ("[x](//evil.example)", False, "[x](//evil.example)"),
        ("<i>&amp;</i>", False, "&lt;i&gt;&amp;amp;&lt;/i&gt;"),
    ],
)
def test_inline_marks(markdown_page: Page, text: str, is_open: bool, shown: str) -> None:
    """Marks become elements, and nothing else does; a mark whose end has not arrived is shown as if it had."""
    html = markdown_page.evaluate(INLINE % (json.dumps(text), json.dumps(is_open)))
    assert html == f'<p dir="auto">{shown}</p>'


@pytest.mark.parametrize("mark", ["[", "*a ", "`", "> ", "**", "[a](", "|", "![", "<http://", "~~", "- "])
def test_hostile_markdown_is_drawn(markdown_page: Page, mark: str) -> None:
    """Thousands of marks are drawn, without an error and before the test gives up; what they mark is not lost."""
    html = markdown_page.evaluate(INLINE % (json.dumps(f"{mark * 10_000}\n\nthe end"), "true"))
    assert "the end" in html


@pytest.fixture(scope="module")
def markdown_page(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    chat = Chat(tmp_path_factory.mktemp("markdown"), browser)
    yield chat.page()
    chat.close()


# --- the token --------------------------------------------------------------------------------------------------------


def test_the_login_link(browser: Browser, tmp_path: Path) -> None:
    """The link opens the page, and the token is neither in the address afterwards nor to be read by a script."""
    server = ServeProcess(tmp_path, "--demo", "--host", "0.0.0.0", "--token", "open sesame".replace(" ", "-"))
    try:
        context = browser.new_context()
        context.set_default_timeout(PATIENCE * 1000)
        page = context.new_page()
        here = f"http://127.0.0.1:{server.port}/"
        page.goto(here)
        expect(page.locator("body")).to_contain_text("needs a token")
        page.goto(f"{here}?token=open-sesame")
        send(page, "Count to 5")
        expect(answers(page)).to_have_text(re.compile(r"5\s*$"))
        assert page.url.startswith(f"{here}#")
        assert page.evaluate("document.cookie") == ""
        context.close()
    finally:
        server.end()
