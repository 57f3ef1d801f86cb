"""llama.cpp as a peer: its file holds our weights, and, with a stand-in for its package, what is asked and how."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
import torch

from qualgate import refmodel
from qualgate.engine import dense
from qualgate.engine.load import load_arm
from qualgate.quant.agreement import gguf_header
from qualgate.quant.linear import QuantizedLinear
from qualgate.quant.packing import quantize_weight
from qualgate.quant.recipes import parse_recipe
from qualgate.records import ArmSpec, Prompt, UnitKey
from qualgate_kernels.dequantize import dequantize_torch
from tests.benchmarks import llama_peer, peer_process
from tests.benchmarks.race import Lap

STAND_IN = """\
from types import SimpleNamespace as Box
print("something that a library prints")

def CommonParams():
    return Box(model=Box(), cpuparams=Box(), cpuparams_batch=Box())

class Server:
    def __init__(self, params):
        if params.model.path.endswith("broken.gguf"):
            raise SystemExit("no such file")
        assert (params.n_parallel, params.n_ctx, params.cont_batching) == (2, 14, True)
        assert (params.cache_prompt, params.cache_ram_mib) == (False, 0)
    def handle_completions(self, body):
        assert (body["temperature"], body["ignore_eos"], body["cache_prompt"]) == (0, True, False)
        said = [body["prompt"][-1]] * body["n_predict"]
        return {"choices": [{"text": "".join(f"t{token}" for token in said)}]}
"""


def prompt(number: int) -> Prompt:
    return Prompt(
        key=UnitKey("baseline", "set", str(number)), case_hash="", token_ids=(1, number), max_new_tokens=number
    )


PROMPTS = {"short": [prompt(2), prompt(3)], "long": [prompt(4)]}


@pytest.fixture
def stand_in(monkeypatch, tmp_path):
    (tmp_path / "xllamacpp.py").write_text(STAND_IN)
    about = tmp_path / "xllamacpp-9.9.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: xllamacpp\nVersion: 9.9\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv(llama_peer.INTERPRETER, sys.executable)


@pytest.mark.usefixtures("stand_in")
def test_prompts_are_asked_by_kind_and_all_their_tokens_are_said(tmp_path):
    with llama_peer.serving(Path("model.gguf"), PROMPTS, 2, tmp_path) as llama:
        assert llama.version == "9.9"
        for _ in range(2):
            assert llama.contender.answer("long") == [(4, 4, 4, 4)]
            assert llama.contender.answer("short") == [(2, 2), (3, 3, 3)]
        assert llama.contender.cpu() > 0


@pytest.mark.usefixtures("stand_in")
def test_one_that_does_not_come_up_says_why(tmp_path):
    with (
        pytest.raises(peer_process.Down, match=r"(?s)llama\.cpp did not come up: .*no such file"),
        llama_peer.serving(Path("broken.gguf"), PROMPTS, 2, tmp_path),
    ):
        pass


def test_without_an_interpreter_the_reason_names_its_variable(monkeypatch):
    monkeypatch.delenv(llama_peer.INTERPRETER, raising=False)
    assert llama_peer.INTERPRETER in llama_peer.missing()
    monkeypatch.setenv(llama_peer.INTERPRETER, "python")
    assert llama_peer.missing() == ""


@pytest.mark.parametrize("name", llama_peer.RECIPES)
def test_a_gguf_holds_the_weights_of_the_quantized_model(name, tmp_path, monkeypatch):
    differences = gguf_header._differences

    def but_for_texts(files, file):
        return [one for one in differences(files, file) if not one.key.startswith("tokenizer.")]

    monkeypatch.setattr(gguf_header, "_differences", but_for_texts)
    recipe = llama_peer.RECIPES[name]
    folder = tmp_path / "gguf"
    shutil.copytree(refmodel.PATH, folder, ignore=shutil.ignore_patterns("*.safetensors", "*.md"))
    llama_peer.write_gguf(Path(refmodel.PATH), recipe, tmp_path / "cache", folder / "model.gguf")
    specs = [
        ArmSpec(name="ours", model=str(refmodel.PATH), quantize=parse_recipe(recipe), kernels="torch"),
        ArmSpec(name="theirs", model=str(folder), kernels="torch"),
    ]
    ours, theirs = (weights(spec, tmp_path / "cache") for spec in specs)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[at], theirs[at]) for at in ours)


def weights(spec: ArmSpec, cache: Path) -> dict[str, torch.Tensor]:
    model = load_arm(spec, cache, {}, device="cpu").model
    dense.take_back(model)
    packed = {name: one.packed for name, one in model.named_modules() if isinstance(one, QuantizedLinear)}
    assert packed
    found = {f"{name}.weight": dequantize_torch(one) for name, one in packed.items()}
    return found | {name: parameter.float() for name, parameter in model.named_parameters()}


def test_a_weight_that_llama_cpp_cannot_hold_as_it_is_is_refused():
    weight = torch.randn(2, 64, generator=torch.Generator().manual_seed(1))
    small = quantize_weight(weight * 1e-6, parse_recipe(llama_peer.RECIPES["q4_0"]))
    with pytest.raises(ValueError, match="float16 does not hold them"):
        llama_peer.blocks(small)
    with pytest.raises(ValueError, match="groups of 32"):
        llama_peer.blocks(quantize_weight(weight, parse_recipe({"method": "int4", "group_size": 64})))


def test_equal_tokens_are_counted_place_by_place():
    def lap(*said):
        return Lap(seconds=1, cpu=1, said=said)

    rounds = [{"text": {"ours": lap((1, 2, 3), (4,)), "llama": lap((1, 3, 3), (4,))}}]
    assert llama_peer.equal_tokens(rounds, "ours", "llama") == 0.75
