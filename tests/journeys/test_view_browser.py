"""The page in a real Chromium: widths, schemes, keyboard, and that nothing runs and nothing is fetched."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from langchain_runjournal import Run
from langchain_runjournal.view import fragment, page
from tests.timeline.test_timeline import DAY, Story, message, settled, stopped
from tests.view.test_view import evil

pytestmark = [pytest.mark.look, pytest.mark.slow]

SIZES = [pytest.param((1280, scheme), id=f"1280-{scheme}") for scheme in ("light", "dark")]
SIZES += [pytest.param((390, scheme), id=f"390-{scheme}") for scheme in ("light", "dark")]

CONTRASTS = """() => {
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const parse = (color) => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const over = (top, under) => {
    const a = top[3] / 255;
    return [0, 1, 2].map((at) => top[at] * a + under[at] * (1 - a)).concat(255);
  };
  const light = (color) => {
    const [r, g, b] = color.slice(0, 3).map((v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (element) => {
    const layers = [];
    for (let one = element; one; one = one.parentElement) layers.push(parse(getComputedStyle(one).backgroundColor));
    return layers.reverse().reduce((under, top) => over(top, under), [255, 255, 255, 255]);
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || element.closest('style, script')) continue;
    // The words of a box lie over it, and not in it.
    const around = element.classList.contains('rj-label') ? element.parentElement : document.createElement('i');
    const boxes = [element, ...around.querySelectorAll('.rj-bar, .rj-flow')];
    for (const box of boxes) {
      const under = ground(box), top = over(parse(getComputedStyle(element).color), under);
      const [a, b] = [light(top), light(under)];
      const words = element.className + ': ' + walker.currentNode.data.slice(0, 40);
      found.push([(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), words]);
    }
  }
  return found;
}"""

WIDER = """() => [...document.querySelectorAll('body *')].filter((one) => {
  const box = one.getBoundingClientRect();
  return box.width && (box.right > innerWidth + 0.5 || box.left < -0.5) && !one.closest('.rj-plot, .rj-skip');
}).map((one) => one.outerHTML.slice(0, 120))"""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """The browser of the machine: none is fetched."""
    path = os.environ.get("CHROMIUM") or next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        path = None
    if path is None:
        if os.environ.get("CI") == "true":
            pytest.fail("CI has to look at the page, and finds no Chromium or no playwright", pytrace=False)
        pytest.skip("no Chromium, or no playwright, to look at the page with")
    options = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
    options += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=options)
        yield browser
        browser.close()


class Looked:
    """A page that is open, and what it has done besides."""

    def __init__(self, browser: Any, file: Path, html: str, width: int = 1280, scheme: str = "light") -> None:
        file.write_text(html, encoding="utf-8")
        self.address = file.as_uri()
        self.requests: list[str] = []
        self.said: list[str] = []
        context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
        self.page = context.new_page()
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.fetched: list[str] = []
        self.page.on("requestfinished", lambda request: self.fetched.append(request.url))
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.said.append(dialog.message), dialog.dismiss()))
        self.page.goto(self.address)

    def evaluate(self, code: str) -> Any:
        return self.page.evaluate(code)

    def close(self) -> None:
        self.page.context.close()


@pytest.fixture
def look(chromium: Any, tmp_path: Path) -> Iterator[Any]:
    opened: list[Looked] = []

    def open_page(html: str, width: int = 1280, scheme: str = "light") -> Looked:
        opened.append(Looked(chromium, tmp_path / f"{len(opened)}.html", html, width, scheme))
        return opened[-1]

    yield open_page
    for one in opened:
        one.close()


def everything() -> Story:
    """A run with all that a picture can show."""
    story = Story().begin("Find a train, " + "and a very long word: " + "x" * 400)
    story.says("m1", "bad try").add("llm.error", {"error": "RateLimitError: 429"}, "m1")
    story.answers("h", "a plan", role="helper")
    content = [{"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "Looking."}]
    calls = [
        {"id": f"c{number}", "name": "a_tool_with_a_long_name", "args": {"q": "y" * 300}, "type": "tool_call"}
        for number in range(5)
    ]
    story.says("m2", "Look", "ing.", replaces=["m1"]).add(
        "llm.ai.response", message("ai", content, id="a", tool_calls=calls), "m2"
    )
    story.starts("c0", "c1", "c2", "c3", wait=0.05).gives("c0").says("s", "sub", role="subagent", inside="c1")
    story.add("tool.error", {"tool_call_id": "c2", "error": "ValueError: " + "z" * 300}, "run-c2", wait=0.1)
    story.add("tool.error", {"tool_call_id": "c3", "interrupted": True}, "run-c3").add(
        "run.pause", {"interrupts": [{"value": "ok?"}]}
    )
    story.at += DAY
    story.says("m3", *["It will ", "rain "] * 20).add("run.stop", {"cause": "stop"}, wait=0.1)
    story.add("llm.ai.partial", {"cause": "stop"}, "m3").add("run.lost", {"events": 3})
    story.add("run.settled", settled(("lc_run--m3", "ai", "partial"), ("a", "ai", "recovered")))
    usage = {"gpt": {"calls": 4, "incomplete": 1, "input_tokens": 10, "output_tokens": 20}}
    return story.ends("interrupted", "stop", usage=usage, settled=False, problem="disk").gives("c1", wait=0.4, late=True)


def html_of(*stories: Story) -> str:
    return page([(story.run, story.events) for story in stories])


def many() -> Story:
    """500 tools beside each other."""
    ids = [f"c{number}" for number in range(500)]
    return Story().begin().starts(*ids).gives(*ids, wait=0.01).ends()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("what", [everything, stopped, many, evil], ids=lambda one: one.__name__)
def test_the_page_fits_says_nothing_and_fetches_nothing(look: Any, what: Any, size: tuple[int, str]) -> None:
    """At the width of a desk and of a phone, in light and in dark."""
    story = what()
    for html in (html_of(story), html_of(story, stopped())):
        seen = look(html, *size)
        seen.evaluate("() => document.querySelectorAll('details').forEach((one) => one.open = true)")
        assert seen.evaluate("document.documentElement.scrollWidth") == size[0]
        assert seen.evaluate(WIDER) == []
        assert seen.said == []
        assert seen.requests == [seen.address]


def test_the_check_of_widths_can_fail(look: Any) -> None:
    """A box that is wider than the page is found."""
    seen = look('<body><p style="width:500px">x</p></body>', 390)
    assert seen.evaluate("document.documentElement.scrollWidth") > 390
    assert len(seen.evaluate(WIDER)) == 1


@pytest.mark.parametrize("size", SIZES)
def test_all_text_can_be_read(look: Any, size: tuple[int, str]) -> None:
    """A contrast of 4.5 to 1 at least, of every word, also over the boxes of the time line."""
    seen = look(html_of(everything(), stopped()), *size)
    seen.evaluate("() => document.querySelectorAll('details').forEach((one) => one.open = true)")
    found = seen.evaluate(CONTRASTS)
    assert len(found) > 100
    assert [one for one in found if one[0] < 4.5] == []


def test_the_check_of_contrast_can_fail(look: Any) -> None:
    """Grey on grey is found."""
    found = look('<body style="background:#fff"><p style="color:#999">x</p><p style="color:#000">y</p></body>').evaluate(
        CONTRASTS
    )
    assert [round(one[0], 1) for one in found] == [2.8, 21.0]


def test_light_and_dark_are_not_the_same(look: Any) -> None:
    """Ground and words follow what the system prefers."""
    colors = "() => ['backgroundColor', 'color'].map((name) => getComputedStyle(document.querySelector('.rj'))[name])"
    light, dark = (look(html_of(stopped()), 1280, scheme).evaluate(colors) for scheme in ("light", "dark"))
    assert light[0] != dark[0]
    assert light[1] != dark[1]


def test_what_a_user_wrote_is_shown_and_not_run(look: Any) -> None:
    """A script stands there as text, and even one that would get in by mistake could not run."""
    story = Story().begin("<script>document.title = 'run'</script>").answers("m", "<img src=x onerror=alert(1)>").ends()
    seen = look(html_of(story))
    assert "<script>document.title = 'run'</script>" in seen.page.inner_text(".rj-is-human")
    assert "<img src=x onerror=alert(1)>" in seen.page.inner_text(".rj-is-ai")
    assert seen.evaluate("document.querySelectorAll('script, img').length") == 0
    assert "run" not in seen.page.title()
    by_mistake = html_of(story).replace("</body>", "<script>document.title = 'run'</script><img src='x.png'></body>")
    seen = look(by_mistake)
    assert seen.page.title() != "run"
    assert seen.fetched == [seen.address]
    assert all("Content Security Policy" in said for said in seen.said)
    assert len(seen.said) == 2


def test_each_detail_opens_with_the_keyboard(look: Any) -> None:
    """Tab comes to each of them in their order, one sees where it is, and Enter opens it. The first one can skip them."""
    seen = look(html_of(everything()))
    keys, active = seen.page.keyboard, "document.activeElement"
    keys.press("Tab")
    assert seen.evaluate(f"{active}.textContent") == "Skip to the conversation"
    assert seen.evaluate(f"{active}.getBoundingClientRect().left") >= 0
    total = seen.evaluate("document.querySelectorAll('summary').length")
    opened: list[int] = []
    while len(opened) < total:
        keys.press("Tab")
        tag = seen.evaluate(f"{active}.tagName")
        assert tag in ("SUMMARY", "A")
        assert seen.evaluate(f"getComputedStyle({active}).outlineStyle") == "solid"
        assert seen.evaluate(f"getComputedStyle({active}).outlineWidth") == "2px"
        if tag == "SUMMARY":
            place = seen.evaluate(f"[...document.querySelectorAll('summary')].indexOf({active})")
            keys.press("Enter")
            assert seen.evaluate(f"{active}.parentElement.open")
            opened.append(place)
    assert opened == list(range(total))


def test_the_link_at_the_top_leads_to_the_conversation(look: Any) -> None:
    """Enter on it, and the next Tab goes on from there."""
    seen = look(html_of(everything()))
    seen.page.keyboard.press("Tab")
    seen.page.keyboard.press("Enter")
    assert seen.evaluate("document.activeElement.textContent") == "Conversation"


def test_the_time_line_has_a_name(look: Any) -> None:
    """As those who do not see it hear it."""
    snapshot = look(html_of(stopped())).page.locator("main").aria_snapshot()
    assert re.search(r"img \"Timeline of .* cut off after", snapshot)
    assert 'heading "Conversation" [level=2]' in snapshot


THEMES = [
    ('data-jp-theme-light="true"', "dark", "light"),
    ('data-jp-theme-light="false"', "light", "dark"),
    ('class="vscode-dark"', "light", "dark"),
    ('class="vscode-light"', "dark", "light"),
    ("", "dark", "dark"),
    ("", "light", "light"),
]


@pytest.mark.parametrize(("theme", "system", "expected"), THEMES)
def test_a_fragment_follows_its_notebook(look: Any, theme: str, system: str, expected: str) -> None:
    """And leaves everything else there as it is."""
    story = everything()
    around = '<h3 id="other">x</h3><p>y</p><ul><li><code>z</code></li></ul><a href="#other">l</a>'
    around += "<details><summary>s</summary></details>"
    look_of = """() => JSON.stringify([...document.querySelectorAll('#around, #around *, body, html')].map(
      (one) => [...getComputedStyle(one)].filter((name) => !/size|origin|height|width/.test(name)).map(
        (name) => getComputedStyle(one).getPropertyValue(name))))"""
    frame = f'<!DOCTYPE html><html><body {theme}><div id="around">{around}</div>%s</body></html>'
    before = look(frame.replace("%s", ""), 1000, system).evaluate(look_of)
    seen = look(frame.replace("%s", fragment(story.run, story.events)), 1000, system)
    assert seen.evaluate(look_of) == before
    ground = seen.evaluate("getComputedStyle(document.querySelector('.rj')).backgroundColor")
    assert ground == {"light": "rgb(255, 255, 255)", "dark": "rgb(16, 18, 22)"}[expected]
    assert [one for one in seen.evaluate(CONTRASTS) if one[0] < 4.5 and "rj" in one[1]] == []
    assert seen.evaluate("document.documentElement.scrollWidth") == 1000


def test_a_printed_page_is_light_and_open(look: Any) -> None:
    """On paper nothing can be unfolded."""
    seen = look(html_of(everything()), 1280, "dark")
    seen.page.emulate_media(media="print", color_scheme="dark")
    assert seen.evaluate("getComputedStyle(document.querySelector('.rj')).backgroundColor") == "rgb(255, 255, 255)"
    assert seen.evaluate(
        "[...document.querySelectorAll('.rj-inner')].every((one) => one.checkVisibility() && one.offsetHeight > 20)"
    )


def test_a_run_of_which_nothing_is_known(look: Any) -> None:
    """A run without an event is a page as well."""
    seen = look(page([(Run(run_id="r"), ())]), 390)
    assert seen.evaluate("document.documentElement.scrollWidth") == 390
    assert "Running" in seen.page.inner_text("h1")
