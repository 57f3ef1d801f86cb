from __future__ import annotations

import subprocess
import sys

import pytest

from qualgate.bench import _run_of as run_of_speed
from qualgate.bench import benchmarks, checkout, run_benchmark
from qualgate.bench.goals import COMMANDS, SPEED
from qualgate.bench.memory import measure
from qualgate.errors import UsageError
from tests.verification import PROOFS, run_of

ROWS = {  # goals of earlier versions keep their ids, and none is dropped but for a better one; a new row is added here
    "decode": "drafted_int8 drafted_int4 lm_eval_int8 lm_eval_int4 plain vllm_plain vllm_int8 vllm_int4 step_1 step_64 "
    "choices memory",
    "speculation": "target_bandwidth verify specqd_1 specqd_2 law control assistant lookup vllm_ngram vllm_draft bits "
    "gpu_spec",
    "exact": "exact.tokens exact.other_tokens exact.other_bits exact.kept.tokens exact.kept.other_tokens "
    "exact.kept.other_bits",
    "lossless": "lossless.by_rounds lossless.at_once lossless.known_mutants lossless.code_mutants "
    "lossless.lossy_rules lossless.engine lossless.wrong_engines lossless.seconds",
    "combinations": "combined.answers combined.gains",
    "commands": "help gate_20000_scores gate_100k gate_files_100k dashboard_first_page",
    "determinism-report": "deterministic",
    "architectures": "tokens let_through",
    "served": "chaos faults client verdict.same wire.drafted power metrics.agree kl.bounds",
    "served-arithmetic": "agrees margins overflow memory",
    "service": "ingest writers pages resume kills migrations scale overhead.ray",
    "decisions": "errors power peers.cases peers.false_pass early.identical early.twice early.worst early.decodes "
    "planner.rates "
    "planner.decidable undecided.planned peeking peeking.files fail_closed.cases fail_closed.mutations "
    "fail_closed.score_files attacks.new attacks.legitimate monotone "
    "defects.false_approve defects.false_block planted.false_approve planted.false_block planted.cause "
    "interaction.power interaction.silent choice.margin times.errors times.power nights aa.block_rate "
    "deterministic gate_100k",
    "first-hour": "verdict",
    "demo": "demo_seconds demo_memory int8_approves int2_blocks",
    "gpu": "int4_8192_bandwidth int4_28672_bandwidth int4_8192_bf16 int4_28672_bf16 int4_8192_best "
    "int4_28672_best verify_cost invariance_tax right dense_price paged_bfloat16 paged_fp8 paged_int8 paged_int4 "
    "rotary_speed drift_speed drift_ratio step_graph step_int4 step_bf16",
    "static": "compiles no_spills products tensor_memory shared_memory int4_instructions",
    "quantize": "gptq_int4 gptq_int4_act_order gptq_int4_static gptq_int4_asym gptq_int3 gptq_int2 gptq_int8 awq_int4 "
    "awq_int3 smoothquant_w8a8 nvfp4_calibrated",
    "kernels-cpu": "int4_rows_32_512 int4_rows_64_up int4_few_rows mxfp4_few_rows int4_bandwidth mxfp4_bandwidth",
    "scoring": "bfcl_mutations bfcl_fuzz schema_suite suite maskbench languages gsm8k_filters "
    "filters_fuzz match_fuzz ifeval_fuzz "
    "reasoning choice contains readings judge dialects math math_hostile math_speed hostile_outputs tool_call_speed "
    "schema_speed "
    "lm_eval_speed escape.1 escape.8 escape.32 escape.mutants "
    "judge.exhausted kernel.memory sandbox.overhead forgeries humaneval.reference humaneval.broken mbpp.reference "
    "drift.llama34 drift.bytes drift.certified",
    "drift": "cpu_32k_float32_time cpu_32k_float32_memory cpu_32k_bfloat16_time cpu_32k_bfloat16_memory "
    "cpu_150k_float32_time cpu_150k_float32_memory cpu_150k_bfloat16_time cpu_150k_bfloat16_memory gpu_speed "
    "gpu_ratio gpu_memory",
}


def test_no_benchmark_and_no_row_is_dropped_or_renamed():
    assert {name: one.goals.keys() for name, one in benchmarks().items()} == {
        name: dict.fromkeys(ids.split()).keys() for name, ids in ROWS.items()
    }
    assert all(one.name == name and all(one.goals.values()) for name, one in benchmarks().items())


def test_every_benchmark_has_a_module():
    modules = [run.__module__ for run in (*map(run_of_speed, SPEED), *map(run_of, PROOFS))]
    assert [module.rpartition(".")[2].replace("_", "-") for module in modules] == [*SPEED, *PROOFS]


def test_what_a_wheel_says_of_the_proofs_is_what_a_checkout_holds(monkeypatch, tmp_path):
    assert set(checkout.PROOFS) == set(PROOFS)
    monkeypatch.setattr(checkout, "ROOT", tmp_path)
    assert benchmarks() == SPEED
    with pytest.raises(UsageError, match=r"decisions is a proof.*checkout.*qualgate bench decisions"):
        run_benchmark("decisions", quick=True)


def test_a_result_without_a_row_of_its_table_is_refused():
    rows = [COMMANDS.row(id, 0.1, met=True) for id in COMMANDS.goals]
    assert COMMANDS.result(rounds=[], rows=rows)["goals"] == rows
    with pytest.raises(AssertionError, match="dashboard_first_page"):
        COMMANDS.result(rounds=[], rows=rows[:-1])


def test_an_unknown_benchmark_is_named_with_those_there_are():
    with pytest.raises(UsageError, match="decode"):
        run_benchmark("decoed", quick=True)


def test_memory_is_measured_over_the_whole_process_tree():
    child = "import time; held = bytearray(40_000_000); time.sleep(1.2)"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    found = measure([sys.executable, "-c", code], interval=0.1)
    assert found.exit == 0
    assert found.peak_rss > 40_000_000
    assert 40_000_000 < found.peak_pss <= found.peak_rss


def test_the_list_of_benchmarks_is_shown_beside_another_package_called_tests(tmp_path):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "__init__.py").touch()
    command = [sys.executable, "-m", "qualgate", "bench", "--list"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    begun = [line for line in shown.stdout.splitlines() if not line.startswith(" ")]  # the others go on with one
    assert [line.split()[0] for line in begun] == list(benchmarks())
