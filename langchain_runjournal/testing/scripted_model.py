"""A chat model that streams a script as a provider does. Public as `testing.ScriptedChatModel`."""

from __future__ import annotations

import asyncio
import inspect
import json
import math
import re
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from langchain_core.caches import BaseCache
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.language_models.chat_models import agenerate_from_stream, generate_from_stream
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import PrivateAttr

from ..common.arguments import options
from ..errors import InvalidArgument, RequestRefused, ScriptEnded, ToolPairBroken
from ..guard import repair_tool_pairs

if TYPE_CHECKING:
    from typing_extensions import Self

_WORDS: Final = re.compile(r"\s*\S+\s*|\s+")
_FRAGMENT: Final = 12  # characters of the arguments of a tool call that come in one chunk


@dataclass(frozen=True, slots=True)
class Reasoning:
    """The thinking of the model before its text: a content block of its own, streamed word by word."""

    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """A tool request. A str as `args` is streamed unchanged, even if it is not JSON. `id`: None for a new one."""

    name: str
    args: Mapping[str, Any] | str
    id: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.args, str):
            object.__setattr__(self, "args", _checked_args(self.args))


@dataclass(frozen=True, slots=True)
class Wait:
    """A pause of so many seconds in the stream."""

    seconds: float

    def __post_init__(self) -> None:
        _check_time("Wait", self.seconds)


Step: TypeAlias = str | Reasoning | Call | Wait | BaseException | Callable[[], object]
Answer: TypeAlias = str | Sequence[Step]
Script: TypeAlias = Sequence[Answer] | Callable[[list[BaseMessage]], Answer]
_Output: TypeAlias = AIMessageChunk | Wait | BaseException | Callable[[], object]

_STEPS = "a str, Reasoning, Call, Wait, an exception (an instance, not its class), or a function to call"


class _Counter:
    """A counter 0, 1, 2 ... for many threads. A copy continues from the number of the original."""

    def __init__(self, last: int = -1) -> None:
        self._last = last
        self._lock = threading.Lock()

    def next(self, least: int = 0) -> int:
        with self._lock:
            self._last = max(self._last + 1, least)
            return self._last

    def __reduce__(self) -> tuple[Any, ...]:
        return _Counter, (self._last,)


class ScriptedChatModel(BaseChatModel):
    """A chat model that streams a script, without a key and without a network: to test Stop buttons, and for demonstrations.

    `script` has one answer for each call of the model; or it is a function that gets the messages and returns the answer. An
    answer is a text, or a list of steps in the order in which the model streams them::

        ScriptedChatModel([
            [Reasoning("Both."), "Let me look. ", Call("weather", {"city": "Oslo"}), Call("weather", {"city": "Rome"})],
            ["Sunny in ", Wait(0.5), "both."],
            ["It will ", ConnectionError("the provider dropped the stream")],
        ])

    The model streams a text word by word, the arguments of a tool call in fragments, and the usage with the last chunk. It
    raises an exception at its place in the list. It calls a function there without arguments, and awaits what the function
    returns if that is awaitable: ``asyncio.Event().wait`` holds the answer until the test sets the event, without a sleep.

    `pace`: seconds between two chunks. `strict`: refuse, with `RequestRefused`, what providers refuse: no messages, a tool
    request without its result right behind it, a result without its request. `usage=False`: report no usage. `blocks`: text
    comes as content blocks, as it always does if the answer has `Reasoning`. After the last answer of the script, a call
    raises `ScriptEnded`.

    A deep copy or an unpickled copy has its own position in the script, which starts at that of the original. A shallow copy
    shares the position of the original.
    """

    script: Any
    pace: float = 0.0
    strict: bool = True
    usage: bool = True
    blocks: bool = False
    model_name: str = "scripted"
    # LangChain's default is None: then a global cache would answer instead, even with the answer of another script.
    cache: BaseCache | bool | None = False
    _requests: list[list[BaseMessage]] = PrivateAttr(default_factory=list)
    _answered: _Counter = PrivateAttr(default_factory=_Counter)
    _ids: _Counter = PrivateAttr(default_factory=_Counter)

    def __init__(self, script: Script, **fields: Any) -> None:
        options("ScriptedChatModel", sorted(fields), list(type(self).model_fields), what="field")
        if inspect.iscoroutinefunction(script):
            expected = "a list of answers, or a function that gives one without being awaited"
            raise InvalidArgument(name="script", expected=expected, value=script)
        if not callable(script):
            _check(script)
        _check_time("pace", fields.get("pace", 0.0))
        super().__init__(**{"script": script, **fields})

    @property
    def requests(self) -> list[list[BaseMessage]]:
        """The messages of each call of the model, refused ones included. The newest call is last.

        They are copies made at the call, because programs and frameworks change their messages in place.
        """
        return [list(sent) for sent in self._requests]

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        # The copies share the script: the events that it sets and awaits are those of the test.
        memo = {} if memo is None else memo
        memo[id(self.script)] = self.script
        return super().__deepcopy__(memo)

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(
        self, tools: Sequence[Any], *, tool_choice: str | None = None, **kwargs: Any
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Return the same model with tools. The script decides whether the model requests them."""
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], tool_choice=tool_choice, **kwargs)

    def _stream(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> Iterator[ChatGenerationChunk]:
        for step in self._steps(messages):
            if isinstance(step, AIMessageChunk):
                yield ChatGenerationChunk(message=step)
                if self.pace:
                    time.sleep(self.pace)
            elif isinstance(step, Wait):
                time.sleep(step.seconds)
            elif (waiting := _run_step(step)) is not None:
                if inspect.iscoroutine(waiting):
                    waiting.close()  # else Python warns later, from another place, that it was never awaited
                raise InvalidArgument(name="a step of the script", expected="synchronous, as the call is", value=step)

    async def _astream(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> AsyncIterator[ChatGenerationChunk]:
        for step in self._steps(messages):
            if isinstance(step, AIMessageChunk):
                yield ChatGenerationChunk(message=step)
                await asyncio.sleep(self.pace)  # also without a pace: a real call can be cancelled between two chunks
            elif isinstance(step, Wait):
                await asyncio.sleep(step.seconds)
            elif (waiting := _run_step(step)) is not None:
                await waiting

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        return generate_from_stream(self._stream(messages))

    async def _agenerate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        return await agenerate_from_stream(self._astream(messages))

    def _steps(self, messages: list[BaseMessage]) -> Iterator[_Output]:
        self._requests.append([message.model_copy(update=_copied(vars(message))) for message in messages])
        if self.strict:
            _refuse_broken(messages)
        answer = self._answer(messages)
        steps: Sequence[Step] = [answer] if isinstance(answer, str) else answer
        in_blocks = self.blocks or self.output_version == "v1" or any(isinstance(step, Reasoning) for step in steps)
        # The ids of calls differ between answers, and are the same in each run of a test. They count from the length of the
        # history at least, so that they differ as well if a new process continues a thread.
        number = self._ids.next(least=len(messages))
        chunks, calls = 0, 0
        for step, index in _numbered(steps, in_blocks):
            if isinstance(step, Call):
                for chunk in _stream_request(step, index, f"call_{number}_{calls}", in_blocks):
                    chunks += 1
                    yield chunk
                calls += 1
            elif isinstance(step, (str, Reasoning)):
                for chunk in _stream_text(step, index if in_blocks else None):
                    chunks += 1
                    yield chunk
            else:
                yield step
        last = _chunk(in_blocks, chunk_position="last")
        last.response_metadata = {"finish_reason": "tool_calls" if calls else "stop", "model_name": self.model_name}
        if self.usage:
            given = sum(len(_WORDS.findall(message.text)) for message in messages)
            last.usage_metadata = {"input_tokens": given, "output_tokens": chunks, "total_tokens": given + chunks}
        yield last

    def _answer(self, messages: list[BaseMessage]) -> Answer:
        answer: Answer
        if callable(self.script):
            answer = self.script(messages)
            _check([answer])
            return answer
        number = self._answered.next()
        if number >= len(self.script):
            raise ScriptEnded(answers=len(self.script))
        answer = self.script[number]
        return answer


def _run_step(step: BaseException | Callable[[], object]) -> Awaitable[object] | None:
    if isinstance(step, BaseException):
        raise step
    done = step()
    return done if inspect.isawaitable(done) else None


def _numbered(steps: Sequence[Step], in_blocks: bool) -> Iterator[tuple[Step, int]]:
    """Yield each step with the number of its block. A block ends where another kind begins, not at a pause or a function.

    Providers that send blocks number all of them in one sequence. A plain text has no number: LangChain gives it the number
    0, and langchain-core 1.4 loses the text if a call has that number, too.
    """
    index, kind = -1 if in_blocks else 0, ""
    for step in steps:
        if isinstance(step, Call):
            index, kind = index + 1, ""
        elif in_blocks and isinstance(step, (str, Reasoning)) and _kind(step) != kind:
            index, kind = index + 1, _kind(step)
        yield step, index


def _kind(step: str | Reasoning) -> str:
    return "reasoning" if isinstance(step, Reasoning) else "text"


def _stream_text(step: str | Reasoning, index: int | None) -> Iterator[AIMessageChunk]:
    kind = _kind(step)
    for word in _WORDS.findall(step.text if isinstance(step, Reasoning) else step):
        yield AIMessageChunk(content=word if index is None else [{"type": kind, kind: word, "index": index}])


def _stream_request(call: Call, index: int, id: str, in_blocks: bool) -> Iterator[AIMessageChunk]:
    """Yield the name of a tool request, then its arguments in fragments."""
    args = call.args if isinstance(call.args, str) else json.dumps(call.args)
    yield _chunk(in_blocks, tool_call_chunks=[tool_call_chunk(name=call.name, args="", id=call.id or id, index=index)])
    for at in range(0, len(args), _FRAGMENT):
        yield _chunk(in_blocks, tool_call_chunks=[tool_call_chunk(args=args[at : at + _FRAGMENT], index=index)])


def _chunk(in_blocks: bool, **fields: Any) -> AIMessageChunk:
    """Return a chunk without text: among blocks, an empty text would be one more block."""
    return AIMessageChunk(content=[] if in_blocks else "", **fields)


def _copied(value: Any) -> Any:
    """Copy as deep as the message is JSON. Anything else in it (the artifact of a tool) may not be copyable."""
    if isinstance(value, dict):
        return {key: _copied(one) for key, one in value.items()}
    return [_copied(one) for one in value] if isinstance(value, list) else value


def _check(script: Any) -> None:
    if isinstance(script, str) or not isinstance(script, Sequence):
        raise InvalidArgument(name="script", expected="a list of answers, or a function that gives one", value=script)
    for answer in script:
        for step in [answer] if isinstance(answer, str) or not isinstance(answer, Sequence) else answer:
            is_step = isinstance(step, (str, Reasoning, Call, Wait, BaseException)) or callable(step)
            if not is_step or inspect.isclass(step):
                raise InvalidArgument(name="a step of the script", expected=_STEPS, value=step)
        if not isinstance(answer, Sequence):
            raise InvalidArgument(name="an answer of the script", expected="a str or a list of steps", value=answer)


def _checked_args(args: Any) -> dict[str, Any]:
    try:
        json.dumps(plain := dict(args))
    except (TypeError, ValueError) as problem:
        expected = "a mapping that JSON can hold, or a str"
        raise InvalidArgument(name="the args of a Call", expected=expected, value=args) from problem
    return plain


def _check_time(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        raise InvalidArgument(name=name, expected="a number of seconds, 0 or more", value=value)


def _refuse_broken(messages: list[BaseMessage]) -> None:
    if not messages:
        raise RequestRefused(problems="there are no messages")
    try:
        whole = repair_tool_pairs(messages, dangling="raise", orphans="raise")
    except ToolPairBroken as broken:
        raise RequestRefused(problems="; ".join(broken.problems)) from None
    if whole is not messages:
        raise RequestRefused(
            problems="a result does not stand right behind the message that asks for it, or stands there twice"
        )
