"""Calibration, one decoder layer at a time: run the prompts through it, quantize it, hand its outputs to the next.

Within a layer the linear layers are quantized in the order they are called, each for the inputs that the ones before
it, already quantized, give. In memory are one layer's inputs, float32 [tokens, width] of all prompts, and the products
of its finished linear layers, up to STORED_PRODUCTS: those are computed once. A finished layer is on disk before the
next begins; run again on the same folder, finished layers are only run through.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from qualgate.errors import UsageError
from qualgate.quant.activations import PER_TOKEN, round_inputs
from qualgate.quant.awq import round_clipped, search_scale
from qualgate.quant.folding import Folds
from qualgate.quant.gptq import gptq
from qualgate.quant.inputs import Inputs, output_error
from qualgate.quant.layers import Group, Reached, decoder_layers, fused_with, linear_groups, watched
from qualgate.quant.layouts import layouts_of, tensors_of, weights_of
from qualgate.quant.linear import QuantizedLinear
from qualgate.quant.packing import quantize_weight
from qualgate.quant.recipes import bits_of, layer_recipe
from qualgate.quant.sealed_tensors import read_tensors, write_tensors
from qualgate.quant.shapes import check_divides
from qualgate.quant.smoothquant import search_smoothing
from qualgate.quant.stability import WeightStability, weight_stability
from qualgate.records import QuantizeRecipe
from qualgate_kernels.dequantize import dequantize_torch
from qualgate_kernels.packed import PackedWeight

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Progress = Callable[[str, int, int], None]  # what is being done, layers done, layers
STORED_PRODUCTS = 2 * 2**30  # bytes, of one decoder layer: beyond it products are computed again in every pass


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeLayer:
    """What calibration made of one decoder layer. Names are those of the whole model."""

    weights: dict[str, PackedWeight]  # by module
    folded: dict[str, torch.Tensor]  # tensors that folding changed and that stay floats, by tensor
    errors: dict[str, float]  # by module: mean square of the output's error, over mean square of the output
    stability: dict[str, WeightStability]  # by module, against the weight as it was after folding


def calibrate(
    model: PreTrainedModel,
    recipe: QuantizeRecipe,
    prompts: Sequence[Sequence[int]],
    *,
    dtype: torch.dtype,
    scale_dtype: torch.dtype = torch.bfloat16,
    folder: Path | None = None,
    progress: Progress = lambda what, done, total: None,
) -> list[MadeLayer]:
    """Quantize every linear layer of `model`'s decoder by `recipe`, learning from `prompts`.

    model: float32, in eval mode; it comes back quantized. dtype: what floats are stored in. folder: where finished
    layers are kept. Raises UsageError naming the layer that cannot be quantized.
    """
    name, layers = decoder_layers(model)
    states, calls = _first_inputs(model, layers, prompts)
    finished: list[MadeLayer] = []
    for index, layer in enumerate(layers):
        progress(f"{name}.{index}", index, len(layers))
        runs = [_Run(state, *calls[row][index]) for row, state in enumerate(states)]
        file = folder / f"layer-{index:05d}.safetensors" if folder else None
        done = read_layer(file) if file else None
        if done is None:
            done = _quantize_layer(layer, f"{name}.{index}", recipe, runs, dtype, scale_dtype)
            if file:
                write_layer(file, done)
        else:
            install(model, recipe, done.weights, done.folded)
        finished.append(done)
        with torch.no_grad():
            states = [run.through(layer) for run in runs]
        for part, module in list(layer.named_modules()):
            if isinstance(module, _Replayed):
                _replace(layer, part, module.linear)
    progress("", len(layers), len(layers))
    return finished


@dataclass(slots=True)
class _Run:
    """One prompt's call of one layer."""

    state: torch.Tensor
    others: tuple[Any, ...]
    named: dict[str, Any]

    def through(self, layer: nn.Module) -> torch.Tensor:
        output = layer(self.state, *self.others, **self.named)
        return output[0] if isinstance(output, tuple) else output


class _Replayed(nn.Module):
    """A quantized linear layer that computes its products once: all passes over the prompts bring it the same inputs,
    in the same order."""

    def __init__(self, linear: QuantizedLinear, weight: torch.Tensor, calls: int) -> None:
        """Wrap `linear`. weight: its own, dequantized; calls: in each pass, 0 to store no product."""
        super().__init__()
        self.linear, self.weight, self.calls = linear, weight, calls
        self.products: deque[torch.Tensor] = deque()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., in_features] → [..., out_features], the bits that `linear` gives."""
        if self.calls and len(self.products) == self.calls:
            self.products.rotate(-1)
            return self.products[-1]
        if self.linear.activations is not None:
            x = round_inputs(x, self.linear.activations)
        product = nn.functional.linear(x, self.weight, self.linear.bias)
        if self.calls:
            self.products.append(product)
        return product


@torch.no_grad()
def _first_inputs(
    model: PreTrainedModel, layers: nn.ModuleList, prompts: Sequence[Sequence[int]]
) -> tuple[list[torch.Tensor], list[list[tuple[tuple[Any, ...], dict[str, Any]]]]]:
    """Return what enters the first layer for each prompt, and the other arguments of every layer (masks, positions).

    The layers are not computed: each passes its input on. Only where they return more than the next state do they run.
    """
    device = next(model.parameters()).device
    states: list[torch.Tensor] = []
    calls: list[list[tuple[tuple[Any, ...], dict[str, Any]]]] = []
    passing = False

    def noting(forward: Callable[..., Any]) -> Callable[..., Any]:
        def note(*inputs: Any, **named: Any) -> Any:
            nonlocal passing
            state, arguments = (inputs[0], inputs[1:]) if inputs else (named.pop("hidden_states"), ())
            if not calls[-1]:
                states.append(state)
            calls[-1].append((arguments, named))
            if passing:
                return state
            output = forward(state, *arguments, **named)
            passing = isinstance(output, torch.Tensor)
            return output

        return note

    module: Any
    own = [vars(module).get("forward") for module in layers]  # of an instance, not of its class
    for module in layers:
        module.forward = noting(module.forward)
    try:
        for prompt in prompts:
            calls.append([])
            model(input_ids=torch.tensor([list(prompt)], device=device), use_cache=False, logits_to_keep=1)
    finally:
        for module, forward in zip(layers, own, strict=True):
            if forward is None:
                del module.forward
            else:
                module.forward = forward
    return states, calls


def _quantize_layer(
    layer: nn.Module,
    name: str,
    recipe: QuantizeRecipe,
    runs: list[_Run],
    dtype: torch.dtype,
    scale_dtype: torch.dtype,
) -> MadeLayer:
    """Quantize one layer in place by `recipe`, from the inputs that `runs` bring, and return what was made.

    name: the layer's in the model; dtype, scale_dtype: of the floats and of the scales that are stored.
    """
    groups = linear_groups(layer, lambda: runs[0].through(layer))
    calls = Counter(linear for group in groups for linear in group.linears)
    for linear, count in calls.items():
        if count > 1 and layer_recipe(recipe, f"{name}.{linear}") is not None:
            leaf = linear.rpartition(".")[2]
            raise UsageError(
                f"{name}.{linear} is called {count} times in a pass, and calibration in this version takes one input "
                f"of a layer. Leave it in full precision: `keep: {{{leaf}: {str(dtype).removeprefix('torch.')}}}`."
            )
    folded: dict[str, torch.Tensor] = {}
    if recipe.method in ("awq", "smoothquant"):
        folds = Folds(layer, lambda: runs[0].through(layer), dtype)
        _fold_scales(layer, name, recipe, groups, folds, runs)
        folded = {f"{name}.{tensor}": _parameter(layer, tensor).to(dtype) for tensor in folds.changed}
    weights: dict[str, PackedWeight] = {}
    errors: dict[str, float] = {}
    stability: dict[str, WeightStability] = {}
    room = STORED_PRODUCTS
    for group in groups:
        quantized = {linear: layer_recipe(recipe, f"{name}.{linear}") for linear in group.linears}
        for linear in group.linears:
            if quantized[linear] is None and recipe.method in ("awq", "smoothquant"):  # its scales may have been folded
                weight = _parameter(layer, f"{linear}.weight")
                weight.data.copy_(weight.data.to(dtype))
                folded[f"{name}.{linear}.weight"] = weight.data.to(dtype)
        if not any(quantized.values()):
            continue
        inputs = _inputs_of(layer, group, runs)
        peaks, gram = _fused_peaks(layer, group.linears), inputs.gram
        for linear, chosen in quantized.items():
            if chosen is None:
                continue
            original = _parameter(layer, f"{linear}.weight").detach()
            module_name = f"{name}.{linear}"
            packed = quantize_linear(
                original, chosen, inputs, module_name, dtype=dtype, scale_dtype=scale_dtype, absmax=peaks[linear]
            )
            scale = output_error(original, gram)
            values = dequantize_torch(packed)
            errors[module_name] = output_error(values - original, gram) / scale if scale else 0.0
            stability[module_name] = weight_stability(original, packed)
            weights[module_name] = packed
            replacement = QuantizedLinear(packed, _bias(layer.get_submodule(linear)), PER_TOKEN[chosen.activations])
            nbytes = inputs.tokens * len(values) * values.itemsize
            stored = nbytes <= room and group is not groups[-1]  # the last one's are asked for once
            room -= nbytes * stored
            _replace(layer, linear, _Replayed(replacement, values, inputs.calls if stored else 0))
    return MadeLayer(weights=weights, folded=folded, errors=errors, stability=stability)


def _fused_peaks(layer: nn.Module, linears: Sequence[str]) -> dict[str, torch.Tensor]:
    """Return for each of `linears` the largest magnitude in its weight and in those of the others that it is fused
    with."""
    peaks = {linear: _parameter(layer, f"{linear}.weight").abs().amax() for linear in linears}
    return {
        linear: torch.stack([peaks[sibling] for sibling in fused_with(linear) if sibling in peaks]).amax()
        for linear in linears
    }


def quantize_linear(
    weight: torch.Tensor,
    recipe: QuantizeRecipe,
    inputs: Inputs,
    name: str,
    *,
    dtype: torch.dtype = torch.bfloat16,
    scale_dtype: torch.dtype = torch.bfloat16,
    absmax: torch.Tensor | None = None,
) -> PackedWeight:
    """Quantize one weight, float32 [out_features, in_features], by the recipe's method. Scales were folded in before.

    What SmoothQuant has smoothed is rounded by GPTQ, as in llm-compressor's recipe for W8A8: nothing in smoothing says
    how to round, and to nearest the whole was no better than without smoothing.
    """
    if recipe.method not in ("gptq", "awq") and not recipe.rounding:
        importance = inputs.mean_square if recipe.method == "nvfp4" and recipe.calibration_sha256 else None
        return quantize_weight(
            weight, recipe, name, dtype=dtype, scale_dtype=scale_dtype, importance=importance, absmax=absmax
        )
    bits = bits_of(recipe)
    check_divides(name, weight.shape[1], recipe.group_size, bits)
    if not weight.isfinite().all():
        raise UsageError(f"{name} holds NaN or infinite values: the checkpoint is damaged, fetch it again.")
    if recipe.method == "awq":
        return round_clipped(
            weight, inputs.gram, bits=bits, group_size=recipe.group_size, symmetric=recipe.symmetric,
            scale_dtype=scale_dtype,
        )  # fmt: skip
    try:
        return gptq(
            weight, inputs.gram, bits=bits, group_size=recipe.group_size, symmetric=recipe.symmetric,
            act_order=recipe.act_order, clip=recipe.clip, scale_dtype=scale_dtype,
        )  # fmt: skip
    except ArithmeticError as error:
        raise UsageError(
            f"{name}: {error}. Look for damaged weights before it, or for calibration cases the model answers with NaN."
        ) from None


def _fold_scales(
    layer: nn.Module, name: str, recipe: QuantizeRecipe, groups: list[Group], folds: Folds, runs: list[_Run]
) -> None:
    """Search a scale for every group whose inputs can be scaled, and fold it in, in the order the layer runs."""
    for group in groups:
        if not folds.channels(group):
            continue
        rounded = [
            part for part in group.linears
            if (chosen := layer_recipe(recipe, f"{name}.{part}")) is not None and chosen.method == recipe.method
        ]  # fmt: skip
        if not rounded:
            continue
        inputs = _inputs_of(layer, group, runs)
        weights = [_parameter(layer, f"{part}.weight").detach() for part in rounded]
        spread = folds.spread(group, torch.arange(folds.channels(group), device=inputs.largest.device))
        if recipe.method == "smoothquant":
            scale = search_smoothing(weights, inputs.largest, inputs.sample, spread)
        else:
            scale = search_scale(
                weights, folds.gather(group, inputs.mean_magnitude), inputs.gram, bits=bits_of(recipe),
                group_size=recipe.group_size, symmetric=recipe.symmetric, spread=spread,
            )  # fmt: skip
        folds.fold(group, scale)


@torch.no_grad()
def _inputs_of(layer: nn.Module, group: Group, runs: list[_Run]) -> Inputs:
    """Return the sums over what enters a group of linear layers in all runs."""
    inputs = Inputs()
    with watched(layer.get_submodule(group.linears[0]), inputs.see):
        for run in runs:
            with suppress(Reached):  # the rest of the layer is not needed
                run.through(layer)
    return inputs


def install(
    model: nn.Module, recipe: QuantizeRecipe, weights: Mapping[str, PackedWeight], folded: Mapping[str, torch.Tensor]
) -> None:
    """Put packed weights, by module, in the place of `model`'s float ones, and folded floats, by tensor, in theirs."""
    for tensor, value in folded.items():
        _parameter(model, tensor).data.copy_(value)
    for name, packed in weights.items():
        layer_choice = layer_recipe(recipe, name)
        assert layer_choice is not None, "a layer that was kept has no packed weight"
        module: Any = model.get_submodule(name)
        _replace(
            model,
            name,
            QuantizedLinear(packed, _bias(module), PER_TOKEN[layer_choice.activations]).to(module.weight.device),
        )


def _replace(root: nn.Module, name: str, module: nn.Module) -> None:
    """Put `module` in the place of the submodule `name`."""
    parent, _, attribute = name.rpartition(".")
    setattr(root.get_submodule(parent), attribute, module)


def _parameter(root: nn.Module, name: str) -> torch.Tensor:
    module, _, attribute = name.rpartition(".")
    return getattr(root.get_submodule(module), attribute)


def _bias(module: nn.Module) -> torch.Tensor | None:
    bias: Any = getattr(module, "bias", None)
    return None if bias is None else bias.detach()


def write_layer(file: Path, layer: MadeLayer) -> None:
    """Keep a finished layer; it appears whole, in one rename."""
    file.parent.mkdir(parents=True, exist_ok=True)
    about = {
        "layouts": json.dumps(layouts_of(layer.weights)),
        "errors": json.dumps(layer.errors),
        "stability": json.dumps({name: asdict(stability) for name, stability in layer.stability.items()}),
    }
    write_tensors(file, tensors_of(layer.weights, layer.folded), about)


def read_layer(file: Path) -> MadeLayer | None:
    """Return a finished layer; None for a missing or damaged file, whose layer is then made again."""
    if not file.is_file():
        return None
    try:
        tensors, noted = read_tensors(file)
        weights, folded = weights_of(tensors, json.loads(noted["layouts"]))
        stability = {name: WeightStability(**fields) for name, fields in json.loads(noted["stability"]).items()}
        return MadeLayer(weights=weights, folded=folded, errors=json.loads(noted["errors"]), stability=stability)
    except (OSError, ValueError, KeyError, TypeError):
        return None
