"""Drafts of a run: what a plan refuses of them, what it tells, and what else of the plan they change."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from qualgate.config import load_gate_file
from qualgate.errors import NotInThisVersion, UsageError
from qualgate.pipeline import check_drafts, checks
from qualgate.pipeline.arms import as_run, with_witnesses
from qualgate.pipeline.check_drafts import drafts_that_cannot_pay
from qualgate.pipeline.from_files import judge_files
from qualgate.pipeline.jobs import worker_settings
from qualgate.pipeline.plan import make_plan
from qualgate.pipeline.staleness import changes_since
from qualgate.records import PLAIN, TWIN, ArmSpec, DraftSource, Job, ModelFacts, Plan, QuantizeRecipe, Speculation
from qualgate.store import queries, runs
from qualgate.store.database import open_store
from tests.engine.draft_heads.heads import save_eagle3
from tests.engine.draft_heads.models_ahead import save_model_ahead
from tests.gated_model import write_evalset
from tests.tiny_models import save_tiny_model

SELF = "{draft: {quantize: {method: int4, group_size: 16}}}"
OTHER = "{draft: {model: ./small}}"
GATE_FILE = """\
version: 1
baseline: {model: ./model, dtype: float32}
variants:
  int8: {quantize: int8}
  drafted: {speculation: SAID}
evalsets: [./echo.yaml]
gate: {rules: [{metric: exact_match, max_drop: 0.10}]}
store: sqlite:///qualgate.db
workers: {backend: local, count: 1, devices: cpu}
"""
FOUR = """\
version: 1
baseline: {model: ./model, dtype: float32}
variants:
  q: {quantize: int8, arm: quantization}
  s: {speculation: {draft: ngram}, arm: speculation}
  x: {quantize: int8, speculation: {draft: {model: ./small}}, arm: both}
evalsets: [./echo.yaml]
gate: {rules: [{metric: exact_match, max_drop: 0.10}]}
store: sqlite:///qualgate.db
workers: {backend: local, count: 1, devices: cpu}
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("drafts")
    save_tiny_model(folder / "model", dtype="float32")
    save_tiny_model(folder / "small", layers=1, width=32, dtype="float32", seed=1)
    return folder


@pytest.fixture
def room(made, tmp_path) -> Path:
    for name in ("model", "small"):
        shutil.copytree(made / name, tmp_path / name)
    rows = [
        {"id": f"c{number:03d}", "prompt": "x" * (1 + number), "max_new_tokens": 4 + number % 30, "answer": "y"}
        for number in range(40)
    ]
    write_evalset(tmp_path, rows)
    return tmp_path


def planned(room: Path, said: str, text: str = GATE_FILE) -> Plan:
    (room / "gate.yaml").write_text(text.replace("SAID", said))
    return make_plan(as_run(load_gate_file(room / "gate.yaml")))


def jobs_of(plan: Plan, arm: str) -> list[Job]:
    """Without the folder of the run."""
    return [replace(job, artifact=Path(job.artifact).name) for job in plan.jobs if job.arm.name == arm]


def edit(file: Path, **changes) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def test_an_arm_that_speculates_says_every_token_by_its_own_draft(room):
    plan = planned(room, SELF)
    by_arm = {name: [job for job in plan.jobs if job.arm.name == name] for name in ("baseline", "int8", "drafted")}
    assert {name: {job.drafted for job in jobs} for name, jobs in by_arm.items()} == {
        "baseline": {False}, "int8": {True}, "drafted": {False}
    }  # fmt: skip
    assert all(job.artifact for jobs in by_arm.values() for job in jobs), "its drift is measured all the same"
    assert [job.prompts[0].token_ids for job in by_arm["int8"]] == [
        job.prompts[0].token_ids for job in by_arm["drafted"]
    ]


def test_arms_without_speculation_are_planned_as_they_were_beside_one_that_has_it(room):
    """Its presence changes their identities and jobs in nothing; and a run without any keeps its key."""
    alone = planned(room, SELF, GATE_FILE.replace("  drafted: {speculation: SAID}\n", ""))
    beside = planned(room, SELF)
    for name in ("baseline", "int8"):
        assert alone.identities[name] == beside.identities[name]
        assert jobs_of(alone, name) == jobs_of(beside, name)
    assert alone.identities["int8"].speculation == ""
    assert replace(beside.identities["drafted"], speculation="") == beside.identities["baseline"]


def test_the_key_follows_who_drafts_and_how(room):
    keys = [
        planned(room, said).key
        for said in (SELF, SELF.replace("16", "32"), "{draft: ngram}", "{draft: ngram, tokens: 4}", OTHER,
                     "{draft: suffix}")
    ]  # fmt: skip
    assert len(set(keys)) == len(keys)
    under = "{draft: {quantize: int8, under: {draft: {quantize: mxfp4}}}}"
    assert planned(room, under).key not in (*keys, planned(room, "{draft: {quantize: int8}}").key)
    raw = bytearray((room / "small" / "model.safetensors").read_bytes())
    raw[-1] ^= 1
    (room / "small" / "model.safetensors").write_bytes(raw)
    assert planned(room, OTHER).key not in keys


# ------------------------------------------------------------------------------------------------------ refused


def other_tokenizer(room: Path) -> None:
    edit(room / "small" / "tokenizer.json", normalizer={"type": "Lowercase"})


def of_entries(room: Path, count: int) -> None:
    """The small model's embeddings and output head cut, or filled up with zeros, to so many entries."""
    file = room / "small" / "model.safetensors"
    tensors = load_file(file)
    for name in ("lm_head.weight", "model.embed_tokens.weight"):
        kept = tensors[name][:count]
        tensors[name] = torch.cat([kept, kept.new_zeros(count - len(kept), kept.shape[1])])
    save_file(tensors, file, metadata={"format": "pt"})
    edit(room / "small" / "config.json", vocab_size=count)


REFUSED = {
    "no folder": (OTHER, lambda room: shutil.rmtree(room / "small"), "no model folder"),
    "no weights": (OTHER, lambda room: (room / "small" / "model.safetensors").unlink(), "small holds no weights"),
    "another tokenizer": (
        OTHER, other_tokenizer,
        r"drafted: the tokenizer of its draft .*small \(vocabulary of 260\) is not that of its target .*model",
    ),
    "another vocabulary under the cascade": (
        "{draft: {quantize: int8, under: {draft: {model: ./small}}}}", other_tokenizer, "drafted: the tokenizer of",
    ),
    "a short context": (
        OTHER, lambda room: edit(room / "small" / "config.json", max_position_embeddings=48),
        r"do not fit the 48 tokens of context of .*small",
    ),
    "too few entries": (
        OTHER, lambda room: of_entries(room, 80), r"echo/c\d+ holds the token 87, and its draft .*small has 80",
    ),
    "a recipe that does not fit": (
        "{draft: {quantize: {method: int4, group_size: 48}}}", lambda room: None, "not a multiple of the group size 48",
    ),
    "data that is also asked": (
        "{draft: {quantize: {method: gptq, group_size: 16, calibration: ./cal.yaml}}}", lambda room: None, "echo/c",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", REFUSED)
def test_a_draft_that_cannot_work_is_refused_before_anything_is_generated(room, fault):
    said, spoil, message = REFUSED[fault]
    (room / "cal.yaml").write_text("name: cal\nversion: '1'\nkind: calibration\n")
    (room / "cal.jsonl").write_text(json.dumps({"id": "a", "prompt": "x" * 5, "answer": "y"}) + "\n")
    if "data" not in fault:
        planned(room, SELF if "48" in said else said)
    spoil(room)
    with pytest.raises(UsageError, match=message) as refused:
        planned(room, said)
    assert not isinstance(refused.value, NotInThisVersion)


HEAD = "{draft: {head: ./head}, tokens: 3}"


def test_a_head_is_planned_for_a_target_of_its_sizes_and_refused_for_others(room):
    save_eagle3(room / "head", reads=[1])
    plan = planned(room, HEAD)
    assert plan.identities["drafted"].weights == plan.identities["baseline"].weights
    first = plan.identities["drafted"].speculation
    shutil.rmtree(room / "head")
    save_eagle3(room / "head", reads=[1], seed=1)
    assert planned(room, HEAD).identities["drafted"].speculation != first
    small = GATE_FILE.replace("{speculation: SAID}", "{model: ./small, another_model: true, speculation: SAID}")
    with pytest.raises(UsageError, match="hidden size of 64, and its"):
        planned(room, HEAD, small)


def test_a_model_s_own_layer_is_planned_for_it_and_one_without_is_refused(room):
    with pytest.raises(UsageError, match="hold none"):
        planned(room, "{draft: {head: own}}")
    shutil.rmtree(room / "model")
    save_model_ahead(room / "model")
    plan = planned(room, "{draft: {head: own}}")
    assert plan.identities["drafted"].weights == plan.identities["baseline"].weights
    packed = planned(room, "{draft: {head: own}}", GATE_FILE.replace("{speculation", "{quantize: int8, speculation"))
    assert len({one.identities["drafted"].speculation for one in (plan, packed)}) == 1


def test_a_self_draft_of_packed_weights_is_refused_by_the_way_out(room):
    """The variant is a quantized folder, so its own weights cannot be quantized once more."""
    folder = Path(shutil.copytree(room / "model", room / "packed"))
    edit(folder / "config.json", quantization_config={"quant_method": "gptq", "bits": 4, "group_size": 32})
    text = GATE_FILE.replace("{speculation: SAID}", "{model: ./packed, speculation: SAID}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checks, "check_weights", lambda *arguments, **more: None)  # its files are no such checkpoint
        with pytest.raises(
            UsageError, match=r"drafted: .*packed are quantized already \(gptq\).*draft: \{model: FOLDER"
        ):
            planned(room, "{draft: {quantize: mxfp4}}", text)


def test_another_template_padding_and_stop_tokens_of_a_draft_are_its_own_affair(room):
    (room / "small" / "chat_template.jinja").write_text("{{ messages }} of another kind")
    edit(room / "small" / "generation_config.json", eos_token_id=[3])
    of_entries(room, 320)
    (line,) = check_drafts.drafts_of_another_template(planned(room, OTHER))
    assert line.startswith(f"drafted: its draft {room / 'small'} has another chat template than its target.")
    assert not [*check_drafts.drafts_of_another_template(planned(room, SELF))]


# --------------------------------------------------------------------------------------------------------- told


def told(room: Path, said: str, text: str = GATE_FILE) -> list[str]:
    return list(drafts_that_cannot_pay(planned(room, said, text)))


def test_a_draft_as_heavy_as_its_target_is_told_and_runs(room):
    assert told(room, OTHER) == told(room, SELF) == told(room, "{draft: ngram}") == []
    swapped = GATE_FILE.replace("./model", "./small")
    (line,) = told(room, "{draft: {model: ./model}}", swapped)
    assert line.startswith("drafted: a draft of about ")
    assert "a token costs as much to draft as to say" in line
    both = GATE_FILE.replace("{speculation: SAID}", "{quantize: int8, speculation: SAID}")
    (line,) = told(room, "{draft: {quantize: mxfp8}}", both)
    assert told(room, "{draft: {quantize: mxfp4}}", both) == []
    (line,) = told(room, "{draft: {quantize: mxfp4, under: {draft: {quantize: int8}}}}")
    assert line.startswith("drafted: ")


def test_bytes_are_those_of_files_where_the_folder_is_quantized(room):
    plan = planned(room, OTHER)
    target, small = str(room / "model"), str(room / "small")
    for nbytes, lines in ((plan.models[target].parameters * 4 - 1, 0), (plan.models[target].parameters * 4, 1)):
        facts = {**plan.models, small: ModelFacts(method="awq", parameters=10**9, nbytes=nbytes)}
        assert len(list(drafts_that_cannot_pay(replace(plan, models=facts)))) == lines


def test_the_memory_of_drafts_counts_where_arms_are_to_stay_loaded(room, monkeypatch):
    timed = GATE_FILE.replace("max_drop: 0.10}", "max_drop: 0.10}, {metric: latency.tpot, max_ratio: 2}")
    parameters = planned(room, OTHER, timed).models[str(room / "model")].parameters
    needed = 3 * parameters * 4 / 0.5  # three arms, floats, half of what there is
    monkeypatch.setattr("qualgate.pipeline.residency.memory", lambda device: needed)
    for said, keep in (("{draft: ngram}", True), (OTHER, False)):
        plan = planned(room, said, timed)
        assert worker_settings(load_gate_file(room / "gate.yaml"), plan).keep is keep


# --------------------------------------------------------------------------------------------------- four arms


def test_four_arms_of_our_own_engine_are_planned_in_blocks(room):
    plan = planned(room, "", FOUR)
    assert plan.policy.four_arm.blocks
    assert {job.arm.name for job in plan.jobs} == {"baseline", "q", "s", "x"}
    assert not any(job.drafted for job in plan.jobs)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("s: {speculation: {draft: ngram}", "s: {model: ./small, another_model: true, speculation: {draft: ngram}",
         "s is compared with baseline token by token, but has other weights"),
        ("x: {quantize: int8", "x: {quantize: mxfp8", "x is compared with q token by token"),
        ("s: {speculation", "s: {kv_cache: int8, speculation", "has its KV cache in int8, baseline in float32"),
        ("x: {quantize: int8", "x: {quantize: int8, kv_cache: bf16", "KV cache in bf16, q in float32"),
        ("x: {quantize: int8, speculation: {draft: {model: ./small}}", "x: {quantize: int8",
         "x should speculate by `four_arm` and has no draft"),
        ("workers:", "four_arm: {drafting: {s: {proposed: 5, accepted: 1}}}\nworkers:",
         "qualgate counts the drafts of every answer"),
    ],
)  # fmt: skip
def test_four_arms_that_are_no_four_arms_are_refused(room, old, new, message):
    assert old in FOUR
    with pytest.raises(UsageError, match=message):
        planned(room, "", FOUR.replace(old, new))


# ------------------------------------------------------------------------------------------- witnesses, files, store


def test_blame_runs_a_variant_without_its_draft_too(room):
    text = GATE_FILE.replace("  drafted:", "  both: {quantize: int8, speculation: {draft: ngram}}\n  drafted:")
    planned(room, SELF, text)
    gate = load_gate_file(room / "gate.yaml")
    arms = {arm.name: arm for arm in with_witnesses(gate).variants}
    assert list(arms) == ["int8", "both", "drafted", f"int8{TWIN}", f"both{TWIN}", f"both{PLAIN}", f"drafted{PLAIN}"]
    assert arms[f"both{PLAIN}"] == replace(arms["both"], name=f"both{PLAIN}", speculation=None)
    wide = replace(arms["both"], name=f"both{TWIN}", kernels="torch", speculation=None, kv_said=True)
    assert arms[f"both{TWIN}"] == wide, "keys and values in float32, whatever its folder declares"
    plan = make_plan(as_run(gate, blame=True))
    assert plan.identities[f"both{PLAIN}"] == plan.identities["int8"]
    assert {job.drafted for job in plan.jobs if job.arm.name == f"drafted{PLAIN}"} == {True}
    text = GATE_FILE.replace("  int8: {quantize: int8}\n", "").replace("{speculation: SAID}", "{model: ./model}")
    (room / "gate.yaml").write_text(text)
    with pytest.raises(UsageError, match="no variant of this gate file has any of these"):
        with_witnesses(load_gate_file(room / "gate.yaml"))


def test_blame_leaves_no_kernels_out_of_a_run_whose_arithmetic_they_alone_have(room):
    text = "arithmetic: served\n" + GATE_FILE.replace("{speculation: SAID}", "{speculation: {draft: ngram}}")
    (room / "gate.yaml").write_text(text)
    gate = load_gate_file(room / "gate.yaml")
    assert [arm.name for arm in with_witnesses(gate).variants] == ["int8", "drafted", f"drafted{PLAIN}"]
    alone = replace(gate, variants=tuple(arm for arm in gate.variants if arm.speculation is None))
    with pytest.raises(UsageError, match="With `arithmetic: served` the kernels stay"):
        with_witnesses(alone)


def test_score_files_are_of_another_engine_and_its_drafts(room):
    planned(room, SELF)
    for name in ("a", "b"):
        (room / name).write_text(json.dumps({"id": "c000", "metric": "exact_match", "value": 1}) + "\n")
    with pytest.raises(UsageError, match=r"`speculation` of drafted sets drafts for.*draft_proposed"):
        judge_files(load_gate_file(room / "gate.yaml"), room / "a", {"variant": room / "b"})


def test_a_stored_run_is_of_its_drafts_too(room):
    plan = planned(room, OTHER)
    with open_store(f"sqlite:///{room}/qualgate.db") as store:
        record = runs.begin(store, plan)
        summary = queries.run_summary(store, record.run_id)
        spec = next(arm.spec for arm in summary.arms if arm.name == "drafted")
        assert spec == ArmSpec(
            name="drafted", model=str(room / "model"), dtype="float32",
            speculation=Speculation(draft=DraftSource(kind="model", model=str(room / "small"))),
        )  # fmt: skip
        gate = load_gate_file(room / "gate.yaml")
        assert changes_since(summary, gate) == ()
        (room / "gate.yaml").write_text(GATE_FILE.replace("SAID", OTHER.replace("}}", "}, tokens: 3}")))
        (change,) = changes_since(summary, load_gate_file(room / "gate.yaml"))
        assert change.startswith("drafted: speculation changed since run")
        shutil.rmtree(room / "small")
        (change,) = changes_since(summary, gate)
        assert change.startswith("drafted cannot be held against run")


def test_a_cascade_comes_back_from_the_store_as_it_was_planned(room):
    under = "{draft: {model: ./small, quantize: int8, under: {draft: ngram, tokens: 7}}}"
    said = f"{{draft: {{quantize: {{method: int4, group_size: 16}}, under: {under}}}, tokens: 3}}"
    plan = planned(room, said)
    with open_store(f"sqlite:///{room}/qualgate.db") as store:
        summary = queries.run_summary(store, runs.begin(store, plan).run_id)
    assert [arm.spec for arm in summary.arms] == list(plan.arms)
    speculation = summary.arms[2].spec.speculation
    assert speculation.depth == 3
    assert speculation.draft.quantize == QuantizeRecipe(method="int4", group_size=16)
