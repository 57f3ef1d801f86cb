"""OpenTelemetry traces of runs: run, job, answer. Nothing is imported unless OTEL_* of the environment asks for them; a
run is judged alike whatever becomes of its trace.

The trace's id follows from the run's, so each is found by the other, and a run that is resumed goes on in its trace. No
prompt and no answer is in one.
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
SEND_SECONDS = 5.0  # for which the end of a run waits until its spans are sent
Warn = Callable[[str], None]


def is_wanted() -> bool:
    """Whether the environment asks for traces, as the OpenTelemetry specification has it."""
    off = os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or os.environ.get("OTEL_TRACES_EXPORTER") == "none"
    return not off and any(os.environ.get(name) for name in ASKED_BY)


def trace_id(run: str) -> str:
    """Of every trace of this run: 32 hexadecimal digits."""
    return hashlib.sha256(f"qualgate run {run}".encode()).hexdigest()[:32]


@contextmanager
def traced(observe: Listener, warn: Warn) -> Iterator[Listener]:
    """A listener that hands on to `observe`, and traces where that is wanted. warn: told once where it cannot be."""
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
        nonlocal broken
        observe(event)
        try:
            if not broken:
                trace.hear(event)
        except Exception as error:  # whatever it is: the run goes on
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
    try:
        # Beside the extra, not in it: HTTP does without gRPC.
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import (  # pyright: ignore[reportMissingImports]
            OTLPSpanExporter,
        )
    except ImportError as error:
        raise QualgateError(
            "OTEL_EXPORTER_OTLP_PROTOCOL=grpc needs gRPC (port 4317); http/protobuf (port 4318) needs nothing more. "
            f"Install it: {pip_install('opentelemetry-exporter-otlp-proto-grpc')}"
        ) from error
    return OTLPSpanExporter()


class _Trace:
    """Of one run, from its first event on."""

    def __init__(self, exporter: SpanExporter, warn: Warn) -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        self._ids = _ids()
        named = os.environ.get("OTEL_SERVICE_NAME") or "service.name=" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
        resource = Resource.create({} if named else {"service.name": "qualgate"})
        self._provider = TracerProvider(resource=resource, id_generator=self._ids, shutdown_on_exit=False)
        _told_once(warn)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("qualgate")
        self._began, self._run = time.time(), None

    def hear(self, event: Event) -> None:
        if event.what == "begun":
            self._ids.trace = int(trace_id(event.run), 16)
            self._run = self._span("run", self._began, {"run": event.run}, links=_asked_by())
        elif event.what == "ended" and self._run is not None:
            self._run.set_attributes({"qualgate.exit": event.exit or 0, "qualgate.verdicts": storable(event.said)})
        else:
            self._job(event)

    def _job(self, event: Event) -> None:
        """Its answers began together, and are within it."""
        completions = event.result.completions if event.result is not None else ()
        now = time.time()
        began = min((one.began for one in completions if one.began is not None), default=now)
        ends = [one.began + one.e2e for one in completions if one.began is not None]
        job = self._span("job", began, {"run": event.run, "arm": event.arm, "job": event.job or 0}, self._run)
        for one in completions:
            start = began if one.began is None else one.began
            key = one.key
            about = {"evalset": key.evalset, "case": key.case_id, "repeat": key.repeat, "arm": key.arm}
            answer = self._span("answer", start, about, job)
            answer.set_attribute("gen_ai.usage.input_tokens", one.prompt_tokens)
            answer.set_attribute("gen_ai.usage.output_tokens", one.tokens)
            answer.set_attribute("gen_ai.response.finish_reasons", (one.finish_reason,))
            answer.add_event("first token", timestamp=_ns(start + one.ttft))
            answer.end(_ns(start + one.e2e))
        if event.what == "failed":
            _broken(job, "the job could not be run")
        job.end(_ns(max(ends, default=now)))

    def end(self, error: str) -> None:
        """Whatever it came to. error: the kind, "" of none."""
        if self._run is not None:
            if error:
                _broken(self._run, error)
            self._run.end()
        # The library would wait for half a minute for a collector that is away, and the verdict with it.
        sent = threading.Thread(target=self._provider.shutdown, daemon=True)
        sent.start()
        sent.join(SEND_SECONDS)

    def _span(
        self, name: str, start: float, about: Mapping[str, Any], within: Span | None = None, links: Any = ()
    ) -> Span:
        from opentelemetry.trace import set_span_in_context

        said = {f"qualgate.{key}": storable(one) if isinstance(one, str) else one for key, one in about.items()}
        context = None if within is None else set_span_in_context(within)
        return self._tracer.start_span(name, context, start_time=_ns(start), attributes=said, links=links)


def _broken(span: Span, why: str) -> None:
    from opentelemetry.trace import Status, StatusCode

    span.set_status(Status(StatusCode.ERROR, why))


def _ids() -> Any:
    """Ids of spans that leave Python's own random numbers as they are; the trace's is told."""
    from opentelemetry.sdk.trace.id_generator import IdGenerator

    class Ids(IdGenerator):
        trace = 0

        def generate_span_id(self) -> int:
            return secrets.randbits(64) or 1

        def generate_trace_id(self) -> int:
            return self.trace

    return Ids()


def _asked_by() -> tuple[Any, ...]:
    """A link to who started the command, where the environment says so (TRACEPARENT, as CI hosts give it)."""
    from opentelemetry.trace import Link, get_current_span
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    said = {"traceparent": os.environ.get("TRACEPARENT", ""), "tracestate": os.environ.get("TRACESTATE", "")}
    context = get_current_span(TraceContextTextMapPropagator().extract(said)).get_span_context()
    return (Link(context),) if context.is_valid else ()


class _Once(logging.Handler):
    """What the library logs, told as a note, once a run: it tries again by itself, and says so each time."""

    def __init__(self, warn: Warn) -> None:
        super().__init__(logging.WARNING)
        self._warn, self._told = warn, False

    def emit(self, record: logging.LogRecord) -> None:
        """From whatever thread."""
        if not self._told:
            self._told = True
            self._warn(f"traces may be lost: {' '.join(record.getMessage().split())[:200]}")


def _told_once(warn: Warn) -> None:
    logger = logging.getLogger("opentelemetry")
    for earlier in [one for one in logger.handlers if isinstance(one, _Once)]:
        logger.removeHandler(earlier)
    logger.addHandler(_Once(warn))
    logger.propagate = False


def _ns(seconds: float) -> int:
    return int(seconds * 1e9)
