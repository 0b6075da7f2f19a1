"""What a request holds of answers that were cut off and that LangChain took for whole ones."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langchain_runjournal import repair_tool_pairs

OPENAI, ANTHROPIC = {"model_provider": "openai"}, {"model_provider": "anthropic"}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "index": 0}
THOUGHT = {"type": "thinking", "thinking": "Well", "index": 0}
REDACTED = {"type": "redacted_thinking", "data": "x"}
SAID = {"type": "text", "text": "Half an answer", "id": "msg_1", "index": 1}
CALL = {"name": "look", "args": {}, "id": "c1", "type": "tool_call"}


def history(answer: AIMessage) -> list[BaseMessage]:
    return [HumanMessage("Hello"), answer, HumanMessage("Go on")]


@pytest.mark.parametrize(
    ("content", "metadata"),
    [
        ([REASONING], {**OPENAI, "status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}),
        ([REASONING], OPENAI),
        ([THOUGHT], {**ANTHROPIC, "stop_reason": "max_tokens"}),
        ([{"type": "non_standard", "value": REDACTED}], {**ANTHROPIC, "stop_reason": "max_tokens"}),
        (["", {"type": "thinking", "thinking": [{"type": "text", "text": "Well"}]}], {"model_provider": "mistralai"}),
        ([], {**OPENAI, "finish_reason": "length"}),
        ("", {**OPENAI, "finish_reason": "length"}),
    ],
)
def test_an_answer_that_was_cut_before_its_first_word_is_not_sent(content: Any, metadata: dict[str, Any]) -> None:
    """Providers refuse thoughts with nothing behind them, and content that is empty."""
    given = history(AIMessage(content, response_metadata=metadata))
    assert repair_tool_pairs(given) == [given[0], given[2]]
    assert len(given) == 3


def test_a_response_that_was_never_stored_is_not_named() -> None:
    """Its body ended early: OpenAI knows neither its id nor those of its items. The words are sent."""
    answer = AIMessage([REASONING, SAID], id="lc_run--1", response_metadata={**OPENAI, "id": "resp_1"})
    sent = repair_tool_pairs(history(answer))
    assert sent[1].content == [{"type": "text", "text": "Half an answer"}]
    assert "id" not in sent[1].response_metadata
    assert sent[1].id == "lc_run--1"
    assert answer.response_metadata["id"] == "resp_1", "the thread stays as it is"
    again = repair_tool_pairs(sent)
    assert again is sent


def test_its_calls_and_their_results_are_sent() -> None:
    """They were answered, and belong together."""
    item = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "look", "arguments": "{}"}
    answer = AIMessage(
        [SAID, item],
        id="msg_1",
        additional_kwargs={"reasoning": {"id": "rs_1"}},
        tool_calls=[CALL],
        response_metadata=OPENAI,
    )
    sent = repair_tool_pairs([HumanMessage("Hello"), answer, ToolMessage("sunny", tool_call_id="c1"), HumanMessage("?")])
    assert [one.type for one in sent] == ["human", "ai", "tool", "human"]
    assert sent[1].tool_calls == [CALL]
    asking = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
    assert sent[1].content == [{"type": "text", "text": "Half an answer"}, asking]
    assert sent[1].additional_kwargs == {}


def test_a_limit_that_was_reached_behind_words_leaves_the_words() -> None:
    """In a thought, or in a tool of the provider: what was begun there is refused, what was said before is not."""
    begun = {"type": "server_tool_call_chunk", "id": "s1", "name": "web_search", "args": '{"q', "index": 1}
    metadata = {**ANTHROPIC, "stop_reason": "max_tokens"}
    for cut in (begun, THOUGHT):
        sent = repair_tool_pairs(
            history(AIMessage([{"type": "text", "text": "Half", "index": 0}, cut], response_metadata=metadata))
        )
        assert sent[1].content == [{"type": "text", "text": "Half"}]
        assert repair_tool_pairs(sent) is sent


@pytest.mark.parametrize(
    "answer",
    [
        AIMessage([REASONING, SAID], response_metadata={**OPENAI, "status": "completed"}),
        AIMessage([REASONING, SAID], response_metadata={**OPENAI, "incomplete_details": {"reason": "max_output_tokens"}}),
        AIMessage([THOUGHT], response_metadata={**ANTHROPIC, "stop_reason": "end_turn"}),
        AIMessage([REASONING, SAID]),
        AIMessage([REASONING, SAID], response_metadata={"model_provider": "another"}),
        AIMessage("", response_metadata={**OPENAI, "finish_reason": "length"}, additional_kwargs={"audio": {"id": "a1"}}),
        AIMessage("", response_metadata={**OPENAI, "finish_reason": "length"}, additional_kwargs={"refusal": "No."}),
        AIMessage("Words", response_metadata=OPENAI),
    ],
)
def test_whatever_came_to_its_end_or_says_something_is_sent_as_it_is(answer: AIMessage) -> None:
    """Also an answer of which it is not known how it ended, and one that ran into its limit behind its first word."""
    given = history(answer)
    assert repair_tool_pairs(given) is given
