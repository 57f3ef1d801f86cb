"""What a recipe cannot be applied to is refused from the headers, and again from the architecture."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from transformers import AutoConfig

from qualgate.errors import NotInThisVersion, UsageError
from qualgate.quant.checkpoint import linear_names
from qualgate.quant.recipes import parse_recipe
from qualgate.quant.shapes import check_fits
from qualgate.quant.shards import read_shards
from tests.tiny_models import save_tiny_model

LAYER = "model.layers.0"


def headers(folder: Path, **shapes: tuple[int, ...]) -> Path:
    """A folder that holds tensors of these shapes in its one layer, and an embedding."""
    tensors = {f"{LAYER}.{name}.weight": torch.zeros(shape) for name, shape in shapes.items()}
    save_file(tensors | {"model.embed_tokens.weight": torch.zeros(8, 33)}, folder / "model.safetensors")
    return folder


def test_a_dense_model_fits_in_headers_and_architecture(tmp_path):
    folder = save_tiny_model(tmp_path)
    check_fits(read_shards(folder), parse_recipe("int4"))
    assert len(linear_names(folder)) == 14


def test_a_group_size_that_does_not_divide_is_refused_with_one_that_does(tmp_path):
    with pytest.raises(UsageError, match=r"layers.0.up.weight has 96 in_features.*Sizes that divide it: 32"):
        check_fits(read_shards(headers(tmp_path, up=(4, 96))), parse_recipe({"method": "int4", "group_size": 64}))


@pytest.mark.parametrize("shapes", [{"mlp.experts.0.w1": (4, 64)}, {"mlp.gate_up_proj": (4, 8, 64)}])
def test_experts_are_refused_from_the_headers(tmp_path, shapes):
    with pytest.raises(NotInThisVersion, match="Mixtures of experts"):
        check_fits(read_shards(headers(tmp_path, **shapes)), parse_recipe("int8"))


def test_a_model_without_layers_is_refused(tmp_path):
    with pytest.raises(NotInThisVersion, match="no linear layers"):
        check_fits(read_shards(headers(tmp_path, norm=(64,))), parse_recipe("int8"))


@pytest.mark.parametrize(("arch", "extra"), [("mixtral", {"num_local_experts": 2}), ("gpt2", {})])
def test_an_architecture_whose_matrices_are_no_linears_is_refused(tmp_path, arch, extra):
    """Never quantized in its attention alone."""
    AutoConfig.for_model(
        arch, vocab_size=64, hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=4,
        num_key_value_heads=2, **extra,
    ).save_pretrained(tmp_path)  # fmt: skip
    with pytest.raises(NotInThisVersion, match=r"no plain linear layer|no linear layers"):
        linear_names(tmp_path)
