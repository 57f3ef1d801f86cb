"""Traces of a run: off unless asked for, and then run, job and answer, found by the run's id."""

from __future__ import annotations

import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace

import pytest

from qualgate.errors import Interrupted, QualgateError
from qualgate.errors.extras import install_command
from qualgate.pipeline import tracing
from qualgate.pipeline.events import Event
from qualgate.pipeline.tracing import _over_grpc, is_wanted, trace_id, traced
from qualgate.records import Completion, UnitKey

RUN = "20261126-020007-5e00e0"
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture(autouse=True)
def unasked(monkeypatch):
    for name in (*tracing.ASKED_BY, "OTEL_SDK_DISABLED", "TRACEPARENT"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def spans(monkeypatch):
    """What is exported, where traces are asked for."""
    memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter").InMemorySpanExporter()
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp")
    monkeypatch.setattr(tracing, "_exporter", lambda: memory)
    return memory


def completion(case: str, **more) -> Completion:
    said = {"case_hash": "h", "token_ids": (1, 2, 3), "text": "a secret answer", "finish_reason": "eos", "logprobs": (),
            "margins": (), "prompt_tokens": 7, "ttft": 0.25, "e2e": 2.0, "began": 1000.0}  # fmt: skip
    return Completion(key=UnitKey("int8", "echo", case), **(said | more))


def answered(*completions: Completion) -> Event:
    result = SimpleNamespace(completions=completions)
    return Event(what="answered", run=RUN, message="", arm="int8", job=3, result=result)  # type: ignore[arg-type]


BEGUN = Event(what="begun", run=RUN, message="run begins")
ENDED = Event(what="ended", run=RUN, message="run ends: int8 block", exit=10)


def told(*events: Event, observe=lambda event: None, warn=pytest.fail) -> None:
    with traced(observe, warn) as hear:
        for event in events:
            hear(event)


@pytest.mark.parametrize(
    ("variables", "wanted"),
    [
        ({}, False),
        ({"OTEL_SERVICE_NAME": "x"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h:4318", "OTEL_SDK_DISABLED": "True"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h:4318", "OTEL_TRACES_EXPORTER": "none"}, False),
        ({"OTEL_TRACES_EXPORTER": "console"}, True),
    ],
)
def test_traces_are_made_where_the_environment_asks_for_them(monkeypatch, variables, wanted):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert is_wanted() is wanted


def test_where_they_are_not_asked_for_nothing_is_imported_and_the_listener_is_the_one_that_was_given(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with traced(print, pytest.fail) as heard:
        assert heard is print


def test_a_run_has_its_jobs_and_a_job_its_answers_at_the_times_that_were_measured(spans):
    heard = []
    told(BEGUN, answered(completion("a"), completion("b", e2e=3.0)), ENDED, observe=heard.append)
    assert [event.what for event in heard] == ["begun", "answered", "ended"]
    found = spans.get_finished_spans()
    assert [span.name for span in found] == ["answer", "answer", "job", "run"]
    first, second, job, run = found
    assert {format(span.context.trace_id, "032x") for span in found} == {trace_id(RUN)}
    assert first.parent.span_id == second.parent.span_id == job.context.span_id
    assert (job.parent.span_id, run.parent) == (run.context.span_id, None)
    assert (first.start_time, first.end_time, job.end_time) == (1000 * 10**9, 1002 * 10**9, 1003 * 10**9)
    assert first.events[0].timestamp == 1000_250_000_000
    assert run.attributes["qualgate.exit"] == 10
    assert (first.attributes["qualgate.case"], first.attributes["gen_ai.usage.output_tokens"]) == ("a", 3)
    assert "secret" not in "".join(span.to_json() for span in found)


def test_a_run_that_is_resumed_goes_on_in_its_trace_and_another_has_another():
    assert trace_id(RUN) == trace_id(RUN) != trace_id(RUN[:-1] + "1")
    assert len(trace_id(RUN)) == 32


def test_a_run_that_is_interrupted_and_a_job_that_failed_are_errors(spans):
    def stop(event: Event) -> None:
        if event is ENDED:
            raise Interrupted("stopped")

    with pytest.raises(Interrupted):
        told(BEGUN, Event(what="failed", run=RUN, message="", arm="int8", job=0), ENDED, observe=stop)
    job, run = spans.get_finished_spans()
    assert (job.status.is_ok, run.status.is_ok, run.status.description) == (False, False, "Interrupted")


def test_a_run_is_linked_to_the_trace_of_who_started_it(spans, monkeypatch):
    monkeypatch.setenv("TRACEPARENT", PARENT)
    told(BEGUN, ENDED)
    [run] = spans.get_finished_spans()
    assert [format(link.context.trace_id, "032x") for link in run.links] == [PARENT.split("-")[1]]


def test_traces_that_cannot_be_made_are_a_note_and_the_run_goes_on(monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    for name, value in (("OTEL_TRACES_EXPORTER", "zipkin"), ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")):
        monkeypatch.setenv(name, value)
        notes: list[str] = []
        told(BEGUN, ENDED, warn=notes.append)
        assert [value in note for note in notes] == [True]
        monkeypatch.delenv(name)
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    told(BEGUN, ENDED, warn=notes.append)
    assert install_command("otel") in notes[-1]


def test_grpc_is_spoken_where_it_is_installed_and_else_it_is_told_what_to_install(monkeypatch):
    module, notes = "opentelemetry.exporter.otlp.proto.grpc.trace_exporter", []
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(QualgateError, match="pip install opentelemetry-exporter-otlp-proto-grpc"):
        _over_grpc()
    monkeypatch.setitem(sys.modules, module, SimpleNamespace(OTLPSpanExporter=lambda: notes))
    assert _over_grpc() is notes


def test_a_time_that_no_trace_can_hold_ends_the_trace_and_not_the_run(spans):
    heard, notes = [], []
    told(BEGUN, answered(completion("a", e2e=float("nan"))), answered(completion("b")), ENDED, observe=heard.append,
         warn=notes.append)  # fmt: skip
    assert [event.what for event in heard] == ["begun", "answered", "answered", "ended"]
    assert len(notes) == 1
    assert notes[0].startswith("the trace ends here: ValueError")


def test_text_that_no_trace_can_hold_loses_none(spans):
    told(BEGUN, answered(completion("\ud800")), ENDED)
    assert spans.get_finished_spans()[0].attributes["qualgate.case"] == "\\ud800"


def test_a_collector_is_sent_the_trace_and_one_that_refuses_it_is_a_note(monkeypatch):
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    came: list[bytes] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self):
            came.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200 if len(came) == 1 else 400)
            self.end_headers()

        def log_message(self, *args):
            pass

    with HTTPServer(("127.0.0.1", 0), Collector) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_address[1]}")
        told(BEGUN, ENDED)
        notes: list[str] = []
        told(BEGUN, ENDED, warn=notes.append)
        server.shutdown()
    assert bytes.fromhex(trace_id(RUN)) in came[0]
    assert len(notes) == 1
    assert "traces may be lost" in notes[0]
