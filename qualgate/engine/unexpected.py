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
    """Finds names of tensors that transformers itself passes over, or that the config counts among another head's."""
    patterns = (*(model._keys_to_ignore_on_load_unexpected or ()), *folder.ahead)
    return re.compile("|".join(f"({pattern})" for pattern in patterns) or r"(?!)")


def own_names(model: PreTrainedModel) -> set[str]:
    """Every name that the model's tensors have, in files that name the model without its head as well."""
    names = {*model.state_dict(), *(name for name, _ in model.named_buffers())}
    return names | {name.removeprefix(f"{model.base_model_prefix}.") for name in names}


def left_out_of(folder: ModelFolder, model: PreTrainedModel, unexpected: Iterable[str]) -> dict[str, int]:
    """See `ArmFootprint.left_out`. unexpected: names that loading found no place for. UsageError as of `left_out`."""
    known, own = known_to_be_unused(folder, model), own_names(model)
    silent = (name for name in folder.shards.entries if known.search(name) or REBUILT.search(name))
    beside = {file: count for file, count in folder.beside.items() if count}
    return left_out(folder.shards, {*unexpected, *(name for name in silent if name not in own)}, known) | beside
