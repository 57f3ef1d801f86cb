"""Check the weights of an arm's model folder before a run, without loading their numbers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from qualgate.engine.model_weights import refuse_packed_head
from qualgate.engine.own_cache import own_scales, with_own_cache
from qualgate.errors import UsageError
from qualgate.quant.adapter_folder import read_adapter_folder
from qualgate.quant.agreement.config_keys import check_config_keys
from qualgate.quant.agreement.tied_head import may_differ
from qualgate.quant.model_files import readable
from qualgate.quant.model_folder import ModelFolder
from qualgate.records import ArmSpec

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def check_weights(spec: ArmSpec, folder: ModelFolder, *, quantized_baseline: bool = False) -> None:
    """Check the weights of `folder`, the model of `spec`. Every packed layer is read, one at a time, and put into the
    model without its numbers; loading checks the rest.

    UsageError for a quantized checkpoint that is damaged, inconsistent, not supported, unlike its architecture, to be
    quantized again, or the baseline without `quantized_baseline`; for two output heads; for a damaged or foreign
    adapter.
    """
    own_scales(with_own_cache(spec, folder.files), folder, range(folder.layers or 0))
    check_config_keys(folder.format, spec.allow_config)
    if folder.format is None:
        if spec.adapter is not None or may_differ(folder.shards, folder.files.config):
            from qualgate.engine.quantized import empty_model, tied_head

            with readable(folder.path):
                tied_head(folder)
                if spec.adapter is not None:
                    _check_adapter(spec, empty_model(folder.path))
        return
    method = folder.format.method
    if spec.is_baseline and not quantized_baseline:
        raise UsageError(
            f"{folder.path} is a quantized checkpoint ({method}), so it cannot be the baseline: variants are held "
            "against the full-precision model. Give that one, or write `quantized: true` beside `model` if this one is "
            "what you serve today."
        )
    if spec.quantize:
        raise UsageError(f"{folder.path} is a {method} checkpoint already. Quantize the model it was made from.")
    if spec.adapter is not None and spec.adapter.merged:
        raise UsageError(
            f"{spec.name}: {folder.path} is a quantized checkpoint ({method}), and an adapter merged into its weights "
            "would have them quantized anew. Leave `merge` out: it is kept apart of them, as servers do."
        )
    import torch

    from qualgate.engine.quantized import load_quantized

    with readable(folder.path):
        model = load_quantized(folder, torch.float32, weightless=True).model
        refuse_packed_head(spec, model)
        _check_adapter(spec, model)


def _check_adapter(spec: ArmSpec, model: PreTrainedModel) -> None:
    if spec.adapter is not None:
        from qualgate.engine.adapters import check_adapter

        check_adapter(read_adapter_folder(Path(spec.adapter.path)), model, merged=spec.adapter.merged)
