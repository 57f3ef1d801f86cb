"""What a plan makes of folders that declare how keys and values are held, and of `--blame` where they are rounded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from qualgate.config import load_gate_file
from qualgate.errors import NotInThisVersion, UsageError
from qualgate.pipeline.arms import as_run, with_witnesses
from qualgate.pipeline.plan import make_plan
from qualgate.records import TWIN, WIDE
from tests.engine.test_own_cache import COMPRESSED, GOOD, K0, scaled
from tests.gated_model import GATE_FILE, write_evalset
from tests.tiny_models import save_tiny_model

DECLARING = "  same: {model: ./declaring}\n"


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    scaled(save_tiny_model(folder / "model"), folder / "declaring", declared=COMPRESSED)
    tensors = {name: tensor.clone() for name, tensor in GOOD.items()}
    scaled(folder / "model", folder / "broken", tensors | {K0: tensors[K0] * -1}, COMPRESSED)
    write_evalset(folder, [{"id": "a", "prompt": "x", "max_new_tokens": 4, "answer": "y"}])
    return folder


def gate(models: Path, variants: str, baseline: str = "{model: ./model}"):
    lines = GATE_FILE.replace("{model: ./model, dtype: float32}\nvariants", f"{baseline}\nvariants").splitlines()
    text = "\n".join(line for line in lines if not line.startswith("  same:") and not line.startswith("  int2:"))
    (models / "gate.yaml").write_text(text.replace("variants:", f"variants:\n{variants.rstrip()}") + "\n")
    return load_gate_file(models / "gate.yaml")


def held(models: Path, variants: str, **more) -> dict[str, str]:
    plan = make_plan(as_run(gate(models, variants, **more)))
    assert {arm.name: arm.kv_cache for arm in plan.arms} == {job.arm.name: job.arm.kv_cache for job in plan.jobs}
    return {arm.name: plan.identities[arm.name].kv_cache for arm in plan.arms}


def test_a_folder_that_declares_its_cache_is_served_so_unless_the_gate_file_says_otherwise(models):
    own = "fp8, scales of the checkpoint"
    assert held(models, DECLARING) == {"baseline": "", "same": own}
    assert held(models, "  same: {model: ./declaring, kv_cache: float32}\n") == {"baseline": "", "same": ""}
    told = held(models, DECLARING, baseline="{model: ./model, kv_cache: bf16}")
    assert told == {"baseline": "bf16", "same": "bf16"}, "what the baseline says is said of variants, too"
    assert held(models, "  int8: {quantize: int8}\n", baseline="{model: ./declaring}") == {"baseline": own, "int8": own}
    assert held(models, "  kv: {kv_cache: fp8}\n") == {"baseline": "", "kv": "fp8"}


@pytest.mark.parametrize(
    ("device", "kernels", "baseline", "found"),
    [
        ("cuda", True, "{model: ./model}", "served"),
        ("cuda", False, "{model: ./model}", "float32"),
        ("cuda", True, "{model: ./model, dtype: float32}", "float32"),
        ("cuda", True, "{model: ./model}\narithmetic: float32", "float32"),
        ("cpu", True, "{model: ./model}", "float32"),
    ],
    ids=["a GPU", "without our kernels", "nothing to round to", "said", "a CPU"],
)
def test_a_gpu_computes_as_servers_do_where_the_gate_file_does_not_say(
    models, monkeypatch, device, kernels, baseline, found
):
    for module in ("arms", "checks"):
        monkeypatch.setattr(f"qualgate.pipeline.{module}.choose_device", lambda devices: device)
    monkeypatch.setattr("qualgate.engine.arithmetic.packs", lambda device: kernels)
    plan = make_plan(as_run(gate(models, "  int8: {quantize: int8}\n", baseline=baseline)))
    assert {arm.arithmetic for arm in plan.arms} == {found}


def test_scales_that_cannot_be_stop_the_plan(models):
    with pytest.raises(UsageError, match=r"model\.safetensors: tensor \S+k_scale is -0\.5, expected a positive number"):
        make_plan(as_run(gate(models, "  same: {model: ./broken}\n")))


def test_blame_runs_a_variant_with_the_baselines_cache_too(models):
    text = "  kv: {kv_cache: int4}\n  both: {quantize: int8, kv_cache: int4}\n  int8: {quantize: int8}\n" + DECLARING
    found = {arm.name: arm for arm in with_witnesses(gate(models, text)).variants}
    assert [name for name in found if WIDE in name] == [f"kv{WIDE}", f"both{WIDE}", f"same{WIDE}"]
    assert found[f"both{WIDE}"] == replace(found["both"], name=f"both{WIDE}", kv_cache="float32", kv_said=True)
    assert found[f"both{TWIN}"].kv_cache == "float32", "its rows are in padded batches"
    narrow = with_witnesses(
        gate(models, text + "  whole: {quantize: int8, kv_cache: float32}\n", "{model: ./model, kv_cache: bf16}")
    )
    assert [arm.name for arm in narrow.variants if TWIN in arm.name] == [f"whole{TWIN}"], "else two parts are left out"
    plan = make_plan(as_run(gate(models, text), blame=True))
    assert plan.identities[f"both{WIDE}"] == plan.identities["int8"]
    assert plan.identities[f"same{WIDE}"].kv_cache == ""


@pytest.mark.parametrize(
    ("more", "said"),
    [("  kv: {kv_cache: int8}\n", "kv_cache: int8"), (DECLARING, "kv_cache: fp8")],
    ids=["said", "declared"],
)
def test_a_cache_that_a_gpu_without_our_kernels_does_not_hold_is_refused_where_the_plan_is_made(
    models, monkeypatch, more, said
):
    monkeypatch.setattr("qualgate.pipeline.checks.choose_device", lambda devices: "cuda")
    assert make_plan(as_run(gate(models, more)))
    monkeypatch.setattr("qualgate.pipeline.checks.packs", lambda device: False)
    with pytest.raises(NotInThisVersion, match=rf"is to run with `{said}`, and models run in padded batches on a GPU"):
        make_plan(as_run(gate(models, more)))
