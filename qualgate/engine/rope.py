"""Fix rotary frequencies that transformers recomputes by the length of its input.

longrope and dynamic NTK switch frequencies once a batch holds a long row. A row's answer then depends on its batch and
on earlier inputs, and cached keys were rotated by other frequencies than the query. A server chooses once, by its
maximum length (vLLM: `max_model_len`); so do we, by the config's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from qualgate.errors import NotInThisVersion

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def fix_rope(model: PreTrainedModel, side: str) -> None:
    """Hold every rotary embedding of `model` to one set of frequencies. side: see `ModelFolder.rope`.

    Call it while the model is on the CPU. Raises NotInThisVersion for one that switches and cannot be held.
    """
    module: Any
    for name, module in model.named_modules():
        rope_type: Any = getattr(module, "rope_type", None)
        by_layer = isinstance(rope_type, dict)
        switching = {
            layer: kind
            for layer, kind in (rope_type.items() if by_layer else ((None, rope_type),))
            if kind == "longrope" or "dynamic" in (kind or "")
        }
        if not switching:
            continue
        try:
            for layer, kind in switching.items():
                if side == "long":
                    getattr(module, f"{layer}_inv_freq" if layer else "inv_freq").copy_(_long(module, kind, layer))
            # pyrefly: ignore[bad-argument-type]
            module.rope_type = {**rope_type, **dict.fromkeys(switching, "fixed")} if by_layer else "fixed"
            is_fixed = side != "" and all(_is_held(module, layer) for layer in switching)
        except Exception:  # of an architecture that keeps its frequencies otherwise
            is_fixed = False
        if not is_fixed:
            raise NotInThisVersion(
                f"{type(model).__name__}: {name} turns positions by the length of what is read (rope_type "
                f"{', '.join(switching.values())}), and its frequencies cannot be held fixed: an answer would depend "
                "on its batch."
            )


def _is_held(module: Any, layer: str | None) -> bool:
    """Return whether the first positions are rotated alike in a short text and in one beyond the trained length."""
    settings = module.config.rope_parameters[layer] if layer else module.config.rope_parameters
    longest = max(settings.get("original_max_position_embeddings", 0), module.config.max_position_embeddings)
    layer_argument = {"layer_type": layer} if layer else {}
    texts = [module(torch.zeros(1), torch.arange(length)[None], **layer_argument) for length in (2, longest + 2, 2)]
    return all(
        torch.equal(angles[:, :2], expected) for text in texts for angles, expected in zip(text, texts[0], strict=True)
    )


def _long(module: Any, kind: str, layer: str | None) -> torch.Tensor:
    settings = module.config.rope_parameters[layer] if layer else module.config.rope_parameters
    longer = settings["original_max_position_embeddings"] + 1
    frequencies, _ = ROPE_INIT_FUNCTIONS[kind](module.config, "cpu", seq_len=longer, layer_type=layer)
    return frequencies
