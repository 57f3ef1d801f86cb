from __future__ import annotations

import sys

import pytest

from tests.benchmarks.__main__ import ALL, main, run_of
from tests.benchmarks.goals import COMMANDS
from tests.benchmarks.memory import measure

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
    "intake": "table lm-eval inspect promptfoo lighteval",
    "determinism-report": "deterministic",
    "architectures": "tokens let_through",
    "served": "chaos killed faults identity client verdict.same wire.drafted power endpoints metrics.agree kl.bounds",
    "served-arithmetic": "agrees margins overflow memory",
    "service": "ingest writers pages pages.shown pages.sessions resume kills scale overhead.ray",
    "decisions": "errors power peers.cases peers.false_pass early.identical early.twice early.worst early.decodes "
    "planner.rates "
    "planner.decidable undecided.planned peeking peeking.files fail_closed.cases fail_closed.mutations "
    "fail_closed.score_files attacks.new attacks.legitimate monotone "
    "defects.false_approve defects.false_block planted.false_approve planted.false_block planted.cause "
    "interaction.power interaction.silent choice.margin times.errors times.power nights "
    "aa.block_rate",
    "first-hour": "verdict",
    "folders": "folders.edited folders.sound folders.mutate",
    "demo": "demo_seconds demo_memory int8_approves int2_blocks",
    "gpu": "int4_8192_bandwidth int4_28672_bandwidth int4_8192_bf16 int4_28672_bf16 int4_8192_best "
    "int4_28672_best verify_cost invariance_tax right dense_price paged_bfloat16 paged_fp8 paged_int8 paged_int4 "
    "rotary_speed step_graph step_int4 step_bf16",
    "static": "compiles no_spills products tensor_memory shared_memory int4_instructions",
    "quantize": "gptq_int4 gptq_int4_act_order gptq_int4_static gptq_int4_asym gptq_int3 gptq_int2 gptq_int8 awq_int4 "
    "awq_int3 smoothquant_w8a8 nvfp4_calibrated",
    "real-size": "plain vllm_plain drafted_int8 drafted_int4 products drift load memory llama_q8_0_1 llama_q4_0_1 "
    "llama_q8_0_12 llama_q4_0_12 plain_05b plain_15b int4_05b bf16_int4_135m",
    "quantize-time": "gptq coverage",
    "run-costs": "not_model",
    "kernels-cpu": "int4_rows_32_512 int4_rows_64_up int4_few_rows mxfp4_few_rows int4_bandwidth mxfp4_bandwidth",
    "scoring": "bfcl_mutations bfcl_fuzz schema_suite suite maskbench languages gsm8k_filters "
    "filters_fuzz match_fuzz ifeval_fuzz "
    "reasoning choice contains readings judge dialects parsers.vllm parsers.sglang math math_hostile "
    "math_speed hostile_outputs tool_call_speed "
    "schema_speed "
    "lm_eval_speed escape.1 escape.8 escape.32 escape.mutants "
    "judge.exhausted kernel.memory sandbox.overhead forgeries humaneval.reference humaneval.broken mbpp.reference",
    "drift": "cpu_32k_float32_time cpu_32k_float32_memory cpu_32k_bfloat16_time cpu_32k_bfloat16_memory "
    "cpu_150k_float32_time cpu_150k_float32_memory cpu_150k_bfloat16_time cpu_150k_bfloat16_memory",
}


def test_no_benchmark_and_no_row_is_dropped_or_renamed():
    assert {name: one.goals.keys() for name, one in ALL.items()} == {
        name: dict.fromkeys(ids.split()).keys() for name, ids in ROWS.items()
    }
    assert all(one.name == name and all(one.goals.values()) for name, one in ALL.items())


def test_every_benchmark_has_a_module():
    modules = [run_of(name).__module__ for name in ALL]
    assert [module.rpartition(".")[2].replace("_", "-") for module in modules] == [*ALL]


def test_a_result_without_a_row_of_its_table_is_refused():
    rows = [COMMANDS.row(id, 0.1, met=True) for id in COMMANDS.goals]
    assert COMMANDS.result(rounds=[], rows=rows)["goals"] == rows
    with pytest.raises(AssertionError, match="dashboard_first_page"):
        COMMANDS.result(rounds=[], rows=rows[:-1])


def test_memory_is_measured_over_the_whole_process_tree():
    child = "import time; held = bytearray(40_000_000); time.sleep(1.2)"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    found = measure([sys.executable, "-c", code], interval=0.1)
    assert found.exit == 0
    assert found.peak_rss > 40_000_000
    assert 40_000_000 < found.peak_pss <= found.peak_rss


def test_without_a_name_all_are_listed_and_a_mistake_is_64(capsys):
    assert main([]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(ALL)
    assert main(["decoed"]) == 64
    assert "decode" in capsys.readouterr().err
