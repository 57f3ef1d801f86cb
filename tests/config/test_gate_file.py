"""Gate files as people write them: what is taken, and what is refused with the line and the next step."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from qualgate.config import GateFile, load_gate_file
from qualgate.documents import read_yaml
from qualgate.errors import Exit, NotInThisVersion, UsageError
from qualgate.intake.feedback import read_feedback
from qualgate.metrics import METRICS, PLANNED
from qualgate.records import FourArms, Prices, QuantizeRecipe, Slo

WHOLE = """\
version: 1
baseline: {model: reference, dtype: bfloat16}
variants:
  mxfp4: {quantize: mxfp4}
  int4+own: {quantize: {method: int4, group_size: 64}}
  prod_2.1: {model: ./models/prod, dtype: float16}
evalsets: [arithmetic, tool_calls, ./ours/support.yaml]
generation: {temperature: 0, seed: 7, repeats: 1}
gate:
  alpha: 0.1
  review: always
  rules:
    - {metric: exact_match, max_drop: 0.02}
    - {metric: exact_match, per: evalset, max_drop: 0.05}
    - {metric: tool_call.valid, evalset: tool_calls, max_drop: 0.05, tier: supporting}
    - {metric: drift.kl_mean, max: 0.05, tier: advisory}
    - {metric: latency.tpot, percentile: 95, max_ratio: 1.10}
store: sqlite:///runs/q.db
workers: {backend: local, count: 3, devices: cpu}
"""
SMALL = """\
version: 1
baseline: {model: reference}
variants: {int8: {quantize: int8}}
evalsets: [arithmetic]
gate: {rules: [{metric: exact_match, max_drop: 0.02}]}
"""
PRICES = """\
version: "2026-11"
currency: EUR
prompt_token: 0.001
device_second: 0.5
concurrency: 4
"""
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


@pytest.fixture
def write(tmp_path: Path):
    (tmp_path / "models" / "prod").mkdir(parents=True)
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours" / "support.yaml").write_text("name: support\n")
    (tmp_path / "prices.yaml").write_text(PRICES)
    (tmp_path / "said.jsonl").write_text("{}\n")

    def write(text: str | bytes) -> Path:
        path = tmp_path / "gate.yaml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


@pytest.fixture
def load(write):
    def load(text: str | bytes) -> GateFile:
        return load_gate_file(write(text))

    return load


@pytest.fixture
def faults(load):
    """Line and message of each fault, as the user reads them."""

    def faults(text: str | bytes) -> list[tuple[int, str]]:
        with pytest.raises(UsageError) as error:
            load(text)
        assert error.value.exit == Exit.USAGE
        parts = [line.split("gate.yaml:", 1)[1].split(": ", 1) for line in str(error.value).splitlines()]
        return [(int(number), message) for number, message in parts]

    return faults


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


def test_the_demos_gate_file_is_one(tmp_path):
    import qualgate

    gate = load_gate_file(Path(qualgate.__file__).parent / "demo.yaml")
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


ONE_LINE_CHANGES = [
    # (line of SMALL, what stands there instead, the message)
    (1, "version: 2", "needs a newer qualgate"),
    (1, "version: 0", "must be 1"),
    (1, "version: 1.0", "valid integer"),
    (1, "version: '1'", "valid integer"),
    (1, "versoin: 1", "unknown key 'versoin'; did you mean 'version'?"),
    (2, "baseline: {model: reference, model: reference}", "duplicate key 'model'; first on line 2"),
    (2, "baseline: {model: refrence}", "a folder is written ./refrence"),
    (2, "baseline: {model: ./nowhere}", "no model folder"),
    (2, "baseline: {model: https://example.org/m}", "not in this version"),
    (2, "baseline: {model: reference, dtype: bf16}", "did you mean 'bfloat16'?"),
    (2, "baseline: {model: ''}", "`model` is empty"),
    (2, "baseline: {model: ~nosuchuser/m}", "no such user's home folder"),
    (2, 'baseline: {model: "./a\\0b"}', "cannot be a path"),
    (2, f"baseline: {{model: ./{'a' * 300}}}", "no model folder"),
    (2, f"baseline: {{model: ./{'a/' * 3000}}}", "cannot be a path"),
    (2, "baseline: {model: no}", "YAML readers disagree"),
    (2, "baseline: {model: true}", "valid string (found True)"),
    (2, "baseline: {dtype: bfloat16}", "`baseline.model` is missing"),
    (2, "baseline: reference", "should be a mapping, such as `{model: ./models/support}`"),
    (2, "baseline: &a {model: reference}", "anchor &a"),
    (2, "baseline: *a", "alias *a"),
    (2, "baseline: !!map {model: reference}", "tag"),
    (2, "baseline: !python/object {model: reference}", "tag"),
    (2, "baseline: {1: reference}", "a key must be a word, not 1"),
    (2, "baseline: {'?x': 1, model: reference}", "unknown key '?x'"),
    (2, "baseline: {<<: {model: reference}}", "unknown key '<<'"),
    (3, "variants: {}", "at least 1 item"),
    (3, "variants: {baseline: {quantize: int8}}", "cannot be called baseline"),
    (3, "variants: {'a/b': {quantize: int8}}", "variant name 'a/b'"),
    (3, 'variants: {"a\\e[31m": {quantize: int8}}', r"'a\x1b[31m'"),
    (3, "variants: {a: {}}", "one of the two"),
    (3, "variants: {a: {quantize: int8, model: reference}}", "one of the two"),
    (3, "variants: {a: {quantize: int8, dtype: float16}}", "does not go with"),
    (3, "variants: {a: {quantize: int8, calibration: calibration}}", "goes with `model`"),
    (3, "variants: {a: {model: reference, calibration: calibraton}}", "no shipped calibration set"),
    (3, "variants: {a: {model: reference, calibration: [calibration]}}", "names a calibration set"),
    (3, "variants: {a: {model: reference, calibration: arithmetic}}", "calibration set"),
    (3, "variants: {a: {quantize: int9}}", "int8"),
    (3, "variants: {a: {quantize: nf4}}", "not in this version"),
    (3, "variants: {a: {quantize: gptq}}", "`calibration` is missing"),
    (3, "variants: {a: {quantize: {method: gptq, calibration: calibraton}}}", "no shipped calibration set"),
    (3, "variants: {a: {quantize: {method: awq, calibration: ./none.yaml}}}", "no calibration set at"),
    (3, "variants: {a: {quantize: {method: gptq, bits: 5, calibration: calibration}}}", "2, 3, 4 or 8 bits"),
    (3, "variants: {a: {quantize: {method: awq, calibration: calibration, keep: [lm_head]}}}", "`keep` maps"),
    (3, "variants: {a: {quantize: {method: int4, keep: {mlp: int9}}}}", "`keep` has 'int9'"),
    (3, "variants: {a: {quantize: {method: int4, keep: {lm_head: int8}}}}", "not in this version"),
    (3, "variants: {a: {quantize: {method: int4, symmetric: 0}}}", "true or false"),
    (3, "variants: {a: {quantize: {method: fp8, activations: int8}}}", "activations: fp8"),
    (3, "variants: {a: {quantize: {method: int8, group_size: 32, granularity: tensor}}}", "contradict"),
    (3, "variants: {a: {quantize: {method: int4, group_size: 7}}}", "group_size 7"),
    (3, "variants: {Baseline: {quantize: int8}}", "cannot be called baseline"),
    (3, "variants: {a: {quantize: {method: [int4]}}}", "must be one name, not a list"),
    (3, "variants: {a: {quantize: {method: {a: 1}}}}", "must be one name, not a dict"),
    (3, "variants: {a: {quantize: {method: int8, bits: 4}}}", "has 8 bits"),
    (3, "variants: {a: {quantize: {method: mxfp4, group_size: 64}}}", "blocks of 32"),
    (3, "variants: {a: {quantise: int8}}", "did you mean 'quantize'?"),
    (3, "variants: {a: {quantize: int8, kv_cache: int8}}", "`kv_cache` is not in this version"),
    (3, "variants: {a: {model: m, speculation: {tokens: 5}}}", "`speculation` is not in this version"),
    (3, "variants: {a: {model: m, endpoint: 'http://x', api_key_env: KEY}}", "`endpoint`, `api_key_env` is not"),
    (3, "variants: {a: {model: m, endpoint: 'http://x', api_key_env: sk-abc123}}", "NAME of an environment variable"),
    (3, "variants: {a: {quantize: int8, api_key: x}}", "did you mean 'api_key_env'?"),
    (4, "evalsets: []", "at least 1 item"),
    (4, "evalsets: arithmetic", "should be a list, `[…, …]`"),
    (4, "evalsets: [aritmetic]", "did you mean 'arithmetic'?"),
    (4, "evalsets: [arithmetic, arithmetic]", "'arithmetic' twice"),
    (4, "evalsets: [./ours/support.yaml, ours/support.yaml]", "'support' twice"),
    (4, "evalsets: [./theirs.yaml]", "no evalset at"),
    (4, f"evalsets: [./{'a' * 300}.yaml]", "no evalset at"),
    (4, 'evalsets: ["./a\\0b.yaml"]', "no evalset at"),
    (4, "evalsets: [3]", "not 3"),
    (5, "gate: {alpha: 0, rules: [{metric: exact_match, max_drop: 0.02}]}", "greater than 0"),
    (5, "gate: {alpha: 0.5, rules: [{metric: exact_match, max_drop: 0.02}]}", "less than 0.5"),
    (5, "gate: {alpha: .nan, rules: [{metric: exact_match, max_drop: 0.02}]}", "finite"),
    (5, "gate: {alpha: 5e-2, rules: [{metric: exact_match, max_drop: 0.02}]}", "YAML readers disagree"),
    (5, "gate: {review: sometimes, rules: [{metric: exact_match, max_drop: 0.02}]}", "'never' or 'always'"),
    (5, "gate: {stop: soon, rules: [{metric: exact_match, max_drop: 0.02}]}", "'end' or 'early'"),
    (5, "gate: {stop: early, noise_floor: true, rules: [{metric: exact_match, max_drop: 0.02}]}", "a noise floor"),
    (5, "gate: {noise_floor: 1, rules: [{metric: exact_match, max_drop: 0.02}]}", "valid boolean"),
    (5, "gate: {identity: names, rules: [{metric: exact_match, max_drop: 0.02}]}", "'hash' or 'ids'"),
    (5, "gate: {rules: []}", "at least 1 item"),
    (5, "gate: {}", "`gate.rules` is missing"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "change", "message"), ONE_LINE_CHANGES, ids=[c[1][:60] for c in ONE_LINE_CHANGES])
def test_a_mistake_is_named_with_its_line(faults, line, change, message):
    lines = SMALL.splitlines()
    lines[line - 1] = change
    found = faults("\n".join(lines) + "\n")
    assert any(message in text and number == line for number, text in found), found
    assert "\x1b" not in str(found)


@pytest.mark.parametrize(
    ("line", "change", "message"),
    [
        (2, "baseline: {modle: ./base}", "unknown key 'modle'; did you mean 'model'?"),
        (2, "base_line: {model: ./base}", "unknown key 'base_line'; did you mean 'baseline'?"),
        (5, "gate: {ruls: [{metric: exact_match, max_drop: 0.1}]}", "unknown key 'ruls'; did you mean 'rules'?"),
        (5, "gate: {rules: [{metrc: exact_match, max_drop: 0.1}]}", "unknown key 'metrc'; did you mean 'metric'?"),
    ],
)
def test_a_misspelt_key_is_one_mistake(faults, line, change, message):
    lines = SMALL.splitlines()
    lines[line - 1] = change
    assert faults("\n".join(lines) + "\n") == [(line, message)]


def test_a_key_that_is_missing_beside_an_unknown_one_is_said_too(faults):
    found = faults("\n".join([*SMALL.splitlines()[:1], "baseline: {folder: ./base}", *SMALL.splitlines()[2:], ""]))
    assert [message.partition(";")[0] for _, message in found] == [
        "`baseline.model` is missing",
        "unknown key 'folder'",
    ]


RULES = [
    ("{metric: exact_mach, max_drop: 0.02}", "did you mean 'exact_match'?"),
    ("{metric: exact_match}", "sets one bound, `max_drop` or `max_relative_drop`; found none"),
    ("{metric: exact_match, max_drop: 0.1, max: 0.2}", "found max_drop, max"),
    ("{metric: exact_match, max: 0.1}", "`max_relative_drop`; found max"),
    ("{metric: drift.kl_mean, max_drop: 0.1}", "`max`; found max_drop"),
    ("{metric: drift.top1_agreement, max: 0.1}", "`min`; found max"),
    ("{metric: latency.tpot, max: 0.1}", "`max_ratio`; found max"),
    ("{metric: exact_match, max_drop: 0}", "greater than 0"),
    ("{metric: exact_match, max_drop: 1}", "could never be proven"),
    ("{metric: exact_match, max_drop: 0.2}", "must be below 0.2"),
    ("{metric: exact_match, max_drop: -0.1}", "greater than 0"),
    ("{metric: exact_match, max_drop: '0.1'}", "valid number"),
    ("{metric: exact_match, max_drop: 1e-2}", "YAML readers disagree"),
    ("{metric: exact_match, max_drop: 010}", "YAML readers disagree"),
    ("{metric: exact_match, max_drop: true}", "valid number"),
    ("{metric: exact_match, max_drop: }", "valid number"),
    ("{metric: exact_match, max_drop: [0.1]}", "valid number"),
    ("{metric: drift.kl_mean, max: .inf}", "finite"),
    ("{metric: drift.top1_agreement, min: 1.1}", "less than or equal to 1"),
    ("{metric: latency.tpot, max_ratio: 0}", "greater than 0"),
    ("{metric: latency.tpot, max_ratio: 1.1, percentile: 100}", "less than 100"),
    ("{metric: latency.tpot, max_ratio: 1.1, percentile: 0}", "greater than 0"),
    ("{metric: exact_match, max_drop: 0.1, percentile: 95}", "goes with latency metrics"),
    ("{metric: exact_match, max_drop: 0.1, per: evalset, evalset: arithmetic}", "write one of the two"),
    ("{metric: exact_match, max_drop: 0.1, per: topic}", "'evalset', 'task' or 'tag:NAME'"),
    ("{metric: exact_match, max_drop: 0.1, evalset: arithmetics}", "is not one this file runs: arithmetic"),
    ("{metric: exact_match, max_drop: 0.1, max_relative_drop: 0.1}", "found max_drop, max_relative_drop"),
    ("{metric: exact_match, max_relative_drop: 0.2}", "must be below 0.2"),
    ("{metric: exact_match, max_drop: 0.1, where: {tag: left, task: right}}", "one of `tag` and `task`"),
    ("{metric: exact_match, max_drop: 0.1, where: {tags: x}}", "did you mean 'tag'?"),
    ("{metric: exact_match, max_drop: 0.1, where: tag:left}", "`{tag: left}` with a space after the colon"),
    ("{metric: exact_match, max_drop: 0.1, where: tag:size:big}", "`{tag: size:big}` with a space after the colon"),
    ("{metric: exact_match, max_drop: 0.1, where: left}", "should be a mapping, such as `{tag: NAME}`"),
    ("{metric: exact_match, max_drop: 0.1, where: [tag, left]}", "such as `{tag: NAME}`"),
    ("{metric: exact_match, max_drop: 5%}", "without quotes or a unit, a share such as 0.05 (found '5%')"),
    ("{metric: 7, max_drop: 0.1}", 'should be a text; quote it: "7"'),
    ("{metric: exact_match, max_drop: 0.1, per: 'tag:'}", "'tag:NAME'"),
    ("{metric: exact_match, max_drop: 0.1, repeats: some}", "'mean'"),
    ("{metric: drift.kl_mean, max: 0.1, repeats: any}", "goes with metrics of quality"),
    ("{metric: exact_match, max_drop: 0.1, tier: blocking}", "'critical'"),
    ("{metric: exact_match, max_drop: 0.1, evalest: arithmetic}", "did you mean 'evalset'?"),
    ("{metric: memory.peak, max_ratio: 0.8, per: evalset}", "a number of the variant as a whole"),
    ("{metric: coverage.range, min: 0.9, where: {tag: x}}", "a number of the variant as a whole"),
    ("{metric: stability.sqnr, max: 3}", "`min`; found max"),
    ("{metric: goodput, min: 2}", "less than or equal to 1"),
    ("{max_drop: 0.1}", "metric` is missing"),
    ("exact_match", "should be a mapping"),
    ("{metric: exact_match, max_drop: 0.02}", "repeats the one on line 6"),
    ("{metric: exact_match, max_drop: 0.03}", "contradicts the one on line 6"),
    *((f"{{metric: {name}, max: 1}}", "not in this version") for name in PLANNED),
]  # fmt: skip
BEFORE_RULES = SMALL.splitlines()[:4]


@pytest.mark.parametrize(("rule", "message"), RULES, ids=[rule for rule, _ in RULES])
def test_a_rule_that_cannot_be_meant_is_refused(faults, rule, message):
    text = "\n".join([*BEFORE_RULES, "gate:", "  rules: [{metric: exact_match, max_drop: 0.02},", f"    {rule}]", ""])
    found = faults(text)
    assert any(number == 7 and message in text for number, text in found), found


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("generation: {temperature: -1}", "negative"),
        ("generation: {temperature: 0.001}", "or from 0.01 to 100"),
        ("generation: {temperature: 1000}", "or from 0.01 to 100"),
        ("generation: {temperature: .nan}", "finite number"),
        ("generation: {temperature: 0.7, top_p: 0.9}", "`generation.top_p` is not in this version"),
        ("generation: {temperature: 0.7, top_k: 40}", "`generation.top_k` is not in this version"),
        ("generation: {temperature: 0.7, repeats: 1001}", "from 1 to 1,000"),
        ("generation: {repeats: 3}", "temperature 0, where all answers to a case are equal"),
        ("generation: {repeats: 0}", "from 1"),
        ("generation: {seed: -1}", "greater than or equal to 0"),
        ("generation: {seed: true}", "valid integer"),
        ("store: postgresql+psycopg://me:hunter2@host/db", "PostgreSQL store is not in this version"),
        ("store: qualgate.db", "sqlite:///FILE"),
        ("store: 'sqlite:///:memory:'", "plain file"),
        ("store: sqlite:///q.db?mode=ro", "plain file"),
        ("store: 'sqlite:///'", "sqlite:///FILE"),
        ("store: sqlite:///a/", "sqlite:///FILE"),
        ("store: sqlite:///~nosuch/q.db", "no such user's home folder"),
        ('store: "sqlite:///a\\0b"', "cannot be a path"),
        ("workers: {backend: ray}", "Ray backend is not in this version"),
        ("workers: {backend: slurm}", "unknown backend 'slurm'"),
        ("workers: {count: 0}", "from 1 to 256"),
        ("workers: {count: many}", "or auto"),
        ("workers: {count: true}", "from 1 to 256"),
        ("workers: {devices: 'cuda:0'}", "not in this version"),
        ("workers: {devices: tpu}", "unknown devices"),
        ("wrokers: {count: 2}", "did you mean 'workers'?"),
    ],
)
def test_a_section_that_cannot_be_served_is_refused(faults, more, message):
    found = faults(SMALL + more + "\n")
    assert len(found) == 1
    assert found[0][0] == 6
    assert message in found[0][1]
    assert "hunter2" not in found[0][1]


def test_all_faults_are_reported_at_once(faults):
    text = WHOLE.replace("mxfp4}", "mxfp5}").replace("alpha: 0.1", "alpha: 7").replace("exact_match, max", "exact, max")
    assert [number for number, _ in faults(text)] == [4, 10, 13]


def test_only_keys_of_the_future_make_it_not_in_this_version(load):
    with pytest.raises(NotInThisVersion):
        load(SMALL + "workers: {backend: ray}\ngeneration: {top_p: 0.5}\n")
    with pytest.raises(UsageError) as error:
        load(SMALL + "workers: {backend: ray}\ngeneration: {repeats: -2}\n")
    assert not isinstance(error.value, NotInThisVersion)


@pytest.mark.parametrize(
    "rules",
    [
        "{metric: exact_match, max_drop: 0.02, tier: supporting}",
        "{metric: drift.kl_mean, max: 0.1}",
        "{metric: latency.tpot, max_ratio: 1.1}",
    ],
)
def test_a_policy_that_could_never_approve_is_refused(faults, rules):
    (fault,) = faults("\n".join([*BEFORE_RULES, f"gate: {{rules: [{rules}]}}", ""]))
    assert "no critical rule on quality" in fault[1]


def test_a_quarantine_has_an_owner_a_reason_and_a_last_day(load, faults):
    def text(settings: str) -> str:
        return "\n".join([*BEFORE_RULES, f"gate: {{rules: [{{metric: numeric, max_drop: 0.1}}], {settings}}}", ""])

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
    assert len(load("\n".join([*BEFORE_RULES, f"gate: {{rules: [{rules}]}}", ""])).policy.rules) == 2


@pytest.mark.parametrize(("metric", "bound"), [(m, bound) for m in METRICS.values() for bound in m.bounds])
def test_every_metric_can_stand_in_a_rule(load, metric, bound):
    rule = f"{{metric: {metric.name}, {'' if metric.kind == 'arm' else 'per: evalset, '}{bound}: 0.15}}"
    text = [*BEFORE_RULES, f"gate: {{rules: [{{metric: numeric, max_drop: 0.1}}, {rule}], noise_floor: true}}"]
    gate = load("\n".join([*text, "prices: prices.yaml", "slo: {e2e: 10}", ""]))
    assert getattr(gate.policy.rules[1], bound) == 0.15


@pytest.mark.parametrize(
    ("rule", "missing"),
    [
        ("{metric: goodput, min: 0.9}", "needs limits"),
        ("{metric: stability.rerun, min: 1}", "needs a second run of the baseline"),
        ("{metric: cost_per_accepted_answer, max_ratio: 1}", "needs a price table"),
    ],
)
def test_a_rule_that_nothing_could_measure_is_refused(faults, rule, missing):
    (fault,) = faults("\n".join([*BEFORE_RULES, f"gate: {{rules: [{{metric: numeric, max_drop: 0.1}}, {rule}]}}", ""]))
    assert missing in fault[1]


def test_decibels_go_beyond_one_and_a_size_may_have_two_limits(load):
    sizes = "{metric: memory.peak, max: 8000000000}, {metric: memory.peak, max_ratio: 0.6}"
    rules = f"{{metric: stability.sqnr, min: 20}}, {sizes}"
    gate = load("\n".join([*BEFORE_RULES, f"gate: {{rules: [{{metric: numeric, max_drop: 0.1}}, {rules}]}}", ""]))
    assert [rule.min or rule.max or rule.max_ratio for rule in gate.policy.rules[1:]] == [20, 8e9, 0.6]


NEL = "version: 1\ndefaults: {tier: critical, metric: mean_reward, max_drop: 0.02}\n"


def test_an_nel_policy_takes_the_place_of_the_rules(load, faults, tmp_path):
    (tmp_path / "nel.yaml").write_text(NEL)
    text = "\n".join([*BEFORE_RULES, "gate: {nel_policy: nel.yaml, review: always, max_age: 2d}", ""])
    gate = load(text)
    assert (gate.nel_policy, gate.policy.rules) == (tmp_path / "nel.yaml", ())
    assert (gate.policy.review, gate.policy.max_age) == ("always", 172_800)
    for other, message in (
        ("nel_policy: gone.yaml", "no file"),
        ("nel_policy: ''", "a file's name is empty"),
        ("nel_policy: 'https://x/p.yaml'", "not in this version"),
        ("nel_policy: nel.yaml, rules: [{metric: numeric, max_drop: 0.1}]", "`rules` and `nel_policy` are two ways"),
        ("nel_policy: nel.yaml, alpha: 0.1", "has a level of its own"),
        ("review: always", "`gate.rules` is missing"),
    ):
        assert any(message in said for _, said in faults("\n".join([*BEFORE_RULES, f"gate: {{{other}}}", ""]))), other


def test_a_stored_run_needs_no_model_folder(write):
    text = SMALL.replace("reference", "./gone").replace("arithmetic", "./gone/set.yaml")
    assert load_gate_file(write(text), files=False).baseline.model.endswith("/gone")


def test_auto_workers_are_the_usable_cores(load):
    assert load(SMALL + "workers: {count: auto}\n").workers >= 1


def test_an_existing_folder_may_be_named_bare(load, tmp_path):
    (tmp_path / "mine").mkdir()
    assert load(SMALL.replace("reference", "mine")).baseline.model == str(tmp_path / "mine")


def test_an_absolute_store_stays_where_it_is(load):
    assert load(SMALL + "store: sqlite:////var/q.db\n").store_url == "sqlite:////var/q.db"


def test_a_missing_gate_file_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="no such file"):
        load_gate_file(tmp_path / "gate.yaml")
    with pytest.raises(UsageError, match="cannot be read"):
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


def test_variants_may_say_themselves_which_arm_they_are(load):
    text = FOUR.partition("four_arm")[0]
    for name, role in (("int4", "quantization"), ("two", "both")):
        text = text.replace(f"{name}: {{", f"{name}: {{arm: {role}, ")
    gate = load(text.replace("drafted: {", "drafted: {arm: speculation, "))
    assert gate.four_arm == FourArms(quantization="int4", speculation="drafted", both="two")
    assert load(text).four_arm is None  # one role is nobody's


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("both: two", "both: tow", "no variant 'tow'; did you mean 'two'"),
        ("both: two, ", "", "four_arm.both` is missing"),
        ("both: two", "both: int4", "'int4' is quantization already"),
        ("two: {", "two: {arm: speculation, ", "four_arm names 'drafted'"),
        ("slo: {ttft: 0.5, e2e: 10}", "slo: {}", "limits nothing"),
        ("slo: {ttft: 0.5", "slo: {ttft: -1", "greater than 0"),
        ("prices: prices.yaml", "prices: gone.yaml", "no file"),
        ("prices: prices.yaml\n", "", "needs a price table"),
        ("feedback: said.jsonl", "feedback: gone.jsonl", "no file"),
    ],
)
def test_contradictory_arms_and_terms_are_refused(load, old, new, message):
    with pytest.raises(UsageError, match=message):
        load(FOUR.replace(old, new, 1))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("version: a\ncurrency: EUR\n", "every price is 0"),
        ("version: a\ncurrency: EUR\ndevice_second: 1\n", "prices.yaml:3: .*needs `concurrency`"),
        ("version: a\ncurrency: EUR\nprompt_token: 1\nconcurrency: 2\n", "says nothing without"),
        ("version: a\ncurrency: EUR\nprompt_token: -1\n", "greater than or equal to 0"),
        ("version: a\nprompt_token: 1\n", "`currency` is missing"),
        ('version: ""\ncurrency: EUR\nprompt_token: 1\n', "1 to 64 printable"),
        ("version: a\ncurrency: EUR\nprompt_tokens: 1\n", "did you mean 'prompt_token'"),
        ("", "empty"),
    ],
)
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
