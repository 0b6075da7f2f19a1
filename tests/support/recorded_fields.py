"""The fields of the frames that the reference server sent, by event, as recorded; nested ones with a dot.

What an application puts in (state, arguments, metadata of its own) is left out.
"""

from __future__ import annotations

FIELDS: dict[str, str] = {
    "checkpoints": (
        "config config.configurable config.configurable.checkpoint_id config.configurable.checkpoint_ns "
        "config.configurable.run_id config.configurable.thread_id metadata metadata.parents metadata.parents. "
        "metadata.source metadata.step next parent_config parent_config.configurable "
        "parent_config.configurable.checkpoint_id parent_config.configurable.checkpoint_ns "
        "parent_config.configurable.run_id parent_config.configurable.thread_id tasks tasks[].id tasks[].interrupts "
        "tasks[].name tasks[].state tasks[].state.configurable tasks[].state.configurable.checkpoint_ns "
        "tasks[].state.configurable.thread_id values"
    ),
    "debug checkpoint": (
        "payload payload.checkpoint payload.checkpoint.checkpoint_id payload.checkpoint.checkpoint_ns "
        "payload.checkpoint.thread_id payload.config payload.config.configurable "
        "payload.config.configurable.checkpoint_id payload.config.configurable.checkpoint_ns "
        "payload.config.configurable.run_id payload.config.configurable.thread_id payload.metadata "
        "payload.metadata.parents payload.metadata.source payload.metadata.step payload.next payload.parent_checkpoint "
        "payload.parent_checkpoint.checkpoint_id payload.parent_checkpoint.checkpoint_ns "
        "payload.parent_checkpoint.thread_id payload.parent_config payload.parent_config.configurable "
        "payload.parent_config.configurable.checkpoint_id payload.parent_config.configurable.checkpoint_ns "
        "payload.parent_config.configurable.run_id payload.parent_config.configurable.thread_id payload.tasks "
        "payload.tasks[].id payload.tasks[].interrupts payload.tasks[].name payload.tasks[].state payload.values step "
        "timestamp type"
    ),
    "debug task": (
        "payload payload.id payload.input payload.metadata payload.metadata.graph_id payload.metadata.run_id "
        "payload.name payload.triggers step timestamp type"
    ),
    "debug task_result": (
        "payload payload.error payload.id payload.interrupts payload.name payload.result step timestamp type"
    ),
    "error": "error message",
    "events on_chain_end": (
        "data data.input data.output data.output.messages event metadata metadata.graph_id "
        "metadata.langgraph_checkpoint_ns metadata.langgraph_node metadata.langgraph_step metadata.run_id "
        "metadata.thread_id name parent_ids run_id tags"
    ),
    "events on_chain_start": (
        "data data.input event metadata metadata.graph_id metadata.langgraph_checkpoint_ns metadata.langgraph_node "
        "metadata.langgraph_step metadata.run_id metadata.thread_id name parent_ids run_id tags"
    ),
    "events on_chain_stream": (
        "data data.chunk data.chunk.messages event metadata metadata.graph_id metadata.langgraph_checkpoint_ns "
        "metadata.langgraph_node metadata.langgraph_step metadata.run_id metadata.thread_id name parent_ids run_id tags"
    ),
    "events on_chat_model_end": (
        "data data.input data.output data.output.additional_kwargs data.output.content data.output.id "
        "data.output.invalid_tool_calls data.output.name data.output.response_metadata data.output.tool_calls "
        "data.output.tool_calls[].args data.output.tool_calls[].id data.output.tool_calls[].name "
        "data.output.tool_calls[].type data.output.type data.output.usage_metadata event metadata "
        "metadata.checkpoint_ns metadata.graph_id metadata.langgraph_checkpoint_ns metadata.langgraph_node "
        "metadata.langgraph_step metadata.ls_model_type metadata.run_id metadata.thread_id name parent_ids run_id tags"
    ),
    "events on_chat_model_start": (
        "data data.input event metadata metadata.checkpoint_ns metadata.graph_id metadata.langgraph_checkpoint_ns "
        "metadata.langgraph_node metadata.langgraph_step metadata.ls_model_type metadata.run_id metadata.thread_id name "
        "parent_ids run_id tags"
    ),
    "events on_chat_model_stream": (
        "data data.chunk data.chunk.additional_kwargs data.chunk.chunk_position data.chunk.content data.chunk.id "
        "data.chunk.invalid_tool_calls data.chunk.name data.chunk.response_metadata data.chunk.tool_call_chunks "
        "data.chunk.tool_call_chunks[].args data.chunk.tool_call_chunks[].id data.chunk.tool_call_chunks[].index "
        "data.chunk.tool_call_chunks[].name data.chunk.tool_call_chunks[].type data.chunk.tool_calls "
        "data.chunk.tool_calls[].args data.chunk.tool_calls[].id data.chunk.tool_calls[].name "
        "data.chunk.tool_calls[].type data.chunk.type data.chunk.usage_metadata event metadata metadata.checkpoint_ns "
        "metadata.graph_id metadata.langgraph_checkpoint_ns metadata.langgraph_node metadata.langgraph_step "
        "metadata.ls_model_type metadata.run_id metadata.thread_id name parent_ids run_id tags"
    ),
    "messages AIMessageChunk": (
        "additional_kwargs chunk_position content id invalid_tool_calls name response_metadata tool_call_chunks "
        "tool_call_chunks[].args tool_call_chunks[].id tool_call_chunks[].index tool_call_chunks[].name "
        "tool_call_chunks[].type tool_calls tool_calls[].args tool_calls[].id tool_calls[].name tool_calls[].type type "
        "usage_metadata"
    ),
    "messages meta": (
        "checkpoint_ns graph_id langgraph_checkpoint_ns langgraph_node langgraph_step ls_model_type run_id thread_id"
    ),
    "messages tool": "content id name status tool_call_id type",
    "messages/complete": (
        "[].additional_kwargs [].artifact [].content [].id [].name [].response_metadata [].status [].tool_call_id [].type"
    ),
    "messages/metadata": (
        "metadata metadata.checkpoint_ns metadata.graph_id metadata.langgraph_checkpoint_ns metadata.langgraph_node "
        "metadata.langgraph_step metadata.ls_model_type metadata.run_id metadata.thread_id"
    ),
    "messages/partial": (
        "[].additional_kwargs [].content [].id [].invalid_tool_calls [].name [].response_metadata [].tool_calls [].type "
        "[].usage_metadata"
    ),
    "metadata": "attempt run_id",
    "tasks end": "error id interrupts name result",
    "tasks start": "id input metadata metadata.graph_id metadata.run_id name triggers",
}
