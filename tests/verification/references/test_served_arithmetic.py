"""What the proof of served arithmetic counts."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace

import pytest

from tests.benchmarks.ours import plain
from tests.benchmarks.peer_process import Peer
from tests.benchmarks.questions import asked
from tests.benchmarks.race import Contender
from tests.verification.references import served_arithmetic as proof
from tests.verification.references.served_arithmetic import loaded, parted, step_of
from tests.verification.references.served_memory import Held


def test_without_vllm_its_rows_are_not_run_and_overflows_are(monkeypatch):
    monkeypatch.delenv("QUALGATE_BENCH_VLLM", raising=False)
    monkeypatch.setattr(proof, "FOLDERS_QUICK", 1)
    monkeypatch.setattr(proof, "held", lambda rounds: [Held(loading=1, answering=100, counted=96, file=100)] * rounds)
    agrees, margins, overflow, memory = proof.run(quick=True)["goals"]
    assert (agrees["met"], margins["met"], overflow["met"], memory["met"]) == (None, None, None, True)
    assert overflow["measured"] == {"found": 1, "answered": 1, "of": 1}


@pytest.mark.parametrize(
    ("peaks", "met"),
    [((110, 115, 110), True), ((116, 100, 100), False), ((100, 116, 116), False), ((100, 100, 94), False)],
)
def test_memory_is_the_most_at_any_time_and_what_is_counted_is_held_against_answering(peaks, met):
    fine = Held(loading=100, answering=100, counted=100, file=100)
    loading, answering, counted = peaks
    worst = Held(loading=loading, answering=answering, counted=counted, file=100)
    assert proof.memory([fine, worst])["met"] is met
    assert proof.memory([worst, fine])["met"] is met


@pytest.mark.proof
def test_answers_are_held_against_vllms_one_by_one(tmp_path, monkeypatch):
    prompts = {kind: [replace(one, max_new_tokens=6) for one in mine] for kind, mine in asked(1).items()}
    right = plain(loaded("served", tmp_path), prompts).answer

    @contextmanager
    def serving(folder, dtype, prompts, work):
        def answer(kind):
            first, *others = right(kind)
            return [(*first[:-1], first[-1] + 1), *others] if kind == "text" else [first, *others]

        assert dtype == "bfloat16"
        yield Peer(version="0", contender=Contender(answer=answer))

    monkeypatch.setattr("tests.benchmarks.vllm_peer.serving", serving)
    (agrees, margins), partings = proof.agreement(prompts, tmp_path)
    cases = sum(map(len, prompts.values()))
    assert agrees["measured"]["cases"] == cases == 7
    assert agrees["measured"]["served"] == cases - 1
    assert agrees["met"] is None, "seven cases show nothing"
    assert [one.case for one in partings] == [prompts["text"][0].key.case_id]
    assert [margins["measured"]] == margins["steps"] == [partings[0].steps]


def test_answers_part_where_they_first_differ_and_the_margin_is_told_in_steps(tmp_path):
    prompts = {"short": asked(1)["short"]}
    arm = loaded("served", tmp_path)
    mine = [tuple(one) for one in plain(arm, prompts).answer("short")]
    other = [mine[0], (*mine[1][:2], mine[1][2] + 1)]
    found = parted(arm, prompts["short"], mine, other)
    assert [(one.case, one.at) for one in found] == [(prompts["short"][1].key.case_id, 2)]
    assert found[0].steps > 2  # a trained model is sure of most tokens
    assert parted(arm, prompts["short"], mine, mine) == []
    assert parted(arm, prompts["short"][:1], mine[:1], [mine[0][:1]])[0].at == 1, "where one ends and the other goes on"


@pytest.mark.parametrize(("number", "step"), [(1.0, 2**-7), (1.99, 2**-7), (2.0, 2**-6), (-20.0, 2**-3)])
def test_a_step_is_that_of_bfloat16(number, step):
    assert step_of(number) == step
