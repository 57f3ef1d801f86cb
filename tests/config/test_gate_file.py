"""Gate files as people write them: what is taken, and what is refused with the line and the next step."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from qualgate.config import load_gate_file
from qualgate.documents import read_yaml
from qualgate.errors import UsageError
from qualgate.intake.feedback import read_feedback
from qualgate.records import Adapter, Drafted, FourArms, Prices, QuantizeRecipe, Slo
from qualgate.records.metrics import METRICS
from tests.config.gate_files import FAULTS, SMALL, WHOLE, changed, ruled

FOUR = """\
version: 1
baseline: {model: reference}
variants: {int4: {quantize: int4}, drafted: {model: reference}, two: {quantize: int4}}
evalsets: [arithmetic]
gate: {rules: [{metric: exact_match, max_drop: 0.02}, {metric: cost_per_accepted_answer, max_ratio: 0.95}]}
slo: {ttft: 0.5, e2e: 10}
prices: prices.yaml
feedback: said.jsonl
four_arm: {quantization: int4, speculation: drafted, both: two, seed: 3, memory_share: 0.95}
"""


def test_what_readme_and_docs_show_of_a_gate_file_and_the_files_it_names_is_taken(tmp_path):
    root = Path(__file__).resolve().parents[2]
    text = "".join((root / page).read_text(encoding="utf-8") for page in ("README.md", "docs/four-arms.md"))
    shown = re.findall(r"```(?:yaml|json)\n(.*?)```", text, re.DOTALL)
    whole, four, prices, said = (
        next(block for block in shown if block.startswith(start))
        for start in ("version: 1\n", "variants:\n", 'version: "2026', '{"arm"')
    )
    (tmp_path / "gate.yaml").write_text(whole)
    gate = load_gate_file(tmp_path / "gate.yaml", files=False)
    assert [variant.name for variant in gate.variants] == ["int8", "int4", "gptq", "awq"]
    rest = "".join(line for line in SMALL.splitlines(keepends=True) if not line.startswith("variants"))
    (tmp_path / "prices.yaml").write_text(prices)
    (tmp_path / "said.jsonl").write_text(said)
    (tmp_path / "gate.yaml").write_text(rest + four)
    gate = load_gate_file(tmp_path / "gate.yaml", files=False)
    assert gate.four_arm is not None
    assert gate.policy.prices is not None
    assert len(read_feedback(gate.feedback).events) == 1


def test_everything_a_gate_file_may_say_is_read(load, tmp_path):
    gate = load(WHOLE)
    assert gate.text == WHOLE
    assert gate.path == tmp_path / "gate.yaml"
    assert (gate.baseline.name, gate.baseline.dtype, gate.baseline.quantize) == ("baseline", "bfloat16", None)
    assert Path(gate.baseline.model).is_absolute()
    one, two, three = gate.variants
    assert one.quantize == QuantizeRecipe(method="mxfp4", group_size=32)
    assert two.name == "int4+own"
    assert two.quantize == QuantizeRecipe(method="int4", group_size=64)
    assert two.model == gate.baseline.model
    assert (three.model, three.dtype, three.quantize) == (str(tmp_path / "models" / "prod"), "float16", None)
    assert gate.evalset_refs == ("arithmetic", "tool_calls", "./ours/support.yaml")
    assert (gate.seed, gate.workers, gate.devices) == (7, 3, "cpu")
    assert gate.store_url == f"sqlite:///{tmp_path}/runs/q.db"
    assert (gate.policy.alpha, gate.policy.review) == (0.1, "always")
    assert [rule.line for rule in gate.policy.rules] == [13, 14, 15, 16, 17]
    assert [rule.id for rule in gate.policy.rules] == [
        "exact_match [pooled] max_drop 0.02",
        "exact_match [each set] max_drop 0.05",
        "tool_call.valid [tool_calls] max_drop 0.05",
        "drift.kl_mean [pooled] max 0.05",
        "latency.tpot p95 [pooled] max_ratio 1.1",
    ]


def test_calibrated_variants_name_their_data_by_content(load, tmp_path):
    recipe = "{method: gptq, bits: 3, act_order: true, calibration: calibration, keep: {'layers.0.*': int8}}"
    quantize = load(SMALL.replace("{int8: {quantize: int8}}", f"{{a: {{quantize: {recipe}}}}}")).variants[0].quantize
    assert Path(quantize.calibration).name == "calibration.jsonl"
    assert len(quantize.calibration_sha256) == 64
    assert (quantize.bits, quantize.act_order, quantize.keep) == (3, "group", (("layers.0.*", "int8"),))


def test_what_is_left_out_has_a_default(load, tmp_path):
    gate = load(SMALL)
    assert (gate.seed, gate.workers, gate.devices) == (0, 2, "auto")
    assert gate.store_url == f"sqlite:///{tmp_path}/qualgate.db"
    assert (gate.policy.alpha, gate.policy.review) == (0.05, "never")
    assert gate.variants[0].dtype == "bfloat16"


def test_a_dtype_that_the_gate_file_says_is_told_from_one_left_out(load):
    def said(text: str) -> list[bool]:
        gate = load(text)
        return [arm.dtype_said for arm in (gate.baseline, *gate.variants)]

    assert not any(said(SMALL))
    assert all(said(SMALL.replace("{model: reference}", "{model: reference, dtype: float16}")))


def test_the_demos_gate_file_is_one(tmp_path):
    import qualgate

    gate = load_gate_file(Path(qualgate.__file__).parent / "refmodel" / "demo.yaml")
    assert len(gate.variants) == 4


@pytest.mark.parametrize(
    "encode",
    [
        lambda text: "﻿".encode() + text.encode(),
        lambda text: text.replace("\n", "\r\n").encode(),
        lambda text: text.encode("utf-16"),
        lambda text: b"\xfe\xff" + text.encode("utf-16-be"),
    ],
    ids=["utf-8 with mark", "crlf", "utf-16", "utf-16 big-endian"],
)
def test_unambiguous_encodings_are_read(load, encode):
    assert load(encode(SMALL)).variants[0].name == "int8"


@pytest.mark.parametrize(
    ("raw", "line", "message"),
    [
        (SMALL.encode().replace(b"arithmetic", b"arith\xffmetic"), 4, "not valid UTF-8"),
        (SMALL.encode("utf-16-le"), 1, "U+0000"),
        (SMALL.encode() + b"# \0\n", 6, "U+0000"),
        (b"\xff\xfe\x00", 1, "UTF-16"),
        (SMALL.replace("gate: {", "gate:\n\trules: {").encode(), 6, "tab"),
        (b"gate:\n  rules:\n    - a\n   - b\n", 4, "indented less or more"),
        (b"", 1, "empty"),
        (b"# nothing\n", 1, "empty"),
        (b"[1, 2]", 1, "should be a mapping"),
        (b"just words", 1, "should be a mapping"),
        (SMALL.encode() + b"gate: [unclosed", 6, "not YAML"),
        (SMALL.encode() + b"---\nversion: 1\n", 6, "second document"),
        (b"[" * 100_000, 1, "nested deeper"),
        (b"a: " + b"{a: " * 500, 1, "nested deeper"),
    ],
)
def test_what_is_not_one_yaml_document_is_refused_with_its_line(faults, raw, line, message):
    found = faults(raw)
    assert any(number == line and message in text for number, text in found), found


def test_a_quarantine_has_an_owner_a_reason_and_a_last_day(load, faults):
    def text(settings: str) -> str:
        return ruled("{metric: numeric, max_drop: 0.1}", more=f", {settings}")

    whole = "{case: c-1, owner: ana, expires: '2026-12-01', reason: the reference is wrong}"
    policy = load(text(f"quarantine: [{whole}], max_age: 36h")).policy
    assert [(entry.case, entry.owner, entry.expires) for entry in policy.quarantine] == [("c-1", "ana", "2026-12-01")]
    assert policy.max_age == 36 * 3600
    named = load(text(f"quarantine: [{whole.replace('{', '{evalset: sums, ')}]")).policy
    assert [entry.evalset for entry in (*policy.quarantine, *named.quarantine)] == [None, "sums"]
    for wrong, message in (
        ("quarantine: [{case: c-1, owner: ana, reason: r}]", "expires"),
        ("quarantine: [{case: c-1, owner: ana, expires: '2026-13-01', reason: r}]", "YYYY-MM-DD"),
        ("quarantine: [{case: c-1, owner: '', expires: '2026-12-01', reason: r}]", "at least 1"),
        ("max_age: soon", "36h or 7d"),
        ("max_age: 0h", "36h or 7d"),
    ):
        assert any(message in said for _, said in faults(text(wrong))), wrong


def test_two_tiers_may_hold_one_metric_to_two_bounds(load):
    rules = "{metric: exact_match, max_drop: 0.05}, {metric: exact_match, max_drop: 0.02, tier: supporting}"
    assert len(load(ruled(rules)).policy.rules) == 2


@pytest.mark.parametrize(
    ("metric", "bound"), [(m, bound) for m in METRICS.values() for bound in m.bounds if m.kind != "judged"]
)  # of a judge: test_judge
def test_every_metric_can_stand_in_a_rule(load, metric, bound):
    value = 1.15 if metric.kind == "likelihood" else 0.15
    rule = f"{{metric: {metric.name}, {'' if metric.kind == 'arm' else 'per: evalset, '}{bound}: {value}}}"
    text = ruled("{metric: numeric, max_drop: 0.1}", rule, more=", noise_floor: true")
    gate = load(f"{text}prices: prices.yaml\nslo: {{e2e: 10}}\n")
    assert getattr(gate.policy.rules[1], bound) == value


@pytest.mark.parametrize(
    ("rule", "missing"),
    [
        ("{metric: goodput, min: 0.9}", "needs limits"),
        ("{metric: stability.rerun, min: 1}", "needs a second run of the baseline"),
        ("{metric: cost_per_accepted_answer, max_ratio: 1}", "needs a price table"),
    ],
)
def test_a_rule_that_nothing_could_measure_is_refused(faults, rule, missing):
    (fault,) = faults(ruled("{metric: numeric, max_drop: 0.1}", rule))
    assert missing in fault[1]


@pytest.mark.parametrize(
    "metric", ["kl_mean, max: 0.1", "kl_p99, max: 1", "kl_max, max: 9", "top1_agreement, min: 0.9"]
)
def test_a_rule_on_drift_needs_the_drift_of_all_cases(load, faults, metric):
    rules = "{metric: numeric, max_drop: 0.1}"
    sampled = f"{ruled(rules)}generation: {{drift: 0.25}}\n"
    assert load(sampled).drift == 0.25
    ((_, message),) = faults(f"{ruled(rules, f'{{metric: drift.{metric}}}')}generation: {{drift: 0.25}}\n")
    assert "needs the drift of all cases" in message


def test_decibels_go_beyond_one_and_a_size_may_have_two_limits(load):
    sizes = "{metric: memory.peak, max: 8000000000}, {metric: memory.peak, max_ratio: 0.6}"
    rules = f"{{metric: stability.sqnr, min: 20}}, {sizes}"
    gate = load(ruled("{metric: numeric, max_drop: 0.1}", rules))
    assert [rule.min or rule.max or rule.max_ratio for rule in gate.policy.rules[1:]] == [20, 8e9, 0.6]


NEL = "version: 1\ndefaults: {tier: critical, metric: mean_reward, max_drop: 0.02}\n"


def test_an_nel_policy_takes_the_place_of_the_rules(load, faults, tmp_path):
    (tmp_path / "nel.yaml").write_text(NEL)
    gate = load(changed(5, "gate: {nel_policy: nel.yaml, review: always, max_age: 2d}"))
    assert (gate.nel_policy, gate.policy.rules) == (tmp_path / "nel.yaml", ())
    assert (gate.policy.review, gate.policy.max_age) == ("always", 172_800)
    for other, message in (
        ("nel_policy: gone.yaml", "no file"),
        ("nel_policy: ''", "the file name is empty"),
        ("nel_policy: 'https://x/p.yaml'", "not in this version"),
        ("nel_policy: nel.yaml, rules: [{metric: numeric, max_drop: 0.1}]", "`rules` and `nel_policy` are two ways"),
        ("nel_policy: nel.yaml, alpha: 0.1", "has its own confidence level"),
        ("review: always", "`gate.rules` is missing"),
    ):
        assert any(message in said for _, said in faults(changed(5, f"gate: {{{other}}}"))), other


def test_a_stored_run_needs_no_model_folder(load):
    text = SMALL.replace("reference", "./gone").replace("arithmetic", "./gone/set.yaml")
    assert load(text, files=False).baseline.model.endswith("/gone")


def test_a_cluster_is_the_one_at_the_address_or_one_that_the_run_starts(load):
    assert load(SMALL + "workers: {backend: ray, address: 'head:6379'}\n").ray == "head:6379"
    assert load(SMALL + "workers: {backend: ray}\n").ray == ""
    assert load(SMALL + "workers: {count: 2}\n").ray is None


def test_auto_workers_are_the_usable_cores_and_of_a_cluster_its_devices(load):
    gate = load(SMALL + "workers: {count: auto}\n")
    assert gate.workers >= 1
    assert not gate.each_device
    assert load(SMALL + "workers: {backend: ray, count: auto}\n").each_device
    assert not load(SMALL + "workers: {backend: ray}\n").each_device


def test_an_existing_folder_may_be_named_bare(load, tmp_path):
    (tmp_path / "mine").mkdir()
    assert load(SMALL.replace("reference", "mine")).baseline.model == str(tmp_path / "mine")


def test_an_absolute_store_stays_where_it_is(load):
    assert load(SMALL + "store: sqlite:////var/q.db\n").store_url == "sqlite:////var/q.db"


def test_a_missing_gate_file_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="no such file"):
        load_gate_file(tmp_path / "gate.yaml")
    with pytest.raises(UsageError, match="it is a folder, and a file is needed"):
        load_gate_file(tmp_path)


def test_a_huge_file_is_refused_unread(load):
    with pytest.raises(UsageError, match="larger than"):
        load(b"#" * 300_000)


def test_an_alias_bomb_is_refused_without_being_expanded(faults):
    bomb = "a: &a [x, x]\n" + "".join(
        f"{new}: &{new} [*{old}, *{old}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
    )
    assert "anchor &a" in faults(bomb)[0][1]


def test_importing_config_loads_no_model_library():
    script = "import sys, qualgate.config; sys.exit(any(m in sys.modules for m in ('torch', 'transformers', 'scipy')))"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_four_arms_prices_and_objectives_are_taken(load, tmp_path):
    gate = load(FOUR)
    assert gate.policy.slo == Slo(ttft=0.5, e2e=10.0)
    assert gate.policy.prices == Prices(
        version="2026-11", currency="EUR", prompt_token=0.001, device_second=0.5, concurrency=4
    )
    assert gate.feedback == tmp_path / "said.jsonl"
    assert gate.four_arm == FourArms(quantization="int4", speculation="drafted", both="two", seed=3, memory_share=0.95)
    assert gate.policy.four_arm is None  # `--four-arm` puts it there


@pytest.mark.parametrize(("parity", "temperature", "told"), [("sampled", 0.2, 0.2), ("sampled", 0, None),
                                                             ("identical", 0.2, None)])  # fmt: skip
def test_of_arms_that_promise_a_law_the_policy_says_how_warm_they_are_drawn(load, parity, temperature, told):
    text = FOUR.replace("seed: 3", f"parity: {parity}") + f"generation: {{temperature: {temperature}}}\n"
    found = load(text).four_arm
    assert (found.parity, found.temperature) == (parity, told)


def test_keys_and_values_are_held_as_the_arm_says_or_else_as_the_baselines_are(load):
    text = FOUR.partition("four_arm")[0].replace("baseline: {", "baseline: {kv_cache: bf16, ")
    gate = load(text.replace("variants: {int4: {", "variants: {kv: {kv_cache: fp8}, int4: {kv_cache: int4, "))
    held = {arm.name: arm.kv_cache for arm in (gate.baseline, *gate.variants)}
    assert (held["baseline"], held["int4"], held["kv"], held["two"]) == ("bf16", "int4", "fp8", "bf16")
    kv = next(arm for arm in gate.variants if arm.name == "kv")
    assert replace(kv, name="baseline", kv_cache="bf16") == gate.baseline
    assert all(arm.kv_said for arm in (gate.baseline, *gate.variants))
    silent = load(FOUR)
    assert silent.baseline.kv_cache == "float32"
    assert not any(arm.kv_said for arm in (silent.baseline, *silent.variants)), "servers then do as a folder declares"


def test_an_adapter_is_the_arms_own_or_else_the_baselines_where_the_weights_are(load, tmp_path):
    for name in ("models/prod", "ours", "theirs"):
        (tmp_path / name).mkdir(parents=True, exist_ok=True)
    gate = load("""\
version: 1
baseline: {model: reference, adapter: {path: ./ours, merge: true}}
variants:
  own: {adapter: ./theirs}
  int4: {quantize: int4}
  int4+own: {quantize: int4, adapter: ./theirs}
  kv: {kv_cache: int8}
  folder: {model: ./models/prod}
  folder+own: {model: ./models/prod, adapter: {path: ./ours}}
evalsets: [arithmetic]
gate: {rules: [{metric: exact_match, max_drop: 0.02}]}
""")
    ours, theirs = (Adapter(path=str(tmp_path / name)) for name in ("ours", "theirs"))
    assert {arm.name: arm.adapter for arm in (gate.baseline, *gate.variants)} == {
        "baseline": replace(ours, merged=True),
        "own": theirs,
        "int4": ours,  # packed weights have it beside them
        "int4+own": theirs,
        "kv": replace(ours, merged=True),
        "folder": None,
        "folder+own": ours,
    }


def test_arithmetic_is_the_whole_runs_and_float32_where_nothing_is_said(load):
    gate = load(f"arithmetic: served\n{FOUR}")
    assert {arm.arithmetic for arm in (gate.baseline, *gate.variants)} == {"served"}
    gate = load(FOUR)
    assert {arm.arithmetic for arm in (gate.baseline, *gate.variants)} == {"float32"}


def test_what_servers_drafted_may_be_declared(load):
    told = "drafting: {drafted: {proposed: 12000, accepted: 8100}, two: {proposed: 1, accepted: 0}}"
    gate = load(FOUR.replace("seed: 3", f"seed: 3, {told}"))
    assert gate.four_arm is not None
    assert gate.four_arm.drafting == (
        Drafted(arm="drafted", proposed=12000, accepted=8100), Drafted(arm="two", proposed=1, accepted=0),
    )  # fmt: skip


@pytest.mark.parametrize(("told", "message"), FAULTS["drafts"])
def test_drafts_that_cannot_be_are_refused(load, told, message):
    with pytest.raises(UsageError, match=message) as refused:
        load(FOUR.replace("seed: 3", f"seed: 3,\n  drafting: {told}\n "))
    assert "gate.yaml:" in str(refused.value)


def test_variants_may_say_themselves_which_arm_they_are(load):
    text = FOUR.partition("four_arm")[0]
    for name, role in (("int4", "quantization"), ("two", "both")):
        text = text.replace(f"{name}: {{", f"{name}: {{arm: {role}, ")
    gate = load(text.replace("drafted: {", "drafted: {arm: speculation, "))
    assert gate.four_arm == FourArms(quantization="int4", speculation="drafted", both="two")
    assert load(text).four_arm is None  # one role is nobody's


@pytest.mark.parametrize(("old", "new", "message"), FAULTS["terms"])
def test_contradictory_arms_and_terms_are_refused(load, old, new, message):
    with pytest.raises(UsageError, match=message):
        load(FOUR.replace(old, new, 1))


@pytest.mark.parametrize(("text", "message"), FAULTS["prices"])
def test_a_price_table_that_prices_nothing_or_unclearly_is_refused(load, tmp_path, write, text, message):
    path = write(FOUR)
    (tmp_path / "prices.yaml").write_text(text)
    with pytest.raises(UsageError, match=message):
        load_gate_file(path)


def test_a_digest_is_a_word_to_every_reader_and_a_binary_number_is_not(tmp_path):
    digest = "0b802c5bbf571176a6fbc4f1ca6f28190f30ef69" + 24 * "a"  # hexadecimal, so no binary number
    (tmp_path / "a.yaml").write_text(f"sha256: {digest}\n")
    assert read_yaml(tmp_path / "a.yaml").value == {"sha256": digest}
    (tmp_path / "a.yaml").write_text("sha256: 0b101\n")
    (fault,) = read_yaml(tmp_path / "a.yaml").faults
    assert "YAML readers disagree" in fault.message
