"""Pure: spans in OTLP's JSON format, which collectors read from files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from .spans import Span

SCOPE: Final = "langchain_runjournal"
_KINDS: Final = {"internal": 1, "client": 3}
_ERROR: Final = 2


def otlp_lines(spans: Iterable[Span], *, service: str = "langchain") -> str:
    """Return spans as one line of OTLP JSON, with a newline: what the OpenTelemetry Collector's file receiver reads."""
    found = [_span(one) for one in spans]
    if not found:
        return ""
    resource = {"attributes": _attributes({"service.name": service})}
    line = {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": {"name": SCOPE}, "spans": found}]}]}
    return json.dumps(line, ensure_ascii=True, separators=(",", ":")) + "\n"


def _span(span: Span) -> dict[str, Any]:
    parent = {} if span.parent_id is None else {"parentSpanId": span.parent_id.hex()}
    status = {} if span.error is None else {"status": {"code": _ERROR, "message": span.error}}
    return {
        "traceId": span.trace_id.hex(),
        "spanId": span.span_id.hex(),
        **parent,
        "name": span.name,
        "kind": _KINDS[span.kind],
        "startTimeUnixNano": str(span.start),
        "endTimeUnixNano": str(span.end),
        "attributes": _attributes(span.attributes),
        **status,
    }


def _attributes(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in values.items()]


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, list):
        return {"arrayValue": {"values": [_value(one) for one in value]}}
    return {"stringValue": str(value)}
