"""The real tracers: LangSmith, Langfuse, OpenInference and OpenLLMetry, each with an exporter in memory."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.cut_runs import Cut, Place, cut_run, needed

CUTS: list[tuple[Place, Cut]] = [
    ("model", "cancel"),
    ("model", "cancel twice"),
    ("model", "close"),
    ("model", "time limit in the node"),
    ("tool", "cancel"),
    ("tool", "cancel twice"),
]
CASES = pytest.mark.parametrize(("place", "cut"), CUTS)


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No tracer complains of an end that it does not know."""
    caplog.set_level(logging.WARNING)
    yield
    assert not [one.getMessage() for one in caplog.records if "callback" in one.getMessage()]


@pytest.fixture
def exporter() -> Any:
    """Spans in memory."""
    memory = needed("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    return memory.InMemorySpanExporter()


def provider_of(exporter: Any) -> Any:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor

    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider


def check(text: str, place: Place, cut: Cut) -> None:
    """The text of a span holds what the call said, and why it ended."""
    assert place == "tool" or "one two " in text, text
    assert "interrupted" in text, text
    assert cut == "time limit in the node" or "superseded" in text, text


def span_of(exporter: Any, name: str) -> Any:
    found = [span for span in exporter.get_finished_spans() if name in span.name]
    assert len(found) == 1, [span.name for span in exporter.get_finished_spans()]
    return found[0]


def name_of(place: Place) -> str:
    return "HaltingModel" if place == "model" else "book"


@CASES
def test_langsmith(place: Place, cut: Cut) -> None:
    """LangSmith's client gets an update that ends the call, without an error."""
    needed("langsmith")
    from langchain_core.tracers import LangChainTracer
    from langsmith import Client

    class Memory(Client):
        def __init__(self) -> None:
            super().__init__(api_url="http://127.0.0.1:1", api_key="none", auto_batch_tracing=False)
            self.kept: dict[str, dict[str, Any]] = {}

        def create_run(self, *args: Any, id: Any = None, **fields: Any) -> None:
            self.kept[str(id)] = {"name": args[0] if args else fields.get("name"), **fields}

        def update_run(self, run_id: Any, **fields: Any) -> None:
            self.kept[str(run_id)].update({key: value for key, value in fields.items() if value is not None})

    client = Memory()
    asyncio.run(cut_run(place, cut, [LangChainTracer(client=client)]))
    (run,) = [run for run in client.kept.values() if run["name"] == name_of(place)]
    assert run["end_time"] is not None
    assert run.get("error") is None
    check(json.dumps(run["outputs"], default=str), place, cut)
    assert not [run["name"] for run in client.kept.values() if run.get("end_time") is None]


@CASES
def test_langfuse(place: Place, cut: Cut, exporter: Any) -> None:
    """Langfuse exports the call, with its output and on its usual level."""
    langfuse = needed("langfuse")
    from langfuse.langchain import CallbackHandler
    from opentelemetry.sdk.trace import TracerProvider

    key = f"pk-{place}-{cut}".replace(" ", "-")
    client = langfuse.Langfuse(
        public_key=key,
        secret_key="sk",
        base_url="http://127.0.0.1:1",
        span_exporter=exporter,
        tracer_provider=TracerProvider(),
    )
    asyncio.run(cut_run(place, cut, [CallbackHandler(public_key=key)]))
    client.flush()
    span = span_of(exporter, name_of(place))
    assert span.attributes.get("langfuse.observation.level") in (None, "DEFAULT")
    check(str(span.attributes["langfuse.observation.output"]), place, cut)


@CASES
def test_openinference(place: Place, cut: Cut, exporter: Any) -> None:
    """OpenInference exports the call with the status OK."""
    package = needed("openinference.instrumentation.langchain")
    instrumentor = package.LangChainInstrumentor()
    instrumentor.instrument(tracer_provider=provider_of(exporter))
    try:
        asyncio.run(cut_run(place, cut, []))
    finally:
        instrumentor.uninstrument()
    span = span_of(exporter, name_of(place))
    assert span.status.status_code.name == "OK"
    check(str(span.attributes["output.value"]), place, cut)


@pytest.fixture(scope="module")
def openllmetry() -> Iterator[Any]:
    """OpenLLMetry, which a process can instrument once."""
    package = needed("opentelemetry.instrumentation.langchain")
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, instrumentor = InMemorySpanExporter(), package.LangchainInstrumentor()
    instrumentor.instrument(tracer_provider=provider_of(exporter))
    yield exporter
    instrumentor.uninstrument()


@CASES
def test_openllmetry(place: Place, cut: Cut, openllmetry: Any) -> None:
    """OpenLLMetry exports the call without an error."""
    exporter = openllmetry
    exporter.clear()
    asyncio.run(cut_run(place, cut, []))
    span = span_of(exporter, name_of(place))
    assert span.status.status_code.name != "ERROR"
    check(json.dumps(dict(span.attributes), default=str), place, cut)


def test_without_traces_openinference_has_no_span_of_the_call(exporter: Any) -> None:
    """What this is for: the call is never exported."""
    instrumentor = needed("openinference.instrumentation.langchain").LangChainInstrumentor()
    instrumentor.instrument(tracer_provider=provider_of(exporter))
    try:
        asyncio.run(cut_run("model", "cancel", [], traces=False))
    finally:
        instrumentor.uninstrument()
    assert [span.name for span in exporter.get_finished_spans()] == ["answer", "LangGraph"]


def test_without_traces_openllmetry_loses_the_text(openllmetry: Any) -> None:
    """What this is for: the call ends with its chain, and without what it said."""
    openllmetry.clear()
    asyncio.run(cut_run("model", "cancel", [], traces=False))
    assert "one two " not in json.dumps(dict(span_of(openllmetry, "HaltingModel").attributes), default=str)
