"""What a server counts of its drafts: read from its metrics around each job, and never guessed."""

from __future__ import annotations

from typing import Any

import pytest

from qualgate.records import DraftCounts
from qualgate.served.drafts_counted import NO_COUNTER, NO_PAGE, counts_in, started_in
from qualgate.served.engines import PROFILES, counters_of, tells_tokens
from tests.served.scripted import Reply, Scripted, as_json, scripted, text_piece
from tests.served.test_job import answered, prompt

VLLM = """\
# HELP vllm:spec_decode_num_drafts_total Number of spec decoding drafts.
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{{engine="0",model_name="m"}} {0}.0
vllm:spec_decode_num_drafts_created{{engine="0",model_name="m"}} 1.764e+09
vllm:spec_decode_num_draft_tokens_total{{engine="0",model_name="m"}} {1}.0
vllm:spec_decode_num_accepted_tokens_total{{engine="0",model_name="m"}} {2}.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",model_name="m",position="0"}} {3}.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",model_name="m",position="1"}} {4}.0
"""
PLAIN = 'vllm:generation_tokens_total{engine="0",model_name="m"} 9.0\n'


def page(text: str) -> Reply:
    return Reply(body=text.encode(), kind="text/plain; version=0.0.4")


def around(server: Scripted, before: str, after: str, engine: str = "vllm") -> Any:
    """The generation of a job in which the server's page goes from one to the other."""
    server.metrics = page(before)

    def said(body: dict[str, Any]) -> Reply:
        server.metrics = page(after)
        return as_json(text_piece("x", "stop"))

    server.otherwise = said
    return answered(server, engine=engine).generation


def test_what_was_drafted_for_an_arm_is_what_came_to_its_servers_counters():
    with scripted() as server:
        found = around(server, VLLM.format(100, 400, 200, 90, 60), VLLM.format(150, 600, 320, 130, 90))
    [window] = found.windows
    assert window.after.since(window.before) == DraftCounts(
        verifications=50, proposed=200, accepted=120, by_place=(40, 30)
    )
    assert (window.evalset, found.uncounted) == ("s", "")
    assert window.server == server.address.split("/")[2]


@pytest.mark.parametrize("engine", ["vllm", "", "an engine of ours"])
def test_counters_that_stand_still_are_told_from_counters_that_are_not_there(engine):
    with scripted() as server:
        still = around(server, VLLM.format(7, 28, 9, 5, 4), VLLM.format(7, 28, 9, 5, 4), engine)
        missing = around(server, PLAIN, PLAIN, engine)
        server.metrics = as_json({}, 404)
        server.otherwise = lambda body: as_json(text_piece("x", "stop"))
        no_page = answered(server, engine=engine).generation
    assert [one.after.reading for one in still.windows] == [one.before.reading for one in still.windows] == [44]
    assert (missing.windows, missing.uncounted) == ((), NO_COUNTER)
    assert (no_page.windows, no_page.uncounted) == ((), NO_PAGE)


def test_a_server_that_was_started_again_while_it_answered_counted_nothing_that_could_be_told():
    with scripted() as server:
        fell = around(server, VLLM.format(100, 400, 200, 9, 9), VLLM.format(3, 12, 6, 9, 9))
        began = "process_start_time_seconds 1.7e+09\n"
        other = around(
            server, VLLM.format(1, 4, 2, 1, 1) + began, VLLM.format(3, 12, 6, 4, 2) + began.replace("7", "8")
        )
    for found in (fell, other):
        assert found.windows == ()
        assert "started again" in found.uncounted


def test_an_engine_that_is_not_named_is_found_by_its_counters():
    llama = "llamacpp:spec_decode_num_drafts {0}\nllamacpp:spec_decode_num_draft_tokens {0}\n"
    with scripted() as server:
        [window] = around(server, llama.format(0), llama.format(5), "").windows
    assert window.after == DraftCounts(verifications=5, proposed=5)


def test_ranks_are_added_up_and_what_can_be_no_count_is_left_out():
    [counters] = counters_of("vllm")
    name = "vllm:spec_decode_num_drafts_total"
    text = f'{name}{{engine="0"}} 3\n{name}{{engine="1",model_name="}} 9"}} 4 1764083000000\n'
    hostile = "".join(f"{name} {bad}\n" for bad in ("NaN", "-1", "+Inf", "1e300", "x", "")) + f"{name}{{ 1\n# {name} 8"
    assert counts_in(text + hostile, counters) == DraftCounts(verifications=7)
    assert counts_in(hostile, counters) is None
    far = 'vllm:spec_decode_num_accepted_tokens_per_pos_total{position="999"} 1\n'
    assert counts_in(text + far, counters) == DraftCounts(verifications=7)


def test_when_a_process_began_is_read_where_it_is_told():
    assert started_in("a 1\nprocess_start_time_seconds 1.76408e+09\n") == "1.76408e+09"
    assert started_in(PLAIN) == ""


@pytest.mark.parametrize(
    "told",
    [
        {"metrics": {"speculative_decoding": {"num_draft_tokens": 12, "num_accepted_draft_tokens": 7}}},
        {"timings": {"predicted_n": 20, "draft_n": 12, "draft_n_accepted": 7}},
    ],
)
def test_drafts_of_each_answer_are_kept_where_a_server_tells_them(told):
    with scripted(as_json({**text_piece("x", "stop"), **told})) as server:
        [completion] = answered(server).completions
    assert (completion.draft_proposed, completion.draft_accepted) == (12, 7)


@pytest.mark.parametrize(
    "told",
    [{}, {"metrics": []}, {"timings": {"draft_n": -1, "draft_n_accepted": 7}}, {"timings": {"draft_n": True}},
     {"metrics": {"speculative_decoding": None}, "timings": "fast"}],
)  # fmt: skip
def test_an_answer_whose_drafts_are_not_told_is_an_answer(told):
    with scripted(as_json({**text_piece("x", "stop"), **told})) as server:
        [completion] = answered(server, prompt()).completions
    assert (completion.text, completion.draft_proposed) == ("x", None)


def test_the_page_of_metrics_hangs_on_nothing_but_a_count():
    with scripted(as_json(text_piece("x", "stop"))) as server:
        server.metrics = as_json({}, 503)
        found = answered(server)
    assert (len(found.completions), found.generation.uncounted) == (1, NO_PAGE)


def test_every_engine_of_the_table_says_where_its_port_goes_and_what_tells_tokens():
    assert [one.name for one in PROFILES if tells_tokens(one.name)] == ["vllm", "sglang"]
    assert tells_tokens("")
    assert not tells_tokens("another")
    assert all(" {port}" in one.serve for one in PROFILES if one.name != "ollama")
