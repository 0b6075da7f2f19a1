"""Spans of a run, sent by an exporter of the OpenTelemetry SDK."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Any, Protocol
from urllib.parse import urlsplit, urlunsplit

from ..errors import ExtraMissing, InvalidArgument
from ..journal.run_journal import RunJournal
from .otlp_json import SCOPE
from .spans import Span, SpanReader


class SpanExporter(Protocol):
    """An exporter of `opentelemetry-sdk`."""

    def export(self, spans: Any) -> Any:
        """Send spans, and return a result that is named SUCCESS or FAILURE."""

    def shutdown(self) -> None:
        """Close the exporter."""


def export_run(
    journal: RunJournal,
    run_id: str,
    exporter: SpanExporter,
    *,
    follow: bool = False,
    content: bool = False,
    service: str = "langchain",
) -> int:
    """Send the spans of a run to an exporter of `opentelemetry-sdk`, and return their number.

    `follow`: send each span when it ends, until the run has ended; any process can do this. Without it, send what is there.
    Then a run that has not ended is shown up to its last event. A second export sends the same spans, with the same ids.
    `content`: also send what was said. `service` is the `service.name` of the resource. Raise `RunNotFound` if the journal
    has no such run, and `InvalidArgument` if the exporter does not take the spans.
    """
    reader, sent = SpanReader(run_id, content=content), 0
    events = journal.follow(run_id) if follow else journal.read(run_id)
    waiting: list[Span] = []
    for event in events:
        waiting += reader.read(event)
        if follow and waiting:
            sent += _send(exporter, waiting, service)
            waiting = []
    return sent + _send(exporter, [*waiting, *reader.finish()], service)


def http_exporter(endpoint: str) -> SpanExporter:
    """Return an exporter that sends OTLP over HTTP. An `endpoint` without a path gets the usual one, ``/v1/traces``. Headers
    come from the environment, as ``OTEL_EXPORTER_OTLP_HEADERS``."""
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise InvalidArgument(name="endpoint", expected="a URL such as 'http://localhost:4318'", value=endpoint)
    if parts.path in ("", "/"):
        endpoint = urlunsplit(parts._replace(path="/v1/traces"))
    module = _import("opentelemetry.exporter.otlp.proto.http.trace_exporter", "opentelemetry-exporter-otlp-proto-http")
    exporter: SpanExporter = module.OTLPSpanExporter(endpoint=endpoint)
    return exporter


def _send(exporter: SpanExporter, spans: Iterable[Span], service: str) -> int:
    ready = [_readable(span, service) for span in spans]
    if ready and exporter.export(ready).name != "SUCCESS":
        raise InvalidArgument(name="exporter", expected="one that takes spans; its log says why it does not", value=exporter)
    return len(ready)


def _readable(span: Span, service: str) -> Any:
    api = _import("opentelemetry.trace", "opentelemetry-sdk")
    sdk = _import("opentelemetry.sdk.trace", "opentelemetry-sdk")
    resources = _import("opentelemetry.sdk.resources", "opentelemetry-sdk")
    scope = _import("opentelemetry.sdk.util.instrumentation", "opentelemetry-sdk").InstrumentationScope(SCOPE)
    code = api.StatusCode.UNSET if span.error is None else api.StatusCode.ERROR
    trace = int.from_bytes(span.trace_id, "big")

    def place(id: bytes) -> Any:
        flags = api.TraceFlags(api.TraceFlags.SAMPLED)
        return api.SpanContext(trace, int.from_bytes(id, "big"), is_remote=False, trace_flags=flags)

    return sdk.ReadableSpan(
        name=span.name,
        context=place(span.span_id),
        parent=None if span.parent_id is None else place(span.parent_id),
        resource=resources.Resource({"service.name": service}),
        attributes=dict(span.attributes),
        kind=api.SpanKind[span.kind.upper()],
        instrumentation_scope=scope,
        status=api.Status(code, span.error),
        start_time=span.start,
        end_time=span.end,
    )


def _import(module: str, package: str) -> Any:
    try:
        return import_module(module)
    except ImportError as exc:
        raise ExtraMissing(what="Exporting spans", package=package, extra="otel") from exc
