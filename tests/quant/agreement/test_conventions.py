"""GPTQ's zero points and g_idx, and groups by activation, against what the config says of them."""

from __future__ import annotations

import pytest
import torch

from qualgate.errors import UsageError
from tests.quant.agreement.folders import LAYER, Tensors, check, edit, sound


def shuffled(tensors: Tensors) -> None:
    g_idx = tensors[f"{LAYER}.g_idx"]
    g_idx.copy_(g_idx[torch.randperm(len(g_idx), generator=torch.Generator().manual_seed(0))])


def a_step_lower(tensors: Tensors) -> None:
    """Every zero point and every code of a layer one lower: the same weights, for whoever reads zero points."""
    tensors[f"{LAYER}.qzeros"].sub_(0x11111111)
    words = tensors[f"{LAYER}.qweight"]
    lower = torch.zeros_like(words)
    for place in range(8):
        lower |= (((words >> 4 * place) & 15) - 1).clamp_min(0) << 4 * place
    tensors[f"{LAYER}.qweight"] = lower


def one_higher(tensors: Tensors) -> None:
    tensors[f"{LAYER}.qzeros"][0, 0] += 1


FAULTS = {
    "v2 zeros, called v1": (
        "gptq_v2", None, {"checkpoint_format": "gptq", "format": "gptq"}, "Set `checkpoint_format`.*to 'gptq_v2'",
    ),
    "v1 zeros, called v2": (
        "gptq", None, {"checkpoint_format": "gptq_v2", "format": "gptq_v2"}, "Set `checkpoint_format`.*to 'gptq' there",
    ),
    "sym, all zero points one lower": ("gptq_v2", a_step_lower, {}, "says `sym: true`.*vLLM takes the middle code"),
    "sym, one zero point another": ("gptq", one_higher, {}, "says `sym: true`.*from 8 to 9"),
    "asymmetric and so called": ("gptq_v2", a_step_lower, {"sym": False}, ""),
    "v2 zeros, asymmetric": ("gptq_v2", None, {"checkpoint_format": "gptq", "format": "gptq", "sym": False}, ""),
    "desc_act false, permuted": ("gptq", shuffled, {}, "`desc_act: false`.*vLLM never reads g_idx"),
    "sym missing, one zero point another": ("gptq", one_higher, {"sym": None}, "not say `sym`, which means true, but"),
    "desc_act missing, permuted": ("gptq", shuffled, {"desc_act": None}, "not say `desc_act`, which means false, but"),
    "both missing and as they mean": ("gptq", None, {"sym": None, "desc_act": None}, ""),
    "desc_act true, permuted": ("gptq", shuffled, {"desc_act": True}, ""),
    "desc_act true, no g_idx": (
        "gptq", lambda tensors: tensors.pop(f"{LAYER}.g_idx"), {"desc_act": True}, "has no g_idx",
    ),
    "desc_act false, no g_idx": ("gptq", lambda tensors: tensors.pop(f"{LAYER}.g_idx"), {}, ""),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_zero_points_and_orders_are_what_the_config_says(tmp_path, fault):
    kind, tensors, settings, message = FAULTS[fault]
    folder = edit(sound(kind, tmp_path / "f"), tensors=tensors, quantization=lambda found: found.update(settings))
    if not message:
        return check(folder)
    with pytest.raises(UsageError, match=message):
        check(folder)


@pytest.mark.parametrize(
    ("actorder", "g_idx", "message"),
    [
        ("group", False, "`actorder: group`, but .* has no weight_g_idx"),
        ("group", True, ""),
        ("static", False, ""),
        (None, True, "does not say `actorder: group`"),
        ("weight", True, "does not say `actorder: group`"),
    ],
)
def test_groups_by_activation_come_with_their_order(tmp_path, actorder, g_idx, message):
    folder = sound("compressed-tensors", tmp_path / "f")

    def order(tensors: Tensors) -> None:
        for name in [name for name in tensors if g_idx and name.endswith(".weight_packed")]:
            module = name.removesuffix(".weight_packed")
            columns, groups = int(tensors[f"{module}.weight_shape"][1]), tensors[f"{module}.weight_scale"].shape[1]
            tensors[f"{module}.weight_g_idx"] = (torch.arange(columns) % groups).int()

    edit(folder, tensors=order)
    edit(folder, quantization=lambda found: found["config_groups"]["group_0"]["weights"].update(actorder=actorder))
    if not message:
        return check(folder)
    with pytest.raises(UsageError, match=message):
        check(folder)
