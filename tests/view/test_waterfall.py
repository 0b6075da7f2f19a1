"""What the rows of a timeline say, what of a page links to what, what folds, and the image for viewers without styles."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_runjournal.view import bundle, fragment, page, svg
from langchain_runjournal.view.elements import Place
from langchain_runjournal.view.texts import prose
from tests.support.large_runs import large_run
from tests.timeline.test_timeline import Story, made_up, message, result, settled, stopped
from tests.view.test_view import Reader, check_image, check_whole, evil, read


def html_of(story: Story) -> str:
    return page([(story.run, story.events)])


def tags(html: str) -> list[str]:
    return re.findall(r"rj-tag [^>]*>([^<]*)<", html)


def targets(html: str) -> dict[str, str]:
    """The HTML that follows each id, up to the next one."""
    parts = re.split(r' id="([^"]+)"', html)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def links(html: str, words: str) -> list[str]:
    return [one[0] for one in re.findall(r'<a[^>]* href="#([^"]+)">([^<]*)</a>', html) if one[1] == words]


# --- rows -------------------------------------------------------------------------------------------------------------


def test_retries_fallbacks_and_helpers_are_told_apart() -> None:
    """In their rows: a retry calls the same model again, and a fallback another one."""
    story = Story().begin().answers("h", "a plan", role="helper")
    story.says("m1", "bad", model="a").add("llm.error", {"error": "429"}, "m1")
    story.says("m2", "bad", model="a", attempt=2, replaces=["m1"]).add("llm.error", {"error": "429"}, "m2")
    story.says("m3", "good", model="b", attempt=3, replaces=["m1", "m2"])
    html = html_of(story.add("llm.ai.partial", {"cause": "stop"}, "m3").ends("interrupted", "stop"))
    assert tags(html) == ["helper", "error", "retry", "error", "fallback", "cut off"]
    assert len(re.findall('class="rj-bar [^"]*rj-replaced"', html)) == 2
    assert "2, a retry" in check_whole(html).text
    assert "3, a fallback" in check_whole(html).text


@pytest.mark.parametrize(
    ("story", "found"),
    [
        (Story().begin().starts("a", "b").gives("a"), ["running"]),
        (Story().begin().starts("a", "b").gives("a").ends("interrupted", "stop"), ["not ended"]),
        (Story().begin().starts("a").ends("interrupted", "stop").gives("a", late=True), ["late"]),
        (Story().begin().starts("a").add("tool.error", {"interrupted": True}, "run-a"), ["waits"]),
        (Story().begin().starts("a").add("tool.error", {"error": "x"}, "run-a"), ["error"]),
    ],
)
def test_how_a_tool_ended_stands_in_its_row(story: Story, found: list[str]) -> None:
    """In a word; nothing of one that ended well."""
    assert tags(html_of(story)) == found


def test_tokens_and_cost_are_shown_where_providers_report_them() -> None:
    """In the row and the details of a call, and for the run; there is no column if nobody reports any."""
    story = Story().begin().says("m", "x")
    usage = {"input_tokens": 12_400, "output_tokens": 350, "input_token_details": {"cache_read": 12_000}}
    data = message("ai", "x", usage_metadata=usage, response_metadata={"token_usage": {"cost": 0.0125}})
    story.add("llm.ai.response", data, "m").answers("n", "y")
    html = html_of(story.ends(usage={"gpt": {"calls": 2, "incomplete": 1, "input_tokens": 12_400, "output_tokens": 350}}))
    text = check_whole(html).text
    assert re.findall(r'rj-used">([^<]*)<', html) == ["tokens in / out", "12.4k / 350", ""]
    assert "12,400 in (12,000 from a cache), 350 out" in text
    assert "Tokens 12,400 in, 350 out (not reported for 1 call)" in text
    assert "Cost $0.0125 for 1 of 2 calls" in text
    plain = html_of(Story().begin().answers("n", "y").ends())
    assert "tokens in / out" not in plain
    assert "Cost" not in plain


def test_the_heading_is_the_only_place_of_the_status() -> None:
    """One line below it has the facts of the run."""
    text = read(stopped()).text.replace("\xa0", " ")
    assert text.count("Interrupted: stop") == 2  # the title of the page is the other one
    assert "interrupted" not in text
    assert "Run ended" in text
    assert "Thread t Agent agent Model gpt Began 2026-11-18 23:53:06 UTC" in text


def test_one_line_of_the_cut_goes_through_all_rows() -> None:
    """With its cause at its head."""
    html = html_of(stopped())
    assert len(re.findall(r'class="rj-line rj-cut"', html)) == 1
    assert re.findall(r'<div class="rj-flag"><b[^>]*>([^<]*)<', html) == ["cut off: stop"]
    assert "rj-cut" not in html_of(Story().begin().answers("m", "a").ends()).partition("<body>")[2]


def test_a_lost_event_is_one_event() -> None:
    """Also in the list of marks."""
    text = read(Story().begin().add("run.lost", {"events": 1}).ends()).text
    assert "1 event was lost" in text
    assert "1 events" not in text


# --- links ------------------------------------------------------------------------------------------------------------


def test_messages_and_bars_link_to_each_other() -> None:
    """From each message to the row of its call, from the row to the details, and from there to the message."""
    html = html_of(stopped())
    there = targets(html)
    rows = links(html, "in the timeline")
    assert len(rows) == 4  # the answer, and three results
    assert all("rj-called" in there[row].partition("</span>")[0] for row in rows)
    assert "gpt" in there[rows[0]]
    assert "search(c3)" in there[next(row for row in rows if "c3" in there[row][:300])]
    details = re.findall(r'rj-called" href="#([^"]+)"', html)
    assert len(details) == 4
    answers = [links(there[one], "the conversation above") for one in details]
    assert [len(one) for one in answers] == [1, 1, 1, 0]
    assert "Look" in there[answers[0][0]]
    assert [links(there[one], "In the timeline") for one in details] == [[one.replace("-call-", "-row-")] for one in details]


def test_a_settlement_links_to_what_it_wrote_and_back() -> None:
    """The mark to the messages, and each of them to the mark."""
    html = html_of(stopped())
    there = targets(html)
    (mark,) = set(links(html, "settled at mark 2"))
    assert "The thread was settled with 2 messages" in there[mark]
    written = [links(there[mark], number)[0] for number in ("4", "5")]
    assert ["synthetic" in there[written[0]], "recovered" in there[written[1]]] == [True, True]
    assert [links(there[one], "settled at mark 2") for one in written] == [[mark], [mark]]
    (pin,) = set(re.findall(r'class="rj-pin[^>]*><a href="#([^"]+)">1', html))
    assert "Stop requested" in there[pin]


def test_a_result_that_was_settled_again_links_to_the_last_settlement() -> None:
    """Which is the one that its text comes from."""
    story = Story().begin().answers("m", "Looking. ", tools=("c1",)).starts("c1")
    id = made_up("m", 0, "c1")
    story.add("run.settled", settled((id, "tool", "synthetic"))).ends("interrupted", "stop").gives("c1", late=True)
    html = html_of(story.add("run.settled", settled((id, "tool", "recovered"))))
    assert links(html, "settled at mark 3")
    assert not links(html, "settled at mark 1")


def test_every_link_of_a_large_run_leads_somewhere() -> None:
    """Also where rows, calls and messages are left out: those are words without a link."""
    run, events = large_run(3_000, seed=5)
    html = page([(run, events)])
    check_whole(html)
    assert "left out here" in html
    assert len(html) < 4_000_000


def test_without_styles_the_cells_of_a_row_stand_apart() -> None:
    """As where a repository shows a notebook."""
    run, events = large_run(9, seed=113)
    text = check_whole(fragment(run, events), document=False).text.replace("\xa0", " ")
    assert "haiku-small router helper 490 / 4 955 ms" in text


def test_a_notebook_has_no_links() -> None:
    """It may show one run twice, and a link would lead to the other one."""
    story = stopped()
    html = fragment(story.run, story.events)
    assert "<a " not in html
    assert "-row-" not in html


# --- what folds -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shown", "words"),
    [
        ("\n".join(f"line {at}" for at in range(10)), "line 9", None),
        ("\n".join(f"line {at}" for at in range(12)), "line 9", "2 more lines"),
        ("\n".join(f"line {at}" for at in range(12)) + "\n", "line 9", "2 more lines"),
        ("x" * 1_500, "x" * 1_000, "500 more characters"),
        ("short\n" + "x" * 2_000, "short", "2,000 more characters"),
    ],
)
def test_a_long_result_folds_after_ten_lines(text: str, shown: str, words: str | None) -> None:
    """The rest is behind its size; a line that is very long counts as several."""
    story = Story().begin().answers("m", "Looking. ", tools=("c1",)).starts("c1")
    story.add("llm.tool.result", {"tool_call_id": "c1", **result("c1", text)}, "run-c1")
    html = html_of(story.ends())
    assert re.findall(r'class="rj-rest"><summary>([^<]*)<', html) == ([words] if words else [])
    in_sight = html.partition('class="rj-rest"')[0].rpartition('class="rj-text">')[2].partition("</div>")[0]
    assert in_sight.split("<br>")[-1] == shown
    assert text.strip() in check_whole(html).text.replace(words or "\0", "\n" if "\n" in text else "")


def test_a_result_of_which_the_page_shows_little_is_shortened_once() -> None:
    """With very many tools, it shows fewer characters than ten lines have."""
    story = Story().begin().answers("m", "Looking. ", tools=tuple(f"c{at}" for at in range(201)))
    for at in range(201):
        story.starts(f"c{at}").add(
            "llm.tool.result", {"tool_call_id": f"c{at}", **result(f"c{at}", "x" * 4_000)}, f"run-c{at}"
        )
    html = html_of(story.ends())
    assert 'class="rj-rest"' not in html
    assert re.findall("… ([0-9,]+) more characters", html) == ["3,400"] * 201


MARKDOWN = st.lists(
    st.sampled_from(
        [
            "# ",
            "## ",
            "- ",
            "* ",
            "1. ",
            "**",
            "*",
            "`",
            "``",
            "```",
            "```py",
            "\n",
            "\n\n",
            "[",
            "](",
            ")",
            "<b>",
            "&",
            "x",
            " ",
        ]
    ),
    max_size=40,
).map("".join)


@given(MARKDOWN)
def test_markdown_keeps_each_of_its_characters(text: str) -> None:
    """It is the source, with elements around it; what is hidden when it is formatted is hidden by the style sheet."""
    reader = Reader()
    reader.feed(prose(text, Place(key="k", level=1)))
    reader.close()
    assert reader.open == []
    assert reader.text.removeprefix(" formatted") == text


def test_markdown_can_be_formatted_without_a_script() -> None:
    """Code stands in a monospaced face; the signs are what the switch hides; plain text has no switch."""
    text = "# Plan\n- **first** `x = 1`\n```py\n**no** markup <b>\n```\nSee [this](page) and"
    html = html_of(Story().begin().answers("m", text).ends())
    said = html.partition('class="rj-markdown"')[2].partition("</li>")[0]
    assert '<input type="checkbox">' in said
    assert '<b class="rj-heading"><i class="rj-sign"># </i>Plan</b>' in said
    assert '<b><i class="rj-sign">**</i>first<i class="rj-sign">**</i></b>' in said
    assert "**no** markup &lt;b&gt;" in said
    assert re.findall(r'<i class="rj-sign">(```[^<]*)<', said) == ["```py", "```"]
    assert "<u>this</u>" in said
    check_whole(html)
    assert "rj-switch" not in html_of(Story().begin().answers("m", "2 * 3 * 4").ends()).partition("<body>")[2]


def test_a_code_block_that_was_cut_off_is_code() -> None:
    """A Stop leaves its fence open."""
    story = (
        Story().begin().says("m", "```py\nx = ").add("llm.ai.partial", {"cause": "stop"}, "m").ends("interrupted", "stop")
    )
    assert '<code class="rj-block"><i class="rj-sign">```py<br></i>x = </code>' in html_of(story)


# --- the image --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("calls", [1, 9, 45, 500])
def test_the_image_shows_the_rows_of_the_page(calls: int) -> None:
    """As shapes and texts that need no style sheet, in a few kilobytes."""
    run, events = large_run(calls, seed=4)
    found = svg(run, events)
    texts = check_image(found)
    assert any(text.startswith("Interrupted: stop") for text in texts)
    assert "cut off: stop" in texts
    assert len(found) < 60_000
    assert ("sonnet-large" in texts) == (calls < 500)
    assert any("agent" in text for text in texts)


def test_the_image_holds_whatever_a_run_holds() -> None:
    """As text."""
    for story in (evil(), stopped(), Story().begin("\ud800").says("m", "x", model="\ud800\x00"), Story()):
        check_image(svg(story.run, story.events))


def test_a_notebook_gets_the_page_and_the_image() -> None:
    """By MIME type; and the page holds the image for viewers that remove its styles."""
    story = stopped()
    found = bundle(story.run, story.events)
    assert found == {"text/html": fragment(story.run, story.events), "image/svg+xml": svg(story.run, story.events)}
    reader = check_whole(found["text/html"], document=False)
    (image,) = [attrs for tag, attrs in reader.tags if tag == "img"]
    assert (image["class"], image["alt"]) == ("rj-image", "Timeline: Interrupted: stop, after 1.6\xa0s")
    assert ".rj-image{display:none}" in found["text/html"]
