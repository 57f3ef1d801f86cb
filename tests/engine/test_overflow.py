"""Activations that the declared dtype cannot hold: counted where a server stores them, and nowhere else."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from qualgate.engine.choice import open_engine
from qualgate.engine.decoder import open_model
from qualgate.engine.head import OutputHead
from qualgate.engine.job import run_job
from qualgate.engine.load import load_arm
from qualgate.engine.overflow import Overflows
from qualgate.engine.padded.forward import open_decoder
from qualgate.engine.request import Request
from qualgate.errors import UsageError
from qualgate.records import ArmSpec, QuantizeRecipe
from tests.engine.jobs import INT8, Kind, job, loaded, under
from tests.quant.readers.models import gptq_folder

RESIDUAL = ("embed_tokens.weight", "o_proj.weight", "down_proj.weight")


def scaled(folder: Path, factor: float, names: tuple[str, ...] = RESIDUAL) -> Path:
    """Times a power of two in what is added to the residual stream: norms take it out again, so answers stay."""
    tensors = load_file(folder / "model.safetensors")
    tensors = {name: tensor * factor if name.endswith(names) else tensor for name, tensor in tensors.items()}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return folder


@pytest.fixture(scope="module")
def quiet(saved) -> Path:
    return saved(dtype="float32")


@pytest.fixture(scope="module")
def loud(quiet, tmp_path_factory) -> Path:
    return scaled(Path(shutil.copytree(quiet, tmp_path_factory.mktemp("loud") / "model")), 2.0**15)


def overflow(
    model: Path, cache: Path, dtype: str = "float16", recipe: QuantizeRecipe | None = None, kind: Kind = "plain"
):
    arm = under(kind, loaded(model, cache, "baseline" if recipe is None else "v", recipe, dtype=dtype))
    assert arm.choice.kind == kind
    return run_job(arm, job(arm, "", count=6))


@pytest.mark.parametrize("kind", ["plain", "packed", "padded"])
def test_a_llama_whose_residual_stream_is_beyond_float16_is_counted(loud, quiet, tmp_path, kind):
    said, beyond = overflow(loud, tmp_path, kind=kind), overflow(quiet, tmp_path, kind=kind)
    assert [one.token_ids for one in said.completions] == [one.token_ids for one in beyond.completions]
    assert beyond.overflow == ()
    places, modules, counts = zip(*said.overflow, strict=True)
    assert list(places) == sorted(places)
    assert modules[0] == "model.layers.0.self_attn.o_proj"  # what enters layer 0 still fits
    assert {"what enters model.norm", "model.layers.1.mlp.down_proj"} <= set(modules)
    assert not {"model.norm", "lm_head", "keys of layer 1"} & set(modules)  # after the norm all is as it was
    assert min(counts) > 0


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_a_dtype_with_the_range_of_float32_overflows_nowhere_and_is_not_looked_at(loud, tmp_path, dtype):
    arm = loaded(loud, tmp_path, dtype=dtype)
    assert run_job(arm, job(arm, "", count=6)).overflow == ()
    with open_decoder(arm.model, dtype) as padded, open_model(arm.model, OutputHead(arm.model), dtype) as packed:
        for decoder in (padded, packed):
            assert decoder.overflows is None
            assert not any(module._forward_hooks for module in decoder.model.modules())


def test_every_engine_counts_the_same(loud, tmp_path):
    """Where logits are asked of every row; in the last layer a plain decoder passes no others."""
    found, texts = {}, [[5], [7, 11, 13, 17, 19, 23]]
    for kind in ("plain", "packed", "padded"):
        arm = under(kind, loaded(loud, tmp_path, dtype="float16"))
        with open_engine(arm.model, arm.choice, "float16") as engine:
            engine.run([Request(prompt=(first,), answer=(*rest, 0)) for first, *rest in texts], None, lambda _: None)
            found[kind] = [(name, count) for _, name, count in engine.overflow]
    assert len(found["plain"]) == 8
    assert found["plain"] == found["packed"] == found["padded"]


def test_quantized_variants_are_counted_too(loud, tmp_path):
    packed = overflow(loud, tmp_path, recipe=INT8)
    assert packed.overflow
    folder = gptq_folder(loud, tmp_path / "gptq", bits=8)
    arm = load_arm(ArmSpec(name="v", model=str(folder), dtype="float16"), tmp_path, {}, device="cpu")
    assert "model.layers.1.mlp.down_proj" in {name for _, name, _ in run_job(arm, job(arm, "", count=6)).overflow}


def test_large_values_are_told_from_large_keys(quiet, tmp_path):
    copy = Path(shutil.copytree(quiet, tmp_path / "m"))
    model = scaled(copy, 2.0**17, ("layers.1.self_attn.v_proj.weight",))
    found = {name for _, name, _ in overflow(model, tmp_path).overflow}
    assert {"model.layers.1.self_attn.v_proj", "values of layer 1"} <= found
    assert not any(name.startswith("keys") or "layers.0" in name for name in found)


def test_infinities_and_nan_are_not_finite_values_beyond(tmp_path):
    found = Overflows(65504.0)
    found.look("none", torch.tensor([[65504.0, float("inf"), float("nan"), -float("inf")]]))
    found.look("one", torch.tensor([[float("nan"), 65505.0, -65504.0]]))
    assert found.overflow == ((1, "one", 1),)


@pytest.mark.parametrize(
    ("config", "said", "stored"),
    [
        ("float16", False, "float16"),
        ("float16", True, "bfloat16"),
        ("bfloat16", False, "bfloat16"),
        (None, False, "bfloat16"),
    ],
)
def test_what_is_served_is_the_gate_files_word_else_the_folders(quiet, tmp_path, config, said, stored):
    shutil.copytree(quiet, tmp_path / "m")
    settings = json.loads((quiet / "config.json").read_text())
    settings.pop("dtype", None)
    (tmp_path / "m" / "config.json").write_text(json.dumps(settings | ({"dtype": config} if config else {})))
    spec = ArmSpec(name="baseline", model=str(tmp_path / "m"), dtype="bfloat16", dtype_said=said)
    assert load_arm(spec, tmp_path, {}, device="cpu").stored == stored


def change(folder: Path, end: str, numbers: list[float]) -> str:
    """Puts numbers at the beginning of the first tensor whose name ends so, and names it."""
    (file,) = folder.glob("*.safetensors")
    tensors = load_file(file)
    name = next(one for one in tensors if one.endswith(end))
    tensors[name].view(-1)[: len(numbers)] = torch.tensor(numbers)
    save_file(tensors, file, {"format": "pt"})
    return name


@pytest.mark.parametrize(("arch", "end"), [("llama", "up_proj.weight"), ("gpt_neox", "dense_4h_to_h.weight")])
def test_weights_beyond_float16_are_refused_by_name_before_an_answer(saved, tmp_path, arch, end):
    folder = Path(shutil.copytree(saved(arch=arch), tmp_path / "model"))
    name = change(folder, end, [1e5, -3e38])
    with pytest.raises(
        UsageError, match=rf"2 numbers of {re.escape(name)} are beyond float16's largest, 65504.*bfloat16"
    ):
        loaded(folder, tmp_path, dtype="float16")
    assert loaded(folder, tmp_path, dtype="bfloat16").choice.kind, "bfloat16 holds them"


def test_floats_beside_packed_weights_are_held_against_float16_too(saved, tmp_path):
    folder = gptq_folder(saved(), tmp_path / "gptq")
    change(folder, "model.norm.weight", [1e6])
    with pytest.raises(UsageError, match=r"1 number of model\.norm\.weight is beyond float16's largest"):
        loaded(folder, tmp_path, "variant", dtype="float16")
