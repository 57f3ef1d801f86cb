"""Tensors in a folder's files beyond the architecture that its config names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from qualgate.quant.full_precision import REBUILT, left_out
from qualgate.quant.model_folder import ModelFolder

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def known_to_be_unused(folder: ModelFolder, model: PreTrainedModel) -> re.Pattern[str]:
    """Return a pattern of tensor names that transformers itself ignores, or that the config assigns to another head."""
    patterns = (*(model._keys_to_ignore_on_load_unexpected or ()), *folder.ahead)
    return re.compile("|".join(f"({pattern})" for pattern in patterns) or r"(?!)")


def own_names(model: PreTrainedModel) -> set[str]:
    """Return every name of the model's tensors, also as in files that name the model without its head."""
    names = {*model.state_dict(), *(name for name, _ in model.named_buffers())}
    return names | {name.removeprefix(f"{model.base_model_prefix}.") for name in names}


def left_out_of(folder: ModelFolder, model: PreTrainedModel, unexpected: Iterable[str]) -> dict[str, int]:
    """Return `ArmFootprint.left_out`. unexpected: names without a place at load. UsageError as for `left_out`."""
    known, own = known_to_be_unused(folder, model), own_names(model)
    silent = (name for name in folder.shards.entries if known.search(name) or REBUILT.search(name))
    beside = {file: count for file, count in folder.beside.items() if count}
    return left_out(folder.shards, {*unexpected, *(name for name in silent if name not in own)}, known) | beside
