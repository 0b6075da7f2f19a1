"""The page in a real Chromium: widths, schemes, keyboard, and that nothing runs and nothing is fetched."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from langchain_runjournal import Event, Run
from langchain_runjournal.view import fragment, page, svg
from tests.support.large_runs import large_run
from tests.support.random_runs import runs
from tests.timeline.test_timeline import DAY, Story, message, result, settled, stopped
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
    const under = ground(element), top = over(parse(getComputedStyle(element).color), under);
    const [a, b] = [light(top), light(under)];
    const words = element.className + ': ' + walker.currentNode.data.slice(0, 40);
    found.push([(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), words]);
  }
  return found;
}"""

OVERLAPS = """() => {
  // The part of each text that one sees, without what its ancestors cut off.
  const clips = new Map();
  const clip = (element) => {
    if (!element) return [-1e9, -1e9, 1e9, 1e9];
    if (!clips.has(element)) {
      let [left, top, right, bottom] = clip(element.parentElement);
      if (getComputedStyle(element).overflowX !== 'visible') {
        const box = element.getBoundingClientRect();
        [left, top] = [Math.max(left, box.left), Math.max(top, box.top)];
        [right, bottom] = [Math.min(right, box.right), Math.min(bottom, box.bottom)];
      }
      clips.set(element, [left, top, right, bottom]);
    }
    return clips.get(element);
  };
  const texts = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode, element = node.parentElement;
    if (!node.data.trim() || element.closest('style, title, .rj-skip') || !element.checkVisibility()) continue;
    const around = clip(element), range = document.createRange();
    range.selectNodeContents(node);
    for (const box of range.getClientRects()) {
      const [left, top] = [Math.max(box.left, around[0]), Math.max(box.top, around[1])];
      const [right, bottom] = [Math.min(box.right, around[2]), Math.min(box.bottom, around[3])];
      if (right - left > 2 && bottom - top > 2) texts.push({left, top, right, bottom, node});
    }
  }
  texts.sort((one, other) => one.top - other.top);
  const found = [];
  texts.forEach((one, at) => {
    for (let next = at + 1; next < texts.length && texts[next].top < one.bottom - 2; next++) {
      const other = texts[next];
      if (one.node === other.node) continue;  // its ellipsis is a box of its own
      const [wide, high] = [Math.min(one.right, other.right) - Math.max(one.left, other.left),
                            Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top)];
      if (wide > 1 && high > 2) found.push([one.node.data.slice(0, 40), other.node.data.slice(0, 40), wide, high]);
    }
  });
  return {count: texts.length, found};
}"""

OPEN = "() => document.querySelectorAll('details').forEach((one) => one.open = true)"

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

    def show(self, html: str) -> None:
        self.page.set_content(html)

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
    """Tab comes to each of them in their order, one sees where it is, and Enter turns it. The first one can skip them."""
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
        assert tag in ("SUMMARY", "A", "INPUT")
        assert seen.evaluate(f"getComputedStyle({active}).outlineStyle") == "solid"
        assert seen.evaluate(f"getComputedStyle({active}).outlineWidth") == "2px"
        if tag == "SUMMARY":
            place = seen.evaluate(f"[...document.querySelectorAll('summary')].indexOf({active})")
            was = seen.evaluate(f"{active}.parentElement.open")
            keys.press("Enter")
            assert seen.evaluate(f"{active}.parentElement.open") != was
            if was:  # its rows are open to begin with, and stay in the order of the keyboard
                keys.press("Enter")
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
    assert re.search(r"figure \"Timeline of .* cut off after", snapshot)
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


# --- texts and bars ---------------------------------------------------------------------------------------------------


def large() -> Story:
    return _story(*large_run(45, seed=2))


def huge() -> Story:
    return _story(*large_run(500, seed=4))


def _story(run: Run, events: list[Event]) -> Story:
    story = Story(run.run_id)
    story.events = events
    return story


def overlaps(seen: Looked, *, least: int = 5) -> list[Any]:
    """The texts that lie on one another, as the page opens and with everything unfolded."""
    # What is far below is not laid out before somebody scrolls there.
    seen.page.add_style_tag(content="* { content-visibility: visible !important }")
    first = seen.evaluate(OVERLAPS)
    seen.evaluate(OPEN)
    second = seen.evaluate(OVERLAPS)
    assert min(first["count"], second["count"]) >= least
    return [*first["found"], *second["found"]]


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("what", [everything, stopped, evil, large, huge], ids=lambda one: one.__name__)
def test_no_two_texts_overlap(look: Any, what: Any, width: int) -> None:
    """On a desk and on a phone, folded and unfolded; and in the image."""
    story = what()
    seen = look(html_of(story), width)
    assert overlaps(seen) == []
    seen.show(svg(story.run, story.events))
    assert overlaps(seen) == []


def test_the_check_of_overlaps_can_fail(look: Any) -> None:
    """Two labels at one place are found; what an ancestor cuts off is not seen."""
    place = "position:absolute;left:10px;top:10px;width:60px;white-space:nowrap"
    seen = look(f'<body><b style="{place}">one</b><b style="{place}">two</b>')
    assert len(seen.evaluate(OVERLAPS)["found"]) == 1
    beside = place.replace("left:10px", "left:80px")
    seen.show(f'<body><b style="{place};overflow:hidden">a long text that is cut</b><b style="{beside}">two</b>')
    assert seen.evaluate(OVERLAPS) == {"count": 2, "found": []}


NODES = st.sampled_from([None, "agent:1", "tools:1", "a_node_with_quite_a_long_name:1", "main:1|model:1", "main:1|tools:1"])
WAITS = st.one_of(st.floats(0, 0.01), st.floats(0, 3), st.sampled_from([60.0, 7_200.0, 3 * DAY]))


@st.composite
def placed_runs(draw: Any) -> Story:
    """Random runs, with a clock, nodes and names of their own."""
    if draw(st.booleans()):
        return _story(*large_run(draw(st.integers(1, 90)), draw(st.integers(0, 999))))
    story = Story()
    for kind, data, call in draw(runs(ended=draw(st.booleans()))):
        about = dict(data)
        if kind in ("llm.start", "tool.start") and (node := draw(NODES)):
            about |= {"node": node.split("|")[-1].partition(":")[0], "checkpoint_ns": node, "step": draw(st.integers(1, 3))}
        if kind == "llm.start":
            about["model"] = draw(st.sampled_from(["gpt", "a-model-with-a-long-name-2026-11-20", "\u6771\u4eac" * 9]))
            about["role"] = draw(st.sampled_from(["answer", "helper"]))
        story.add(kind, about, call, wait=draw(WAITS))
    return story


@settings(max_examples=40, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(story=placed_runs())
def test_no_two_texts_of_any_run_overlap(phone_and_desk: list[Looked], story: Story) -> None:
    """Random runs, at 1,280 and at 390 pixels; and no bar leaves the track."""
    html = html_of(story)
    for seen in phone_and_desk:
        seen.show(html)
        assert overlaps(seen) == []
        assert seen.evaluate(OUTSIDE) == []


OUTSIDE = """() => [...document.querySelectorAll('.rj-bar, .rj-span')].filter((bar) => {
  const [one, track] = [bar, bar.closest('.rj-track')].map((each) => each.getBoundingClientRect());
  return bar.checkVisibility() && (one.left < track.left - 1 || one.right > track.right + 4);
}).map((one) => one.outerHTML.slice(0, 160))"""


@pytest.fixture(scope="module")
def phone_and_desk(chromium: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Looked]]:
    into = tmp_path_factory.mktemp("pages")
    opened = [Looked(chromium, into / f"{width}.html", "<!DOCTYPE html>", width) for width in (1280, 390)]
    yield opened
    for one in opened:
        one.close()


def test_bars_stand_where_their_calls_were(look: Any) -> None:
    """One axis for all rows: a call that began later has its bar further to the right, and the cut is behind all of them."""
    story = Story().begin().answers("m", "a", wait=1.0).starts("c", wait=1.0).says("n", "b", wait=1.0)
    story.add("llm.ai.partial", {"cause": "stop"}, "n", wait=1.0).ends("interrupted", "stop")
    seen = look(html_of(story))
    left = "(one) => one.getBoundingClientRect().left"
    bars = seen.evaluate(f"[...document.querySelectorAll('.rj-bar')].map({left})")
    cut = seen.evaluate(f"[...document.querySelectorAll('.rj-cut')].map({left})")
    assert bars == sorted(set(bars))
    assert [cut[0] > bar for bar in bars] == [True] * 3
    rows = seen.evaluate("document.querySelector('.rj-body').getBoundingClientRect().height")
    assert seen.evaluate("document.querySelector('.rj-cut').getBoundingClientRect().height") > rows


def test_a_link_opens_what_it_leads_to(look: Any) -> None:
    """From a row to the details of its call, from there to the message, from there back; a folded row unfolds."""
    seen = look(html_of(huge()))
    page = seen.page
    link = page.locator(".rj-message").last.get_by_text("in the timeline")
    row = page.locator(str(link.get_attribute("href")))
    assert not row.is_visible()
    link.click()
    assert row.is_visible()
    assert page.locator(".rj-call[open]").count() == 0
    row.locator("a.rj-called").click()
    opened = page.locator(".rj-call[open]")
    assert opened.count() == 1
    opened.get_by_text("the conversation above").click()
    assert page.locator(".rj-message:target").count() == 1


def test_a_switch_formats_markdown(look: Any) -> None:
    """Without a script: the signs are hidden, and the words stay."""
    seen = look(html_of(Story().begin().answers("m", "# Plan\n- **first** `x`").ends()))
    said = seen.page.locator(".rj-markdown .rj-text")
    assert said.inner_text() == "# Plan\n- **first** `x`"
    seen.page.get_by_label("formatted").check()
    assert "**" not in said.inner_text()
    assert "first x" in said.inner_text()
    assert seen.said == []


def test_a_long_result_unfolds(look: Any) -> None:
    """Ten lines are in sight, and the rest after a click."""
    story = Story().begin().answers("m", "Looking. ", tools=("c1",)).starts("c1")
    text = "\n".join(f"line {at}" for at in range(30))
    story.add("llm.tool.result", {"tool_call_id": "c1", **result("c1", text)}, "run-c1")
    seen = look(html_of(story.ends())).page.locator(".rj-is-tool")
    assert "line 9" in seen.inner_text()
    assert "line 10" not in seen.inner_text()
    seen.get_by_text("20 more lines").click()
    assert "line 29" in seen.inner_text()


def test_without_its_styles_a_notebook_shows_the_image(look: Any) -> None:
    """As repository pages do, which remove them; with them, the image is hidden."""
    story = stopped()
    html = fragment(story.run, story.events)
    seen = look(html)
    assert not seen.page.locator("img").is_visible()
    seen.show(re.sub("<style>.*?</style>", "", re.sub(r' (style|class)="[^"]*"', "", html), flags=re.S))
    assert seen.page.locator("img").evaluate("(one) => one.complete && one.naturalWidth") == 1000
