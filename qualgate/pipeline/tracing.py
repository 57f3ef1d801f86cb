"""OpenTelemetry traces of runs: run, job, answer. Nothing is imported unless OTEL_* variables ask for traces, and a
failed trace never affects a run.

The trace id is derived from the run's id, so a resumed run continues its trace. Traces contain no prompts or answers.
"""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from qualgate.errors import QualgateError
from qualgate.errors.extras import needs, pip_install
from qualgate.pipeline.events import Event, Listener
from qualgate.store.plain import storable

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span

ASKED_BY = ("OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
EXPORTERS = ("otlp", "console")
SEND_SECONDS = 5.0  # how long the end of a run waits for its spans to be sent
Warn = Callable[[str], None]


def is_wanted() -> bool:
    """Whether the environment asks for traces, by the OpenTelemetry specification."""
    off = os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or os.environ.get("OTEL_TRACES_EXPORTER") == "none"
    return not off and any(os.environ.get(name) for name in ASKED_BY)


def trace_id(run: str) -> str:
    """Return the trace id of this run: 32 hexadecimal digits."""
    return hashlib.sha256(f"qualgate run {run}".encode()).hexdigest()[:32]


@contextmanager
def traced(observe: Listener, warn: Warn) -> Iterator[Listener]:
    """Yield a listener that forwards to `observe`, and traces if that is wanted. warn: receives one line on failure."""
    try:
        trace = _Trace(_exporter(), warn) if is_wanted() else None
    except (ImportError, QualgateError) as error:
        reason = needs("tracing", "otel") if isinstance(error, ImportError) else error
        warn(f"no traces are made, though OTEL_* asks for them: {reason}")
        trace = None
    if trace is None:
        yield observe
        return

    def hear(event: Event) -> None:
        """Forward the event, then trace it. The first error of tracing ends the trace and never reaches the run."""
        nonlocal broken
        observe(event)
        try:
            if not broken:
                trace.hear(event)
        except Exception as error:  # any error: the run goes on
            broken = True
            warn(f"the trace ends here: {type(error).__name__}: {error}"[:200])

    broken = False
    try:
        yield hear
    except BaseException as error:
        trace.end(type(error).__name__)
        raise
    trace.end("")


def _exporter() -> SpanExporter:
    """Return the exporter that the OTEL_* variables choose, OTLP over HTTP by default. Raises QualgateError for an
    unknown one."""
    kind = os.environ.get("OTEL_TRACES_EXPORTER") or "otlp"
    protocol = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
    if kind not in EXPORTERS:
        raise QualgateError(f"OTEL_TRACES_EXPORTER={kind!r:.40}, expected one of {', '.join(EXPORTERS)}, none")
    if kind == "console":
        from opentelemetry.sdk.trace.export import ConsoleSpanExporter

        return ConsoleSpanExporter(out=sys.stderr)  # stdout is the command's answer
    if protocol == "grpc":
        return _over_grpc()
    if protocol not in (None, "", "http/protobuf"):
        raise QualgateError(f"OTEL_EXPORTER_OTLP_PROTOCOL={protocol!r:.40}, expected one of http/protobuf, grpc")
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter()


def _over_grpc() -> SpanExporter:
    """Return the OTLP exporter over gRPC. Raises QualgateError, with the command to install it, if it is missing."""
    try:
        # Not part of the extra: HTTP does not need gRPC.
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter  # pyrefly: ignore
    except ImportError as error:
        raise QualgateError(
            "OTEL_EXPORTER_OTLP_PROTOCOL=grpc needs gRPC (port 4317); http/protobuf (port 4318) needs nothing more. "
            f"Install it: {pip_install('opentelemetry-exporter-otlp-proto-grpc')}"
        ) from error
    return OTLPSpanExporter()


class _Trace:
    """Trace of one run, from its first event on."""

    def __init__(self, exporter: SpanExporter, warn: Warn) -> None:
        """Open a trace that sends its spans through `exporter`. warn: receives the library's first warning."""
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        self._ids = _ids()
        has_name = os.environ.get("OTEL_SERVICE_NAME") or "service.name=" in os.environ.get(
            "OTEL_RESOURCE_ATTRIBUTES", ""
        )
        resource = Resource.create({} if has_name else {"service.name": "qualgate"})
        self._provider = TracerProvider(resource=resource, id_generator=self._ids, shutdown_on_exit=False)
        _warn_once(warn)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("qualgate")
        self._began = time.time()
        self._run: Span | None = None

    def hear(self, event: Event) -> None:
        """Add the event: open the run's span, note its verdicts, or add a job."""
        if event.what == "begun":
            self._ids.trace = int(trace_id(event.run), 16)
            self._run = self._span("run", self._began, {"run": event.run}, links=_caller_link())
        elif event.what == "ended" and self._run is not None:
            self._run.set_attributes({"qualgate.exit": event.exit or 0, "qualgate.verdicts": storable(event.message)})
        else:
            self._job(event)

    def _job(self, event: Event) -> None:
        """Add a job's span, and its answers' spans within it."""
        completions = event.result.completions if event.result is not None else ()
        current = time.time()
        began = min((completion.began for completion in completions if completion.began is not None), default=current)
        ends = [completion.began + completion.e2e for completion in completions if completion.began is not None]
        job = self._span("job", began, {"run": event.run, "arm": event.arm, "job": event.job or 0}, self._run)
        for completion in completions:
            start = began if completion.began is None else completion.began
            key = completion.key
            about = {"evalset": key.evalset, "case": key.case_id, "repeat": key.repeat, "arm": key.arm}
            answer = self._span("answer", start, about, job)
            answer.set_attribute("gen_ai.usage.input_tokens", completion.prompt_tokens)
            answer.set_attribute("gen_ai.usage.output_tokens", completion.tokens)
            answer.set_attribute("gen_ai.response.finish_reasons", (completion.finish_reason,))
            answer.add_event("first token", timestamp=_ns(start + completion.ttft))
            answer.end(_ns(start + completion.e2e))
        if event.what == "failed":
            _set_error(job, "the job could not be run")
        job.end(_ns(max(ends, default=current)))

    def end(self, error: str) -> None:
        """End the trace. error: the exception's name; "": none."""
        if self._run is not None:
            if error:
                _set_error(self._run, error)
            self._run.end()
        # The library would delay the verdict by half a minute if the collector is away.
        sent = threading.Thread(target=self._provider.shutdown, daemon=True)
        sent.start()
        sent.join(SEND_SECONDS)

    def _span(
        self, name: str, start: float, about: Mapping[str, Any], within: Span | None = None, links: Any = ()
    ) -> Span:
        """Start a span. start: Unix time in seconds; about: attributes without the prefix `qualgate.`; within: the
        parent span, None: the root; links: to spans of other traces."""
        from opentelemetry.trace import set_span_in_context

        attributes = {
            f"qualgate.{key}": storable(value) if isinstance(value, str) else value for key, value in about.items()
        }
        context = None if within is None else set_span_in_context(within)
        return self._tracer.start_span(name, context, start_time=_ns(start), attributes=attributes, links=links)


def _set_error(span: Span, why: str) -> None:
    from opentelemetry.trace import Status, StatusCode

    span.set_status(Status(StatusCode.ERROR, why))


def _ids() -> Any:
    """Return an id generator with the given trace id, which does not use Python's global random state."""
    from opentelemetry.sdk.trace.id_generator import IdGenerator

    class Ids(IdGenerator):
        trace = 0

        def generate_span_id(self) -> int:
            return secrets.randbits(64) or 1

        def generate_trace_id(self) -> int:
            return self.trace

    return Ids()


def _caller_link() -> tuple[Any, ...]:
    """Return a link to the caller's span, if the environment has TRACEPARENT, as CI hosts set it."""
    from opentelemetry.trace import Link, get_current_span
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier = {"traceparent": os.environ.get("TRACEPARENT", ""), "tracestate": os.environ.get("TRACESTATE", "")}
    context = get_current_span(TraceContextTextMapPropagator().extract(carrier)).get_span_context()
    return (Link(context),) if context.is_valid else ()


class _Once(logging.Handler):
    """Report the library's warnings once a run: it logs each of its retries."""

    def __init__(self, warn: Warn) -> None:
        super().__init__(logging.WARNING)
        self._warn, self._told = warn, False

    def emit(self, record: logging.LogRecord) -> None:
        """Pass on the first record, from any thread."""
        if not self._told:
            self._told = True
            self._warn(f"traces may be lost: {' '.join(record.getMessage().split())[:200]}")


def _warn_once(warn: Warn) -> None:
    """Report the library's first warning of this run to `warn`, and keep its warnings off stderr. An earlier run's
    handler is removed."""
    logger = logging.getLogger("opentelemetry")
    for earlier in [handler for handler in logger.handlers if isinstance(handler, _Once)]:
        logger.removeHandler(earlier)
    logger.addHandler(_Once(warn))
    logger.propagate = False


def _ns(seconds: float) -> int:
    return int(seconds * 1e9)
