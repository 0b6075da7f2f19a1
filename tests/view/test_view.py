"""The page of a run: what it says, that nothing in it runs, that it can always be written."""

from __future__ import annotations

import base64
import itertools
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import langchain_runjournal
from langchain_runjournal import Event, Run, RunStatus
from langchain_runjournal.events import KINDS
from langchain_runjournal.events.run_state import advance, begin
from langchain_runjournal.view import fragment, page, summary
from langchain_runjournal.view.elements import duration, moment, safe
from tests.timeline.test_timeline import DAY, Story, made_up, message, result, settled, stopped

VOID = {"meta", "br", "img", "input"}
EVIL = "<script>alert(1)</script> ]]> --> \"x\" onload='y' </title></style><img src=x onerror=alert(2)> &lt; %s {0}"
LOADS = {"src", "srcset", "data", "poster", "background", "action", "formaction", "xlink:href", "ping", "manifest", "cite"}


class Reader(HTMLParser):
    """What a page is made of; complains of what is not closed."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attrs}) == len(attrs), attrs
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        elif tag == "br":
            self.texts.append("\n")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.texts.append(data)

    @property
    def text(self) -> str:
        return "".join(self.texts)


def check_whole(html: str, *, document: bool = True) -> Reader:
    """Each tag is closed in its turn, ids are there once, links lead somewhere, nothing can run, and it can be written."""
    assert html.encode().decode() == html
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", html)
    reader = Reader()
    reader.feed(html)
    reader.close()
    assert reader.open == []
    ids = [attrs["id"] for _, attrs in reader.tags if "id" in attrs]
    assert len(set(ids)) == len(ids)
    for tag, attrs in reader.tags:
        if tag == "img" and not document:
            source = attrs.pop("src") or ""
            assert source.startswith("data:image/svg+xml;base64,")
            check_image(base64.b64decode(source.partition(",")[2]).decode())
            continue
        assert tag not in ("script", "iframe", "object", "embed", "link", "img", "form", "base", "foreignobject", "use")
        assert not [name for name in attrs if name.startswith("on") or name in LOADS]
        href = attrs.get("href")
        if href is not None:
            assert tag == "a"
            assert href.removeprefix("#") in ids
    assert html.startswith("<!DOCTYPE html>") == document
    return reader


def check_image(text: str) -> list[str]:
    """An SVG document of shapes and texts, which no viewer has a reason to change. Return its texts."""
    root = ElementTree.fromstring(text)
    name = "{http://www.w3.org/2000/svg}"
    assert {one.tag.removeprefix(name) for one in root.iter()} <= {"svg", "title", "rect", "text", "path", "line"}
    assert not {
        key for one in root.iter() for key in one.attrib if key.startswith("on") or key in {"style", "class", *LOADS}
    }
    return [one.text or "" for one in root.iter(f"{name}text")]


def read(story: Story) -> Reader:
    return check_whole(page([(story.run, story.events)]))


# --- what it says -----------------------------------------------------------------------------------------------------


def test_the_first_sentence_says_what_happened() -> None:
    """Interrupted, by what, after how long, how many tools finished, and that the thread was settled."""
    text = read(stopped()).text.replace("\xa0", " ")
    assert "Interrupted: stop, after 1.6 s" in text
    assert "2 of 3 tools had finished. The thread was settled with 2 messages." in text
    assert "cut off: stop" in text


def test_what_the_program_reported_is_a_small_mark() -> None:
    """With its value, shortened, as its title and in words; marks that would hide each other are drawn once."""
    story = Story().begin().says("m", "a").add("run.custom", {"value": EVIL * 9, "name": "note"}, wait=0.5)
    for at in range(500):
        story.add("run.custom", {"value": at}, wait=0.1 if at == 0 else 0.0)
    reader = read(story.ends())
    marks = [attrs for _, attrs in reader.tags if attrs.get("class") == "rj-report"]
    assert [str(attrs["title"])[:24] for attrs in marks] == ["report · note: <script>a", "report · 0"]
    assert len(str(marks[0]["title"])) < 240
    assert "report · 298" in reader.text
    assert "201 more lines" in reader.text.replace("\xa0", " ")
    assert "what the program reported" in reader.text


def test_how_far_the_tools_came_is_said_of_those_that_were_asked_for() -> None:
    """Also of one that never began; what a tool asks for is its own affair; what ends late is said so."""
    story = Story().begin().answers("m", "Looking. ", tools=("c1", "c2", "c3", "c4")).starts("c1", "c2", "c3").gives("c1")
    story.starts("n", inside="c3").gives("n", inside="c3").add("tool.error", {"tool_call_id": "c2", "error": "x"}, "run-c2")
    text = read(story.ends("interrupted", "stop").gives("c3", late=True)).text
    assert "1 of 4 tools had finished, 1 failed, 1 ended after the run." in text


@pytest.mark.parametrize(
    ("story", "words"),
    [
        (Story().begin().answers("m", "a").ends(), "Completed in"),
        (Story().begin().says("m", "a").ends("failed", error="ValueError: boom"), "ValueError: boom"),
        (Story().begin().says("m", "a"), "Running, last event after 210 ms"),
        (
            Story().begin().answers("m", "a").add("run.pause", {"interrupts": [{"value": "Refund it?"}]}),
            "It asks: Refund it?",
        ),
        (Story().begin().ends("interrupted", "crash", settled=False, problem="disk"), "Not settled yet: disk"),
        (Story().begin().add("run.lost", {"events": 12}).ends(), "12 events were lost"),
        (Story().begin().add("run.settled", {"outcome": "whole"}).ends("interrupted", "stop"), "The thread was complete"),
        (
            Story().begin().add("run.settled", {"outcome": "left_alone", "reason": "no key"}).ends("failed"),
            "did not change the thread: no key",
        ),
        (Story().add("run.start"), "The run has no messages"),
        (Story(), "Running"),
    ],
)
def test_what_became_of_a_run_is_said_in_words(story: Story, words: str) -> None:
    """Whatever became of it."""
    assert words in read(story).text.replace("\xa0", " ")


def test_the_origin_of_each_message_is_shown() -> None:
    """With the words of the code base, in the order of the thread."""
    reader = read(stopped())
    items = [
        attrs["class"] or "" for tag, attrs in reader.tags if tag == "li" and "rj-message" in (attrs.get("class") or "")
    ]
    assert [name.split("rj-from-")[1] for name in items] == ["input", "streamed", "tool", "synthetic", "recovered"]
    assert "Written by the settlement: the tool was running." in reader.text
    assert "checkpoint-2" in reader.text


def test_a_partial_answer_shows_where_it_was_cut_off() -> None:
    """Right behind its last word."""
    story = (
        Story()
        .begin()
        .says("m", "It will rain wi")
        .add("llm.ai.partial", {"cause": "stop"}, "m")
        .ends("interrupted", "stop")
    )
    assert "It will rain wi ✂ cut off here: stop" in read(story).text


def test_a_running_answer_is_not_said_to_be_cut_off() -> None:
    """It is still streaming."""
    text = read(Story().begin().says("m", "It will")).text
    assert "It will … still streaming" in text
    assert "cut off" not in text


def test_thinking_arguments_results_and_errors_are_there() -> None:
    """What a call was, is in its details; what the thread does not hold stands there as well."""
    story = Story().begin().answers("h", "a plan", role="helper")
    content = [{"type": "thinking", "thinking": "deep thoughts", "signature": "s"}, {"type": "text", "text": "words"}]
    story.says("m").add("llm.ai.response", message("ai", content), "m").starts("c1")
    text = read(story.add("tool.error", {"tool_call_id": "c1", "error": "ValueError: x"}, "run-c1").ends()).text
    for words in ("a plan", "deep thoughts", "words", "q: c1", "ValueError: x", "helper"):
        assert words in text


def test_several_runs_stand_one_after_the_other() -> None:
    """With a table of contents, and ids of their own, even if a run is there twice."""
    one, two = stopped(), Story("other").begin().answers("m", "a").ends()
    reader = check_whole(
        page([(one.run, one.events), (two.run, two.events), (one.run, one.events)], title="What <happened>")
    )
    assert "What <happened>" in reader.text
    links = [attrs["href"] for tag, attrs in reader.tags if tag == "a" and (attrs["href"] or "").count("-") == 1]
    assert len(links) == 3
    assert [tag for tag, _ in reader.tags if re.fullmatch("h[12]", tag)] == ["h1", "h2", "h2", "h2"]


def test_fragments_in_one_notebook_do_not_share_ids() -> None:
    """Each run has its own, so that a link leads into it."""
    one, two = stopped(), Story("other").begin().answers("m", "a").ends()
    check_whole(fragment(one.run, one.events) + fragment(two.run, two.events), document=False)


def test_no_run_at_all() -> None:
    """A page that says so."""
    assert "0 runs" in check_whole(page([])).text


def test_a_run_without_its_events() -> None:
    """A summary says what the run says of itself."""
    run = Run(run_id="r", status=RunStatus.FAILED, error="ValueError: <b>", ended_at=3.0, started_at=1.0, settled=False)
    text = check_whole(summary(run), document=False).text
    assert text.strip().startswith("FailedValueError: <b>The events of this run cannot be read any more")
    assert "not yet" in text


@pytest.mark.parametrize(
    ("story", "words"),
    [
        (Story().begin().answers("m", tools=("a",)).starts("a"), "search(a) · not ended"),
        (Story().begin().answers("m", tools=("a",)).starts("a").ends("interrupted", "crash"), "search(a) · not ended"),
        (Story().begin().says("m", "a", "b").ends("interrupted", "crash"), "gpt · cut off · 2 characters"),
        (
            Story().begin().answers("m", tools=("a",)).starts("a").ends("interrupted", "stop"),
            "search(a) · not ended · 50 ms",
        ),
    ],
)
def test_what_nobody_knows_is_not_told(story: Story, words: str) -> None:
    """The duration of a call that runs, or whose process was killed; after a crash, only the time of the last event."""
    text = read(story).text.replace("\xa0", " ")
    assert f"{words}Began" in text
    assert ("last event after" in text) == ("crash" in text or "Running" in text)


def test_a_run_whose_process_is_gone_says_so() -> None:
    """The page does not call it running or streaming."""
    story = Story().begin().says("m", "It will")
    text = check_whole(page([(story.run, story.events)], gone=[story.run.run_id])).text.replace("\xa0", " ")
    assert "Its process was killed, last event after 210 ms" in text
    assert "No process works on this run: its process was killed. runjournal recover ends the run" in text
    assert "It will ✂ cut off here: its process was killed" in text
    assert "still streaming" not in text
    assert "running" not in text.lower()
    over = story.ends("interrupted", "crash")
    assert "No process works on this run" not in check_whole(page([(over.run, over.events)], gone=[over.run.run_id])).text


def test_tools_are_counted_call_by_call() -> None:
    """Also where the ids of their calls come again, as some models have it; one that was tried again counts once."""
    about = {"tool_call_id": "c1", "name": "search"}
    story = Story().begin()
    for turn in "abc":
        story.answers(turn, tools=("c1",)).add("tool.start", about, turn)
        if turn != "c":
            story.add("llm.tool.result", {"tool_call_id": "c1", **result("c1")}, turn, wait=0.1)
    assert "2 of 3 tools had finished." in read(story.ends("interrupted", "stop")).text
    story = Story().begin().answers("a", tools=("c1",)).starts("c1").answers("b", tools=("c2",)).starts("c2").gives("c1")
    assert "1 of 2 tools had finished." in read(story.ends("interrupted", "stop")).text
    story = Story().begin().answers("a", tools=("c1", "c2")).starts("c1", "c2")
    story.add("tool.error", {"tool_call_id": "c1", "error": "E"}, "run-c1").gives("c2")
    story.add("tool.start", about, "again")
    assert "1 of 2 tools had finished." in read(story.ends("interrupted", "stop")).text


def test_nobodys_words_turn_ours_round() -> None:
    """Right-to-left writing, and signs that turn the direction, stay within their own place in a sentence."""
    evil = "\u202eegassem"
    story = Story().begin().says("m", "a", model=evil).add("llm.ai.partial", {"cause": "stop"}, "m")
    story.add("run.settled", {"outcome": "left_alone", "reason": "\u05d0\u05d1"})
    html = page([(story.ends("failed", error=f"ValueError: {evil}").run, story.events)])
    text = check_whole(html).text
    for sentence in re.findall("[^\n]*\u2068[^\n]*", text):
        assert sentence.count("\u2068") == sentence.count("\u2069")
    assert "\u2068\ufffdegassem\u2069 · cut off" in text
    assert "did not change the thread: \u2068\u05d0\u05d1\u2069" in text
    assert 'rj-lead">ValueError: \u202eegassem</p>' in html  # a paragraph of its own


def test_a_long_error_does_not_push_everything_away() -> None:
    """Its beginning is there, the rest behind it."""
    story = Story().begin().says("m", "a").ends("failed", error="E: " + "long " * 1_000)
    html = page([(story.run, story.events)])
    assert "The whole error, 5,003 characters" in check_whole(html).text
    (lead,) = [said for said in re.findall('rj-lead">([^<]*)<', html) if said.startswith("E: ")]
    assert len(lead) < 300


def test_the_picture_has_an_alternative_in_words() -> None:
    """For those who do not see it: a label, and each call in a list."""
    reader = read(stopped())
    (label,) = [attrs["aria-label"] for tag, attrs in reader.tags if tag == "figure"]
    assert "3 tool calls, up to 3 at once, 2 with a result, cut off after" in (label or "").replace("\xa0", " ")
    words = reader.text.split("The timeline in words")[1]
    assert "search(c3) · not ended" in words.replace("\xa0", " ")


def test_calls_of_one_tool_are_told_apart() -> None:
    """By their first argument; in the picture, a tool that is called once is its name."""
    story = Story().begin().answers("m", tools=("a", "b", "c", "d", "e", "f"))
    flight: Any = {"what": "a  flight\nto a town with a long name", "seats": 2}
    for id, args in {"a": flight, "b": {"what": ["hotel"]}, "c": {}, "d": "car", "e": {"seats": 2}}.items():
        story.starts(id, args=args)
    story.starts("f", name="pay", args={"euros": 40}).gives("a", "b", "c", "d", "e", "f")
    html = page([(story.ends().run, story.events)])
    labels = re.findall('rj-called"[^>]*>([^<]*)<', html)
    assert labels[1:] == ["search(a flight to a town with…)", "search", "search", "search(car)", "search(2)", "pay"]
    assert "pay(40) · result" in check_whole(html).text


def test_headings_go_down_step_by_step() -> None:
    """One first heading, and none is left out."""
    levels = [int(tag[1]) for tag, _ in read(stopped()).tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))


def test_a_silence_is_shown_as_a_break() -> None:
    """With how long it was; and what comes behind it counts from there."""
    story = Story().begin().answers("m", *"abcdefgh").add("run.pause")
    story.at += 3 * DAY
    text = read(story.answers("n", *"abcdefgh").ends()).text.replace("\xa0", " ")
    assert "3 d" in text
    assert "+500 ms" in text


def test_silences_in_a_row_have_a_label_together() -> None:
    """With how long they were in all: each alone would have no room."""
    story = Story().begin().answers("m", *"abcdefgh").add("run.pause")
    for silence in (7_200, 40, 2 * DAY):
        story.at += silence
        story.add("run.stop", {"cause": "stop"})
    text = read(story.answers("n", *"abcdefgh").ends()).text.replace("\xa0", " ")
    assert "2 d 2 h" in text.split("model call")[0]


def test_what_names_no_call_is_shown_once() -> None:
    """Events that somebody has appended by hand."""
    story = Story().begin()
    for word in ("only ", "once"):
        story.add("llm.ai.delta", {"text": word})
    text = read(story.ends("interrupted", "crash")).text
    assert text.count("only once") == 1
    assert "None" not in text
    story = Story().begin().add("llm.ai.response", message("ai", "only once")).ends()
    assert read(story).text.count("only once") == 1


# --- nothing runs -----------------------------------------------------------------------------------------------------


def evil() -> Story:
    """Everything that a run can hold is an attack."""
    story = Story(f"run {EVIL}").add(
        "run.start", {"thread_id": EVIL, "name": EVIL, "metadata": {"runjournal_continues": EVIL}}
    )
    story.add("llm.human.input", message("human", EVIL, name=EVIL)).add("llm.human.input", message(EVIL, EVIL))
    story.says("h", EVIL, model=EVIL, role=EVIL, node=EVIL, inside=EVIL).add("llm.error", {"error": EVIL}, "h")
    calls = [{"id": EVIL, "name": EVIL, "args": {EVIL: EVIL}, "type": "tool_call"}]
    content = [{"type": "thinking", "thinking": EVIL, "signature": "s"}, {"type": "text", "text": EVIL}, {"type": EVIL}]
    story.says(EVIL, model=EVIL).add("llm.ai.response", message("ai", content, id=EVIL, tool_calls=calls), EVIL)
    story.add("tool.start", {"tool_call_id": EVIL, "name": EVIL, "args": {EVIL: EVIL}}, f"tool {EVIL}")
    story.add("llm.tool.result", {"tool_call_id": EVIL, **result(EVIL, EVIL)}, f"tool {EVIL}")
    story.add("tool.start", {"name": EVIL, "args": EVIL}, "t2").add("tool.error", {"error": EVIL}, "t2")
    story.says("p", EVIL).add("llm.ai.partial", {"cause": EVIL}, "p").add(
        "run.pause", {"interrupts": [{"value": EVIL}, EVIL]}
    )
    story.add("run.stop", {"cause": EVIL}).add("run.lost", {"events": EVIL})
    story.add(
        "run.settled",
        {"outcome": EVIL, "reason": EVIL, "before": EVIL, "after": EVIL, "messages": [{"id": EVIL, "origin": EVIL}]},
    )
    story.add("run.settled", settled((EVIL, EVIL, "recovered"), outcome="held", reason=EVIL))
    usage = {EVIL: {"calls": 1, "incomplete": EVIL, "input_tokens": EVIL}, "x": EVIL}
    return story.ends("interrupted", EVIL, error=EVIL, usage=usage, settled=False, problem=EVIL)


def test_what_a_user_wrote_is_shown_and_never_run() -> None:
    """Wherever it stands: in words, names, ids, arguments, errors, causes."""
    story = evil()
    for html in (page([(story.run, story.events)] * 2, title=EVIL), fragment(story.run, story.events), summary(story.run)):
        text = check_whole(html, document=html.startswith("<!")).text
        assert "<script>alert(1)</script>" in text
        assert "<script" not in html.lower()
        assert "onerror=alert(2)>" not in html


def test_the_check_of_what_runs_can_fail() -> None:
    """A page with a script, a link elsewhere, or an open tag does not pass it."""
    for bad in (
        "<script></script>",
        '<a href="x:y">z</a>',
        "<p>",
        "<b></i></b>",
        '<p onclick="x"></p>',
        "\x00",
        '<img src="x">',
    ):
        with pytest.raises(AssertionError):
            check_whole(bad, document=False)


def test_the_page_forbids_whatever_could_be_loaded() -> None:
    """By a policy in its head, before anything else that could be."""
    story = stopped()
    html = page([(story.run, story.events)])
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    assert f'<meta http-equiv="Content-Security-Policy" content="{policy}">' in html
    assert html.index("Content-Security-Policy") < html.index("<style")
    assert not re.search(r"https?:|//[a-z]|url\(|@import|javascript:", html)


@pytest.mark.parametrize(
    "odd", ["\ud800", "a\udfffb", "\x00", "\x1b]0;title\x07", "\x7f", "\x85", "\ufffe", "\U0001ffff", "\r"]
)
def test_what_no_file_can_hold_does_not_break_it(odd: str) -> None:
    """Halves of pairs, control characters and what is no character become visible signs."""
    story = Story().begin(odd).answers("m", odd).ends()
    assert odd not in page([(story.run, story.events)])
    read(story)


@given(st.text())
def test_safe_text_is_the_same_text(text: str) -> None:
    """What can be written comes back as it was, from an element and from an attribute."""
    reader = Reader()
    reader.feed(f'<p title="{safe(text)}">{safe(text)}</p>')
    reader.close()
    odd = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]|[^\x00-\U0001fffd]|[\ufdd0-\ufdef\ufffe\uffff]")
    if not odd.search(text):
        assert reader.text == text
        assert reader.tags == [("p", {"title": text})]


# --- anything ---------------------------------------------------------------------------------------------------------

ODD = ["text", "ai", "tool", "c1", "m1", "", "<b>", "]]>", "\ud800", "\x00\x1b", "&amp;", "thinking", "tool_use"]
WORDS = st.one_of(st.sampled_from(ODD), st.text(max_size=6))
FIELDS = """message data type content text thinking reasoning args json index blocks tool_calls finish metadata id restart
usage unused replaces role model late attempt inside error cause status messages origin outcome before after interrupts value
tool_call_id name events input_tokens additional_kwargs runjournal calls invalid_tool_calls reason open kwargs node"""
NAMES = st.sampled_from(FIELDS.split())
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-5, 10**20), st.floats(), WORDS)
ANY = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4), max_leaves=8
)
MESSAGES = st.fixed_dictionaries(
    {"type": st.one_of(st.sampled_from(["ai", "human", "tool"]), ANY), "data": st.dictionaries(NAMES, ANY, max_size=4)}
)


@st.composite
def odd_events(draw: Any) -> list[Event]:
    """Any kinds in any order, with any JSON in them, and a clock that does what it wants."""
    events = []
    for seq in range(draw(st.integers(0, 14))):
        kind = draw(st.sampled_from(sorted(KINDS)))
        data = draw(st.dictionaries(NAMES, st.one_of(ANY, MESSAGES), max_size=4))
        if draw(st.booleans()):
            data["message"] = draw(MESSAGES)
        if kind == "run.end":
            data["status"] = draw(st.sampled_from(["completed", "interrupted", "failed"]))
        at = draw(st.one_of(st.just(0.0), st.floats(0, 2e11), st.floats(1.7e9, 1.7e9 + 100)))
        call = draw(st.sampled_from([None, "m1", "c1", ""]))
        events.append(Event(run_id="r", kind=kind, data=data, call_id=call, seq=seq + 1, at=at))
    return events


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(odd_events())
def test_whatever_the_events_hold_there_is_a_picture(events: list[Event]) -> None:
    """No exception, each tag closed, and a file that can be written."""
    run = begin("r", 0.0)
    for event in events:
        run = advance(run, event)
    for given_run in (run, Run(run_id="r")):
        check_whole(page([(given_run, events)]))
        check_whole(fragment(given_run, events), document=False)


# --- how large it gets ------------------------------------------------------------------------------------------------


def test_a_run_of_100_000_tokens_and_500_tools_stays_small() -> None:
    """Its text is there whole, and once; the page stays far below 5 MB."""
    tokens = [f"t{number} " for number in range(100_000)]
    ids = tuple(f"c{number}" for number in range(500))
    story = Story().begin().answers("m", *tokens, tools=ids, wait=0.001).starts(*ids)
    for id in ids:
        story.add("llm.tool.result", {"tool_call_id": id, **result(id, "<y>" * 4000)}, f"run-{id}", wait=0.1)
    html = page([(story.run, story.ends("interrupted", "crash").events)])
    assert html.count("".join(tokens)) == 1
    assert html.count("t99999 ") == 1
    assert len(html.encode()) < 4_000_000
    assert "more characters" in html
    check_whole(html)


def test_500_tools_at_once_are_one_row_that_unfolds() -> None:
    """With how many there were at a time, since nobody could read so many bars."""
    ids = [f"c{number}" for number in range(500)]
    story = Story().begin().starts(*ids).gives(*ids, wait=0.01).ends()
    html = page([(story.run, story.events)])
    (shape,) = re.findall(r'<path class="rj-result" d="([^"]*)"', html)
    assert 100 <= shape.count("V") <= 300
    assert "search · 500 calls, up to 500 at once" in html
    assert len(re.findall(r"<details class=\"rj-fold\">", html)) == 1
    assert html.count('class="rj-bar rj-tool') == 500


def test_of_very_many_calls_and_messages_the_page_says_what_it_leaves_out() -> None:
    """The first and the last are there, the number of the others, and where they can be had."""
    story = Story().begin()
    for number in range(10_000):
        story.answers(f"m{number}", f"answer {number}.", wait=0.01)
    html = page([(story.run, story.ends().events)])
    text = check_whole(html).text
    assert "9,001 messages are left out here; runjournal export has them." in text
    assert "9,000 calls are left out here" in text
    assert "answer 0." in text
    assert "answer 9999." in text
    assert "answer 5000." not in text
    assert len(html) < 3_000_000


def test_what_is_long_is_cut_with_a_count() -> None:
    """Arguments and results of tools; never what a model has said."""
    story = Story().begin().answers("m", "w" * 50_000, tools=("c1",))
    story.add("tool.start", {"tool_call_id": "c1", "name": "search", "args": {"q": "a" * 5000}}, "run-c1")
    story.add("llm.tool.result", {"tool_call_id": "c1", **result("c1", "r" * 9000)}, "run-c1")
    text = read(story.ends()).text
    assert "w" * 50_000 in text
    assert "… 5,000 more characters" in text
    assert "… 3,003 more characters" in text


@pytest.mark.parametrize("said", ["&" * 3_000_000, "\n" * 2_000_000, "1\n" * 500_000], ids=["signs", "lines", "numbers"])
def test_what_grows_in_html_stays_within_bounds(said: str) -> None:
    """Signs that HTML writes as words, and lines; and a browser need not ask of each line which way it is written."""
    html = page([(run := (story := Story().begin().answers("m", said).ends()).run, story.events)])
    assert run.status == "completed"
    assert len(html) < 5_000_000
    assert ("more characters" in html) == (len(said) > 1_000_000)
    assert "dir=" not in html
    check_whole(html)


def test_a_name_that_is_a_book_is_no_more_than_a_name() -> None:
    """Wherever names stand: of tools, models, nodes, threads, requests."""
    book = "n" * 20_000
    ids = [f"{book}{number}" for number in range(500)]
    story = Story().begin().says("m", "a ", model=book, node=book, role=book)
    for id in ids:
        story.add("tool.start", {"tool_call_id": id, "name": book, "args": {}}, f"run-{id}", wait=0.1)
    html = page([(replace(story.ends().run, thread_id=book, name=book), story.events)])
    assert len(html) < 3_000_000
    check_whole(html)


def test_half_of_a_pair_in_an_id_breaks_nothing() -> None:
    """A provider may give any id, and JSON holds it."""
    id = "c\ud800"
    story = Story().begin().answers("m", "a ", tools=(id,)).starts(id)
    story.add("run.settled", settled(("rjs-1", "tool", "synthetic"))).ends("interrupted", "stop")
    assert "c\ufffd" in page([(story.run, story.events)]).encode().decode()


@pytest.mark.parametrize("kind", ["run.pause", None])
def test_of_a_run_that_goes_on_the_page_says_that_its_thread_may_lack_something(kind: str | None) -> None:
    """What a step has recorded is in the thread when the step is over."""
    story = Story().begin().answers("m", "a ", tools=("c1", "c2")).starts("c1", "c2").gives("c1")
    if kind is not None:
        story.add(kind, {"interrupts": [{"value": "sure?"}]})
    assert "As recorded so far" in read(story).text
    assert "As recorded so far" not in read(story.ends()).text


# --- in a notebook ----------------------------------------------------------------------------------------------------


def selectors(css: str) -> list[str]:
    """The selectors of a style sheet, from inside of its conditions as well."""
    css = re.sub(r"/\*.*?\*/", "", css, flags=re.S)
    css = re.sub(r"@(?:media|container)[^{]*\{((?:[^{}]*\{[^{}]*\})*)\}", r"\1", css)
    depth_split = re.compile(r",(?![^()]*\))")
    return [one.strip() for rule in re.findall(r"([^{}]+)\{[^{}]*\}", css) for one in depth_split.split(rule)]


def test_the_rules_of_a_fragment_touch_nothing_else() -> None:
    """Each stands under its one class."""
    story = stopped()
    html = fragment(story.run, story.events)
    (css,) = re.findall("<style>(.*?)</style>", html, re.S)
    found = selectors(css)
    assert len(found) > 80
    for selector in found:
        assert re.search(r"(^|\s)\.rj(?![\w-])", selector), selector
    assert "@import" not in css
    assert "@font-face" not in css


def test_the_check_of_rules_can_fail() -> None:
    """A rule for the body, or one in a condition, is found."""
    found = selectors("body{a:b}@media print{.rj x{a:b}h1,.rj :is(a,b){c:d}}")
    assert found == ["body", ".rj x", "h1", ".rj :is(a,b)"]


def test_a_fragment_follows_the_theme_of_the_notebook() -> None:
    """Jupyter's, VS Code's, and elsewhere that of the system."""
    css = fragment(Run(run_id="r"), ())
    for words in (
        '[data-jp-theme-light="false"] .rj',
        '[data-jp-theme-light="true"] .rj',
        ".vscode-dark .rj",
        "color-scheme:light dark",
    ):
        assert words in css


def test_without_its_styles_a_fragment_reads_from_top_to_bottom() -> None:
    """As where a repository shows a notebook: the words stand apart, lines end where they did."""
    story = Story().begin("one\ntwo").says("m", "It will rain wi")
    story.add("llm.ai.partial", {"cause": "stop"}, "m").starts("c1").ends("interrupted", "stop")
    html = re.sub(r"<style>.*?</style>", "", fragment(story.run, story.events), flags=re.S)
    reader = check_whole(html, document=False)
    assert "one\ntwo" in reader.text
    assert "one<br>two" in html
    assert "It will rain wi ✂ cut off here" in reader.text


# --- words ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 ms"), (0.25, "250 ms"), (0.9999, "1.0 s"), (3.21, "3.2 s"), (59.96, "1 min"), (80, "1 min 20 s"), (3600, "1 h"),
     (7500, "2 h 5 min"), (3 * DAY + 14_400, "3 d 4 h"), (1e11, "1157407 d 9 h")],
)  # fmt: skip
def test_spans_of_time(seconds: float, words: str) -> None:
    """As a person would say them."""
    assert duration(seconds).replace("\xa0", " ") == words


@pytest.mark.parametrize(
    ("at", "words"),
    [(1, "1970-01-01 00:00:01"), (951_782_400, "2000-02-29 00:00:00"), (1_795_045_986.9, "2026-11-18 23:53:06"),
     (4_107_542_400, "2100-03-01 00:00:00"), (253_402_300_799, "9999-12-31 23:59:59")],
)  # fmt: skip
def test_moments(at: float, words: str) -> None:
    """In UTC, without a clock or a calendar of the machine."""
    assert f">{words} UTC<" in moment(at)


def test_the_style_is_part_of_the_package() -> None:
    """Where the package is, its style sheet is."""
    assert (Path(langchain_runjournal.__file__).parent / "view" / "view.css").is_file()


def test_a_made_up_id_is_the_one_of_the_settlement() -> None:
    """The ids that the tests use are those that `_pairs.answer` gives."""
    from langchain_core.messages import AIMessage

    from langchain_runjournal.messages.tool_pairs import requests
    from langchain_runjournal.messages.tool_results import CallKnowledge, answer

    asking = AIMessage("", id="lc_run--m", tool_calls=[{"id": "c3", "name": "search", "args": {}}])
    assert answer(asking, requests(asking)[0], CallKnowledge()).id == made_up("m", 0, "c3")
