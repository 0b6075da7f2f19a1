"""The chat in Streamlit, clicked through by Streamlit's own test runner. `make test-frontends`"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from langchain_runjournal import RunJournal

st = pytest.importorskip("streamlit")
testing = pytest.importorskip("streamlit.testing.v1")

pytestmark = [pytest.mark.look, pytest.mark.filterwarnings("default")]
CHAT = Path(__file__).parents[2] / "examples" / "streamlit_chat.py"
PATIENCE = 30


class Tab:
    """A tab of a browser."""

    def __init__(self, thread: str | None = None) -> None:
        self.app = testing.AppTest.from_file(str(CHAT), default_timeout=PATIENCE)
        if thread is not None:
            self.app.query_params["thread"] = thread
        self.look()

    def look(self) -> None:
        """As Streamlit does by itself, five times a second."""
        self.app.run()
        assert not self.app.exception

    def say(self, text: str) -> None:
        self.app.chat_input[0].set_value(text).run()
        assert not self.app.exception

    def stop(self) -> None:
        self.app.button(key="stop").click().run()
        assert not self.app.exception

    @property
    def thread(self) -> str:
        found = self.app.query_params["thread"]
        return str(found[0] if isinstance(found, list) else found)

    @property
    def shown(self) -> list[tuple[str, str, list[str]]]:
        """Who has said what, and what stands below it."""
        return [(one.name, one.markdown[0].value, [below.value for below in one.caption]) for one in self.app.chat_message]


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunJournal]:
    """Beside that of the program, as another process would open it."""
    monkeypatch.chdir(tmp_path)
    st.cache_resource.clear()
    with RunJournal(tmp_path / "runs.db") as journal:
        yield journal


def until_said(journal: RunJournal, run_id: str, words: int, after: int = 0) -> int:
    """Wait until a run has said so many words more."""
    for event in journal.follow(run_id, after):
        words -= event.kind == "llm.ai.delta"
        if words <= 0:
            return event.seq
    raise AssertionError("it has ended before that")


def test_stop_rerun_and_refresh(journal: RunJournal) -> None:
    """A rerun and a refresh in mid-answer change nothing. Stop keeps what was said, cause stop, and the chat goes on."""
    tab = Tab()
    assert tab.shown == []
    tab.say("hello")
    (run,) = journal.runs()
    seq = until_said(journal, run.run_id, 3)
    tab.look()
    (asked, answered) = tab.shown
    assert asked == ("human", "hello", [])
    assert answered[1].startswith("You said: ")
    assert tab.app.chat_input[0].disabled
    until_said(journal, run.run_id, 3, seq)
    again = Tab(tab.thread)
    assert again.shown[1][1].startswith(answered[1].rstrip())
    assert len(again.shown[1][1]) > len(answered[1])
    again.stop()
    run = journal.run(run.run_id)
    assert (run.status, run.cause, run.settled) == ("interrupted", "stop", True)
    for one in (again, tab, Tab(tab.thread)):
        one.look()
        (asked, cut) = one.shown
        assert (asked, cut[2]) == (("human", "hello", []), ["stopped"])
        assert "You said: hello. And so on".startswith(cut[1][:20])
        assert not one.app.chat_input[0].disabled
        assert len(one.app.button) == 0
    assert cut[1].count("And so on") < 20
    tab.say("go on")
    assert [run.status for run in journal.runs()] == ["running", "interrupted"]
    tab.stop()
    assert [who for who, _, _ in tab.shown][:3] == ["human", "ai", "human"]


def test_another_tab_was_faster(journal: RunJournal) -> None:
    """Its message is refused while an answer is being given, and the page says so."""
    first = Tab()
    second = Tab(first.thread)
    first.say("hello")
    second.say("me too")
    assert [toast.value for toast in second.app.toast] == ["Not sent, because an answer is being given: me too"]
    assert len(journal.runs()) == 1
    first.stop()
