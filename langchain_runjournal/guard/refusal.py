"""The exception that refuses a tool call, in the form that `ToolNode` handles, and the wrappers for a `ToolNode`.

Rule: only code that refuses a call or uses a wrapper imports this module, because it needs LangGraph's prebuilt nodes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from langchain_core.messages import ToolMessage
from langgraph.prebuilt.tool_node import ToolInvocationError

from ..errors import CallCut
from ..messages.cut_answers import decided_in, known_of
from ..messages.cut_calls import find_cut
from ..messages.task_messages import state_messages
from ..messages.tool_pairs import is_ai, requests
from ..messages.tool_results import CallKnowledge, answer, known_text

if TYPE_CHECKING:
    from langgraph.prebuilt.tool_node import ToolCallRequest
    from langgraph.types import Command


class CutCallRefused(CallCut, ToolInvocationError):
    """{said} (Call {call_id} of tool {tool}.) The tool was not run. `ToolNode` makes a result of this, unless its
    handle_tool_errors says otherwise. Where a node calls tools by itself, catch it there. Give the model a ToolMessage."""

    is_refusal = True

    def __init__(self, **values: Any) -> None:
        # Without `super`, because the two kinds of exception take different arguments.
        self.values = values
        Exception.__init__(self, self._text(values))
        # `ToolNode` reads this: by default it makes a result of this message and continues.
        self.message = values["said"]
        self.tool_name = values["tool"]
        self.tool_kwargs = values["arguments"]
        self.filtered_errors = None


def refusal(known: CallKnowledge, tool: str, call_id: str | None, args: Any) -> CutCallRefused:
    """Return the exception to raise instead of running a tool."""
    given = dict(args) if isinstance(args, Mapping) else {}
    return CutCallRefused(said=known_text(known), tool=tool, call_id=call_id, arguments=given)


def refuse_cut_call(
    request: ToolCallRequest, execute: Callable[[ToolCallRequest], ToolMessage | Command[Any]]
) -> ToolMessage | Command[Any]:
    """Run a tool call of a `ToolNode`, unless the answer that asks for it was cut off.

    A call of a cut answer does not run, and the model gets a result that says so. Use ``ToolNode(tools,
    wrap_tool_call=refuse_cut_call, awrap_tool_call=arefuse_cut_call)``.

    The function judges by the message in the state: by a reason such as "length", and by the text of the arguments where the
    adapter keeps it. Only the chunks show an answer that ended early. `ToolPairGuard` and `attach` see the chunks, and
    `attach` refuses such a call in its callback.
    """
    refused = _refused(request)
    return execute(request) if refused is None else refused


async def arefuse_cut_call(
    request: ToolCallRequest, execute: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]]
) -> ToolMessage | Command[Any]:
    """Do the same as :func:`refuse_cut_call`, for `awrap_tool_call`."""
    refused = _refused(request)
    return await execute(request) if refused is None else refused


def _refused(request: ToolCallRequest) -> ToolMessage | None:
    call_id = request.tool_call["id"]
    for message in reversed(state_messages(request.state)):
        if is_ai(message) and any(one.id == call_id for one in requests(message)):
            cut = None if decided_in(message.additional_kwargs) else find_cut(vars(message))
            if cut is None:
                return None
            asked = next(one for one in cut.calls if one.id == call_id)
            return answer(message, asked, known_of(call_id, cut))
    return None
