"""A run of the journal as OpenTelemetry spans, by the semantic conventions for generative AI.

`SpanReader` turns events into spans and needs no further package; `otlp_lines` writes spans in OTLP's JSON format.
`export_run` sends the spans of a run to an exporter of `opentelemetry-sdk`, afterwards or while the run is going on. This
room imports `journal` and `messages`.
"""

from __future__ import annotations

from .exporter import export_run, http_exporter
from .otlp_json import otlp_lines
from .spans import Span, SpanReader, spans_of

__all__ = ["Span", "SpanReader", "export_run", "http_exporter", "otlp_lines", "spans_of"]
