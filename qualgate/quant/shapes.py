"""Whether a model's weights fit a recipe, from shapes alone: what cannot be quantized is refused before a run."""

from __future__ import annotations

from pathlib import Path

from qualgate.errors import NotInThisVersion, UsageError
from qualgate.quant.recipes import CLASSES, bits_of, fits, layer_recipe
from qualgate.quant.shards import Shards
from qualgate.records import QuantizeRecipe

# Parts of names of what is not the text decoder, and of what is no linear layer though it has two dimensions.
_ELSEWHERE = ("vision", "visual", "audio", "embed", "norm", "lm_head")


def check_fits(shards: Shards, recipe: QuantizeRecipe) -> None:
    """Raise UsageError when `recipe` cannot be applied to the model, as far as its headers show.

    Building the architecture shows the rest (see `checkpoint.linear_names`), but needs torch.
    """
    linears = {
        name: entry.shape
        for name, entry in shards.entries.items()
        if len(entry.shape) >= 2 and in_a_layer(name) and not any(part in name for part in _ELSEWHERE)
    }
    if not linears:
        raise NotInThisVersion(f"{shards.folder}: no linear layers that can be quantized in this version.")
    for name, shape in linears.items():
        if len(shape) > 2 or "experts" in name.split("."):
            raise not_quantizable(shards.folder, name, shape)
        layer_choice = layer_recipe(recipe, name.removesuffix(".weight"))
        if layer_choice is not None:
            check_divides(name, shape[1], layer_choice.group_size, bits_of(layer_choice))
    check_keeps(shards.folder, recipe, [name.removesuffix(".weight") for name in linears])


def check_keeps(model_folder: Path, recipe: QuantizeRecipe, modules: list[str]) -> None:
    """Raise UsageError for a pattern of `keep` that names none of `modules`: what was meant to be kept would not be."""
    for pattern, _ in recipe.keep:
        if pattern not in CLASSES["lm_head"] and not any(fits(pattern, module) for module in modules):
            raise UsageError(
                f"{model_folder}: `keep` names {pattern!r}, which matches no quantized layer. Layers are called "
                f"{modules[0]}, {modules[-1]} and so on; a pattern may begin at any part, such as "
                f'"{modules[0].rpartition(".")[2]}" or "layers.0.*".'
            )


def in_a_layer(name: str) -> bool:
    """A decoder layer is an entry of a ModuleList: some part of its name is its index."""
    return any(part.isdigit() for part in name.split("."))


def not_quantizable(model_folder: Path, name: str, shape: tuple[int, ...]) -> NotInThisVersion:
    """A variant most of whose weights stay as they are would be judged under a name that it does not deserve."""
    return NotInThisVersion(
        f"{model_folder}: {name} {list(shape)} is no plain linear layer, so it would stay unquantized. Mixtures of "
        "experts and transposed or fused weights of this kind cannot be quantized in this version."
    )


def check_divides(name: str, in_features: int, group_size: int, bits: int) -> None:
    """Raise UsageError when rows of tensor `name` do not split into groups of `group_size` and whole bytes."""
    if in_features * bits % 8:
        raise UsageError(
            f"{name} has {in_features} in_features, whose {bits}-bit codes do not fill whole bytes. "
            "Quantize this model to int8 instead."
        )
    if group_size and in_features % group_size:
        fitting = [size for size in (256, 128, 64, 32, 16, 8) if in_features % size == 0]
        raise UsageError(
            f"{name} has {in_features} in_features, not a multiple of the group size {group_size}. "
            + (f"Sizes that divide it: {', '.join(map(str, fitting))}." if fitting else "Use group_size: 0 (per row).")
        )
