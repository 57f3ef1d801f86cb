"""Calibration layer by layer: folding keeps the function, errors fall, an interruption costs one layer."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from qualgate.errors import UsageError
from qualgate.quant import calibrate as calibration
from qualgate.quant.activations import PER_TOKEN
from qualgate.quant.awq import search_scale
from qualgate.quant.calibrate import calibrate, install, quantize_linear, read_layer
from qualgate.quant.checkpoint import pack, read_packed
from qualgate.quant.folding import Folds
from qualgate.quant.gptq import gptq
from qualgate.quant.inputs import Inputs, output_error
from qualgate.quant.layers import decoder_layers, linear_groups
from qualgate.quant.linear import QuantizedLinear
from qualgate.quant.packing import quantize_weight
from qualgate.quant.recipes import parse_recipe, plain
from qualgate.quant.rounding import fit_grid
from qualgate.quant.smoothquant import search_smoothing
from qualgate.records import QuantizeRecipe
from qualgate_kernels.dequantize import dequantize_torch
from tests.depth import with_proofs
from tests.tiny_models import VOCABULARY, save_tiny_model

ARCHITECTURES = ("llama", "qwen2", "gemma2", "gpt_neox")


@pytest.fixture(scope="module", params=ARCHITECTURES)
def folder(request, tmp_path_factory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("model") / request.param, arch=request.param)


@pytest.fixture(scope="module")
def llama(tmp_path_factory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("model") / "llama")


def model_of(folder: Path) -> Any:
    loaded = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return loaded.eval().requires_grad_(False)


def prompts(rows: int = 12) -> list[list[int]]:
    generator = torch.Generator().manual_seed(5)
    return [
        torch.randint(VOCABULARY, (length,), generator=generator).tolist()
        for length in torch.randint(5, 60, (rows,), generator=generator).tolist()
    ]


def recipe_of(method: str, **options: Any) -> QuantizeRecipe:
    sized = {} if method == "smoothquant" else {"group_size": 32}
    value = {"method": method, "calibration": "./data.yaml", **sized, **options}
    return replace(parse_recipe(value), calibration_sha256="0" * 64)


def logits(model: Any) -> torch.Tensor:
    return torch.cat([model(torch.tensor([row]), use_cache=False).logits[0] for row in prompts(4)])


# ------------------------------------------------------------------------------------------------- folding


def test_linear_layers_that_read_one_input_stand_together_in_the_order_of_their_calls(llama):
    model = model_of(llama)
    layer = decoder_layers(model)[1][0]
    seen: list[Any] = []
    handle = layer.register_forward_pre_hook(lambda _, inputs, named: seen.append((inputs, named)), with_kwargs=True)
    model(torch.tensor([prompts(1)[0]]))
    handle.remove()
    groups = linear_groups(layer, lambda: layer(*seen[0][0], **seen[0][1]))
    assert [(group.linears, group.norm, group.linear) for group in groups] == [
        (("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), "input_layernorm", ""),
        (("self_attn.o_proj",), "", "self_attn.v_proj"),
        (("mlp.gate_proj", "mlp.up_proj"), "post_attention_layernorm", ""),
        (("mlp.down_proj",), "", "mlp.up_proj"),
    ]


def test_folding_leaves_the_float_outputs_as_they_were(folder):
    """Llama's grouped attention, Qwen's biases, Gemma's norms (scaled by 1 + weight), GPT-NeoX's LayerNorm."""
    model = model_of(folder)
    before = logits(model)
    folded = []
    for layer in decoder_layers(model)[1]:
        seen: list[Any] = []
        handle = layer.register_forward_pre_hook(
            lambda _, i, named, seen=seen: seen.append((i, named)), with_kwargs=True
        )
        model(torch.tensor([prompts(1)[0]]), use_cache=False)
        handle.remove()

        def run(layer=layer, seen=seen) -> torch.Tensor:
            output = layer(*seen[0][0], **seen[0][1])
            return output[0] if isinstance(output, tuple) else output

        folds = Folds(layer, run, torch.bfloat16)
        for number, group in enumerate(linear_groups(layer, run)):
            channels = folds.channels(group)
            if channels:
                scale = torch.rand(channels, generator=torch.Generator().manual_seed(number)) * 3 + 0.3
                assert folds.fold(group, scale)
                folded.append(group)
        assert all(
            torch.equal(value, value.bfloat16().float())
            for name, value in layer.named_parameters() if name in folds.changed
        )  # fmt: skip
    assert len(folded) == {"llama": 8, "qwen2": 8, "gemma2": 8, "gpt_neox": 4}[folder.name]
    after = logits(model)
    assert (after - before).abs().max() < 2e-3 * before.abs().max()
    assert not torch.equal(after, before)


def test_a_fold_that_would_change_the_layer_is_taken_back(llama):
    model = model_of(llama)
    layer = decoder_layers(model)[1][0]
    state = torch.randn(1, 8, 64, generator=torch.Generator().manual_seed(0))
    places = model.model.rotary_emb(state, torch.arange(8)[None])

    def run() -> torch.Tensor:
        return layer(state, position_embeddings=places)

    groups = linear_groups(layer, run)
    held = {name: value.clone() for name, value in layer.named_parameters()}
    wrong = replace(groups[0], linears=groups[0].linears[:2])  # v would read divided inputs with its weight as it was
    assert not Folds(layer, run, torch.float32).fold(wrong, torch.full((64,), 2.0))
    assert all(torch.equal(value, held[name]) for name, value in layer.named_parameters())


# ------------------------------------------------------------------------------------------------- searches


def outlying(columns: int = 32) -> tuple[torch.Tensor, torch.Tensor]:
    """A weight, and inputs of which two are thirty times the others."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(600, columns, generator=generator)
    x[:, [3, 17]] *= 30
    return torch.randn(24, columns, generator=generator), x


def test_awqs_scale_raises_the_inputs_that_matter_and_lowers_the_error():
    weight, x = outlying()
    inputs = Inputs()
    inputs.see(x)
    scale = search_scale([weight], inputs.mean_magnitude, inputs.gram, bits=4, group_size=32, symmetric=False)
    assert scale[[3, 17]].min() > 2 * scale[[0, 1, 2]].max()
    errors = []
    for each in (torch.ones(32), scale):
        scaled = (weight * each).view(24, 1, 32)
        rounded = fit_grid(scaled, 4, symmetric=False).round(scaled).view(24, 32) / each
        errors.append(float(((rounded - weight) @ x.T).square().sum()))  # on the inputs themselves
    assert errors[1] < 0.7 * errors[0]


def w8a8_error(weight: torch.Tensor, x: torch.Tensor, scale: torch.Tensor) -> float:
    """Of x @ weight.T when x / scale [channels] and weight * scale are rounded to int8 by token and by row."""

    def rounded(rows: torch.Tensor) -> torch.Tensor:
        step = rows.abs().amax(1, keepdim=True) / 127.5
        return (rows / step).round().clamp(-128, 127) * step

    return float((rounded(x / scale) @ rounded(weight * scale).T - x @ weight.T).square().sum())


@pytest.mark.parametrize("loud", [1.0, 3.0, 30.0])
def test_smoothing_never_costs_on_the_inputs_it_was_chosen_for(loud):
    for seed in range(5):
        generator = torch.Generator().manual_seed(seed)
        x, weight = torch.randn(600, 64, generator=generator), torch.randn(24, 64, generator=generator)
        x[:, 5] *= loud
        error = w8a8_error(weight, x, search_smoothing([weight], x.abs().amax(0), x))
        # 3 %: the search rounds the weight's scales to bfloat16, as they are stored.
        assert error <= 1.03 * w8a8_error(weight, x, torch.ones(64))
        if loud == 30:
            assert error < 0.3 * w8a8_error(weight, x, torch.ones(64))


def test_inputs_that_share_a_channel_share_the_scale_of_the_largest():
    weight, x = outlying()
    spread = torch.arange(16).view(2, 8)[:, None].expand(2, 2, 8).reshape(-1)  # two heads, each read twice
    scale = search_smoothing([weight], x.abs().amax(0), x, spread)
    assert scale.shape == (16,)
    assert scale[[3, 9]].min() > 3 * scale[[0, 1, 2]].max()  # inputs 3 and 17


def test_the_gram_matrix_gives_the_error_on_the_inputs_themselves():
    _, x = outlying()
    inputs = Inputs()
    for part in x.split(37):
        inputs.see(part.view(1, -1, 32))
    change = torch.randn(24, 32, generator=torch.Generator().manual_seed(9))
    assert inputs.tokens == 600
    assert output_error(change, inputs.gram) == pytest.approx(float((x @ change.T).square().sum(1).mean()), rel=1e-4)
    assert torch.allclose(inputs.mean_magnitude, x.abs().mean(0), rtol=1e-5)
    assert torch.equal(inputs.largest, x.abs().amax(0))


def test_a_gram_matrix_of_several_blocks_is_whole_and_symmetric():
    x = torch.randn(50, 300, generator=torch.Generator().manual_seed(1))
    inputs = Inputs()
    inputs.see(x)
    assert torch.allclose(inputs.gram, x.T @ x / 50, atol=1e-5)
    assert torch.equal(inputs.gram, inputs.gram.T)


def test_the_sample_of_inputs_is_spread_evenly_and_bounded():
    inputs = Inputs()
    for part in torch.arange(5000.0).view(-1, 1).split(64):
        inputs.see(part)
    places = inputs.sample.flatten()
    assert 512 <= len(places) <= 1024
    assert places.diff().unique().numel() == 1
    assert places[-1] > 4980


# -------------------------------------------------------------------------------------------------- driver


@pytest.mark.parametrize("method", with_proofs(["gptq", "awq", "smoothquant"], ["awq", "gptq"]))
def test_every_architecture_is_calibrated_whole(folder, method):
    model = model_of(folder)
    floats = model_of(folder)
    recipe = recipe_of(method)
    made = calibrate(model, recipe, prompts(), dtype=torch.bfloat16)
    assert len(made) == 2
    assert sum(len(layer.weights) for layer in made) == {"gpt_neox": 8}.get(folder.name, 14)
    quantized = [module for module in model.modules() if isinstance(module, QuantizedLinear)]
    assert {module.activations for module in quantized} == {PER_TOKEN[recipe.activations]}
    # What was made is what was measured: put into a fresh model, it gives the same logits.
    for layer in made:
        install(floats, recipe, layer.weights, layer.folded)
    assert torch.equal(logits(floats), logits(model))


BEATEN = {
    "gptq": {"bits": 3, "act_order": True},
    "gptq as it is": {},
    "gptq, clipped": {"bits": 2, "symmetric": False, "clip": "mse"},
    "gptq, static groups": {"act_order": "static"},
    "awq": {},
    "awq, symmetric": {"bits": 3, "symmetric": True},
    "nvfp4": {"group_size": 16},
}


@pytest.mark.parametrize("what", with_proofs(BEATEN, [what for what in BEATEN if " " in what]))
def test_calibration_beats_rounding_to_nearest_at_equal_bits(llama, tmp_path, what):
    method = what.replace(",", " ").split()[0]
    calibrated, nearest = divergences(llama, tmp_path, recipe_of(method, **BEATEN[what]))
    assert calibrated < nearest


@pytest.mark.parametrize("method", ["gptq", "smoothquant"])
def test_stored_products_change_no_bit(llama, monkeypatch, method):
    computed = [0]
    forward = calibration.nn.functional.linear

    def counted(*inputs: Any) -> torch.Tensor:
        computed[0] += 1
        return forward(*inputs)

    monkeypatch.setattr(calibration.nn.functional, "linear", counted)
    made, products = [], []
    for stored in (calibration.STORED_PRODUCTS, 0):
        monkeypatch.setattr(calibration, "STORED_PRODUCTS", stored)
        computed[0] = 0
        made.append(calibrate(model_of(llama), recipe_of(method), prompts(), dtype=torch.bfloat16))
        products.append(computed[0])
    assert products[0] < 0.7 * products[1]
    for once, again in zip(*made, strict=True):
        for name, packed in once.weights.items():
            assert all(torch.equal(value, again.weights[name].tensors[part]) for part, value in packed.tensors.items())


def test_the_first_inputs_are_read_without_computing_the_layers(folder):
    model = model_of(folder)
    layers = decoder_layers(model)[1]
    expected, computed = [], []
    handles = [
        layers[0].register_forward_pre_hook(
            lambda _, inputs, named: expected.append(inputs[0] if inputs else named["hidden_states"]), with_kwargs=True
        )
    ]
    for row in prompts(3):
        model(torch.tensor([row]), use_cache=False)
    handles += [
        module.register_forward_pre_hook(lambda *_: computed.append(1))
        for module in layers.modules() if type(module) is torch.nn.Linear
    ]  # fmt: skip
    states, arguments = calibration._first_inputs(model, layers, prompts(3))
    for handle in handles:
        handle.remove()
    assert all(torch.equal(*pair) for pair in zip(states, expected[:3], strict=True))
    assert [len(calls) for calls in arguments] == [2, 2, 2]
    assert len(computed) <= 7  # of one layer and one prompt, to see what layers return
    logits(model)  # the layers run again
    assert all("forward" not in vars(layer) for layer in layers)


def test_what_smoothing_leaves_is_rounded_by_gptq():
    torch.manual_seed(3)
    weight, inputs = torch.randn(24, 32), Inputs()
    inputs.see(torch.randn(200, 32) @ torch.randn(32, 32))
    packed = quantize_linear(weight, recipe_of("smoothquant"), inputs, "layer")
    nearest = quantize_weight(weight, plain(recipe_of("smoothquant")), "layer")
    assert torch.equal(packed.codes, gptq(weight, inputs.gram, bits=8, group_size=0).codes)
    left, worse = (output_error(dequantize_torch(one) - weight, inputs.gram) for one in (packed, nearest))
    assert left < 0.5 * worse


def test_smoothing_beats_rounding_to_nearest_where_activations_have_outliers(llama, tmp_path):
    """A few channels of every norm twenty times the others, as large language models have them."""
    folder = tmp_path / "outlying"
    model = model_of(llama)
    for name, norm in model.named_parameters():
        if "layernorm" in name:
            norm[[3, 40]] *= 20
    model.to(torch.bfloat16).save_pretrained(folder)
    smoothed, nearest = divergences(folder, tmp_path, recipe_of("smoothquant"))
    assert smoothed < 0.5 * nearest


@pytest.mark.parametrize("made", with_proofs(["mlp.up_proj mlp.down_proj", "self_attn.v_proj self_attn.o_proj"],
                                             ["mlp.up_proj mlp.down_proj"]))  # fmt: skip
def test_smoothing_reaches_inputs_that_another_layer_makes(llama, tmp_path, made):
    """A row of v or up 32 times as large, its reader's column as much smaller: the same model, harder to round."""
    folder, (maker, reader) = tmp_path / "outlying", made.split()
    model = model_of(llama)
    for layer in model.model.layers:
        layer.get_submodule(maker).weight[3] *= 32
        layer.get_submodule(reader).weight[:, 3] /= 32
    model.to(torch.bfloat16).save_pretrained(folder)
    smoothed, nearest = divergences(folder, tmp_path, recipe_of("smoothquant"))
    assert smoothed < 0.7 * nearest


def divergences(folder: Path, room: Path, recipe: QuantizeRecipe) -> list[float]:
    """Mean KL to the float model: of the recipe, and of its grid without data."""
    floats = logits(model_of(folder)).log_softmax(-1)
    found = []
    for own in (recipe, plain(recipe)):
        packed = read_packed(pack(folder, own, room / own.label, prompts=lambda: prompts(40)))
        model = model_of(folder)
        install(model, packed.recipe, packed.weights, packed.folded)
        found.append(float((floats.exp() * (floats - logits(model).log_softmax(-1))).sum(-1).mean()))
    return found


def test_packing_goes_on_after_the_last_finished_layer_and_cleans_up(llama, tmp_path, monkeypatch):
    recipe, out = recipe_of("gptq"), tmp_path / "packed"

    def interrupt(what: str, done: int, total: int) -> None:
        if done == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pack(llama, recipe, out, prompts=prompts, progress=interrupt)
    assert [path.name for path in tmp_path.iterdir()] == [".packed.layers"]
    assert [path.name for path in (tmp_path / ".packed.layers").glob("*.safetensors")] == ["layer-00000.safetensors"]
    made: list[str] = []
    original = calibration.quantize_linear

    def counted(weight: torch.Tensor, recipe: Any, inputs: Any, name: str, **more: Any) -> Any:
        made.append(name)
        return original(weight, recipe, inputs, name, **more)

    monkeypatch.setattr(calibration, "quantize_linear", counted)
    pack(llama, recipe, out, prompts=prompts)
    assert len(made) == 7
    assert all(".layers.1." in name for name in made)
    assert [path.name for path in tmp_path.iterdir()] == ["packed"]
    manifest = json.loads((out / "manifest.json").read_bytes())
    assert manifest["recipe"]["calibration_sha256"] == "0" * 64
    assert len(manifest["errors"]) == 14
    whole = calibrate(model_of(llama), recipe, prompts(), dtype=torch.bfloat16)
    again = read_packed(out).weights
    for layer in whole:
        for name, packed in layer.weights.items():
            assert manifest["errors"][name] == pytest.approx(layer.errors[name])
            assert all(torch.equal(value, again[name].tensors[part]) for part, value in packed.tensors.items())


def test_a_layer_file_that_was_cut_or_changed_is_made_again(llama, tmp_path):
    calibrate(model_of(llama), recipe_of("awq"), prompts(), dtype=torch.bfloat16, folder=tmp_path)
    file = tmp_path / "layer-00000.safetensors"
    assert read_layer(file) is not None
    data = file.read_bytes()
    file.write_bytes(data[:1000])
    assert read_layer(file) is None
    file.write_bytes(data[:-5] + bytes([data[-5] ^ 1]) + data[-4:])  # one bit of one number
    assert read_layer(file) is None


def test_kept_layers_stay_floats_though_their_inputs_are_scaled(llama):
    model, floats = model_of(llama), logits(model_of(llama))
    made = calibrate(
        model, recipe_of("awq", keep={"q_proj": "bf16", "down_proj": "int8"}), prompts(), dtype=torch.bfloat16
    )
    names = [name for layer in made for name in layer.weights]
    assert not any("q_proj" in name for name in names)
    assert all(weight.bits == 8 for layer in made for name, weight in layer.weights.items() if "down_proj" in name)
    assert any(name.endswith("q_proj.weight") for layer in made for name in layer.folded)
    whole = model_of(llama)
    calibrate(whole, recipe_of("awq"), prompts(), dtype=torch.bfloat16)
    assert (logits(model) - floats).square().mean() < (logits(whole) - floats).square().mean()


def test_a_layer_that_is_called_twice_in_a_pass_is_refused_unless_it_is_kept(llama):
    for keep, message in (((), "gate_proj is called 2 times in a pass"), ((("mlp", "fp32"),), "")):
        model = model_of(llama)
        mlp = model.model.layers[0].mlp
        mlp.forward = lambda x, once=mlp.forward: once(x) + once(2 * x)
        recipe = replace(recipe_of("gptq"), keep=keep)
        if message:
            with pytest.raises(UsageError, match=message):
                calibrate(model, recipe, prompts(), dtype=torch.float32)
        else:
            assert calibrate(model, recipe, prompts(), dtype=torch.float32)[0].weights


def test_a_calibration_that_gives_nan_names_the_layer(llama):
    model = model_of(llama)
    model.model.layers[1].mlp.up_proj.weight[0, 0] = float("nan")
    with pytest.raises(UsageError, match=r"model\.layers\.1\.mlp\.(up|down)_proj"):
        calibrate(model, recipe_of("gptq"), prompts(), dtype=torch.bfloat16)
