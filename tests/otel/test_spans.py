"""A run as spans: the calls by the conventions for generative AI, a cut-off call as an interruption."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from langchain_runjournal import Event, RunJournal, attach, because
from langchain_runjournal.errors import ExtraMissing, InvalidArgument
from langchain_runjournal.events import Kind
from langchain_runjournal.otel import Span, SpanReader, export_run, http_exporter, otlp_lines, spans_of
from tests.support.command_line import run
from tests.support.cut_runs import Place, agent, needed

RUN = "run-1"
USAGE = {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10}
TEXTS = ["secret one", "secret two", "secret three", "secret four", "secret five"]


def event(seq: int, kind: Kind, call_id: str | None = None, **data: Any) -> Event:
    return Event(run_id=RUN, seq=seq, kind=kind, at=100 + seq / 10, call_id=call_id, data=data)


def ai(text: str) -> dict[str, Any]:
    metadata = {"finish_reason": "tool_calls", "model_name": "m-2026"}
    calls = [{"id": "t1", "name": "book", "args": {"city": TEXTS[1]}}]
    fields = {"content": text, "usage_metadata": USAGE, "response_metadata": metadata, "tool_calls": calls}
    return {"type": "ai", "data": fields}


EVENTS = [
    event(1, "run.start", thread_id="thread-1", name="Travel", metadata={}),
    event(2, "llm.human.input", message={"type": "human", "data": {"content": TEXTS[0]}}),
    event(3, "llm.start", "m1", model="m", provider="google_genai", role="answer", node="model", attempt=1),
    event(4, "llm.ai.response", "m1", message=ai(TEXTS[3])),
    event(5, "tool.start", "c1", tool_call_id="t1", name="book", args={"city": TEXTS[1]}),
    event(6, "llm.start", "m2", model="m", role="subagent", inside="t1"),
    event(7, "llm.ai.delta", "m2", text=TEXTS[2]),
    event(8, "llm.ai.partial", "m2", cause="stop"),
    event(9, "tool.start", "c2", tool_call_id="t2", name="pay", args={}),
    event(10, "tool.error", "c2", tool_call_id="t2", error="ValueError: no card"),
    event(11, "tool.start", "c3", tool_call_id="t3", name="look", args={}),
    event(12, "llm.tool.result", "c3", message={"type": "tool", "data": {"content": TEXTS[4]}}),
    event(13, "run.end", status="interrupted", cause="stop"),
]


def by_name(spans: list[Span]) -> dict[str, Span]:
    return {f"{span.name} {span.attributes.get('runjournal.call.id', '')}".strip(): span for span in spans}


def test_a_run_as_spans() -> None:
    """Names, kinds, times, nesting and attributes are those of the conventions."""
    spans = by_name(spans_of(RUN, EVENTS))
    assert set(spans) == {
        "chat m m1",
        "chat m m2",
        "execute_tool book c1",
        "execute_tool pay c2",
        "execute_tool look c3",
        "invoke_agent Travel",
    }
    root, model, tool = spans["invoke_agent Travel"], spans["chat m m1"], spans["execute_tool book c1"]
    assert root.parent_id is None
    assert (model.parent_id, tool.parent_id) == (root.span_id, root.span_id)
    assert spans["chat m m2"].parent_id == tool.span_id
    assert {len(span.trace_id) for span in spans.values()} == {16}
    assert len({span.span_id for span in spans.values()}) == 6
    assert (model.start, model.end, model.kind) == (100_300_000_000, 100_400_000_000, "client")
    assert dict(model.attributes) == {
        "runjournal.call.id": "m1",
        "gen_ai.conversation.id": "thread-1",
        "gen_ai.provider.name": "gcp.gemini",
        "gen_ai.request.model": "m",
        "runjournal.role": "answer",
        "runjournal.attempt": 1,
        "gen_ai.operation.name": "chat",
        "runjournal.node": "model",
        "runjournal.status": "completed",
        "gen_ai.response.model": "m-2026",
        "gen_ai.response.finish_reasons": ["tool_calls"],
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.usage.output_tokens": 3,
    }
    assert root.attributes["gen_ai.operation.name"] == "invoke_agent"


def test_an_interruption_is_no_error() -> None:
    """A call that was cut off, a tool that was open, and their run say so and why. An error is one."""
    spans = by_name(spans_of(RUN, EVENTS))
    for name in ("chat m m2", "execute_tool book c1", "invoke_agent Travel"):
        assert spans[name].error is None
        assert spans[name].attributes["runjournal.status"] == "interrupted"
        assert spans[name].attributes["runjournal.cause"] == "stop"
    assert spans["chat m m2"].attributes["gen_ai.response.finish_reasons"] == ["interrupted"]
    assert spans["execute_tool pay c2"].error == "ValueError: no card"
    assert spans["execute_tool pay c2"].attributes["error.type"] == "ValueError"


def test_content_is_asked_for() -> None:
    """Without `content`, no word of a user, a model or a tool is in the spans; with it, also the partial answer."""
    assert "secret" not in otlp_lines(spans_of(RUN, EVENTS))
    spans = by_name(spans_of(RUN, EVENTS, content=True))
    assert all(text in otlp_lines(spans.values()) for text in TEXTS)
    said = json.loads(str(spans["chat m m2"].attributes["gen_ai.output.messages"]))
    assert said == [{"role": "assistant", "parts": [{"type": "text", "content": TEXTS[2]}], "finish_reason": "interrupted"}]


@pytest.mark.parametrize("ends", range(1, len(EVENTS) + 1))
def test_any_beginning_of_a_run_gives_whole_spans(ends: int) -> None:
    """A run that is read live has the spans of its calls as they end, each once, and a root at the end."""
    reader = SpanReader(RUN)
    found = [span for one in EVENTS[:ends] for span in reader.read(one)]
    found += reader.finish()
    assert not reader.finish()
    assert len({span.span_id for span in found}) == len(found)
    assert found[-1].name == "invoke_agent Travel"
    begun = sum(one.kind in ("llm.start", "tool.start") for one in EVENTS[:ends])
    assert len(found) == begun + 1
    assert all(span.end >= span.start for span in found)


async def stopped(journal: RunJournal, place: Place) -> str:
    """Run an agent and cut it off."""
    reached = asyncio.Event()
    graph = attach(agent(place, reached), journal)
    task = asyncio.create_task(read_all(graph))
    waiting = asyncio.create_task(reached.wait())
    await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    task.cancel()
    await asyncio.wait([task])
    return (await journal.aruns())[0].run_id


async def read_all(graph: Any) -> None:
    with because("timeout"):
        async for _ in graph.astream({"messages": [("user", "hi")]}, stream_mode="messages"):
            pass


def test_the_command_writes_a_file(tmp_path: Path) -> None:
    """One line of OTLP JSON a run, without any further package."""
    url = str(tmp_path / "runs.db")
    with RunJournal(url) as journal:
        run_id = asyncio.run(stopped(journal, "model"))
    file = tmp_path / "spans.jsonl"
    done = run("--journal", url, "export", run_id, "--otlp", str(file), "--content")
    assert done.exit_code == 0, done.output
    (line,) = file.read_text().splitlines()
    spans = json.loads(line)["resourceSpans"][0]["scopeSpans"][0]["spans"]
    assert [span["name"].split()[0] for span in spans] == ["chat", "invoke_agent"]
    assert spans[0]["parentSpanId"] == spans[1]["spanId"]
    told = {one["key"]: one["value"].get("stringValue") for one in spans[0]["attributes"]}
    assert "one two " in str(told["gen_ai.output.messages"])
    assert (told["runjournal.status"], told["runjournal.cause"]) == ("interrupted", "timeout")


@pytest.mark.parametrize("options", [["--otlp", "x", "-o", "y"], ["--content"]])
def test_wrong_usage(options: list[str], tmp_path: Path) -> None:
    """Options that contradict each other are refused."""
    done = run("export", "--all", *options, "--journal", str(tmp_path / "runs.db"))
    assert done.exit_code == 2


def test_a_wrong_endpoint_is_refused() -> None:
    """The error says what an endpoint looks like."""
    with pytest.raises(InvalidArgument, match="http://localhost:4318"):
        http_exporter("grpc://localhost:4317")


def test_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the packages, the error says what to install."""
    import sys

    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(ExtraMissing, match="otel"):
        http_exporter("http://localhost:4318")


@pytest.mark.parametrize("follow", [False, True])
def test_the_real_sdk(follow: bool) -> None:
    """The SDK's exporter gets the same spans, afterwards and live, with parents that it knows."""
    memory = needed("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    exporter = memory.InMemorySpanExporter()
    with RunJournal(":memory:") as journal:
        run_id = asyncio.run(stopped(journal, "tool"))
        assert export_run(journal, run_id, exporter, follow=follow, content=True) == 3
    spans = {span.name.split()[0]: span for span in exporter.get_finished_spans()}
    root = spans["invoke_agent"]
    assert spans["execute_tool"].parent.span_id == root.context.span_id
    assert spans["execute_tool"].attributes["runjournal.cause"] == "timeout"
    assert spans["execute_tool"].status.status_code.name == "UNSET"
    assert root.resource.attributes["service.name"] == "langchain"


def test_over_http() -> None:
    """The OTLP exporter sends what a collector can parse."""
    needed("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    import gzip
    import threading
    from http.server import BaseHTTPRequestHandler, HTTPServer

    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    got: list[tuple[str, bytes]] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got.append((self.path, gzip.decompress(body) if self.headers["Content-Encoding"] == "gzip" else body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with RunJournal(":memory:") as journal:
            run_id = asyncio.run(stopped(journal, "model"))
            exporter = http_exporter(f"http://127.0.0.1:{server.server_port}")
            assert export_run(journal, run_id, exporter) == 2
            exporter.shutdown()
    finally:
        server.shutdown()
        server.server_close()
    ((path, body),) = got
    assert path == "/v1/traces"
    request = ExportTraceServiceRequest.FromString(body)
    assert len(request.resource_spans[0].scope_spans[0].spans) == 2
