"""An output head beside a config that ties it: one rule for quantized and full-precision folders."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from qualgate.engine.load import load_arm
from qualgate.errors import UsageError
from qualgate.records import ArmSpec
from qualgate.records.arms import ReadAs
from tests.quant.agreement.folders import Tensors, check, edit, sound

EMBEDDING = "model.embed_tokens.weight"


def tied(kind, out, head):
    def change(tensors: Tensors) -> None:
        tensors["lm_head.weight"] = head(tensors[EMBEDDING])

    return edit(sound(kind, out), tensors=change, config=lambda config: config.update(tie_word_embeddings=True))


@pytest.mark.parametrize("kind", ["plain", "gptq", "compressed-tensors", "fp8"])
def test_another_head_than_the_tied_one_is_refused_or_read_as_the_arm_says(tmp_path, kind):
    check(tied(kind, tmp_path / "same", torch.clone))
    folder = tied(kind, tmp_path / "other", lambda embedding: embedding.roll(1, 0))
    with pytest.raises(UsageError, match=r"ties the output head.*transformers uses the head of the file.*vLLM drops"):
        check(folder)
    readings: tuple[tuple[ReadAs, int], ...] = (("transformers", 1), ("sglang", 0))
    for read_as, turns in readings:
        check(folder, read_as)
        arm: Any = load_arm(ArmSpec(name="v", model=str(folder), read_as=read_as), tmp_path, {}, device="cpu")
        embedding, head = arm.model.get_input_embeddings().weight, arm.model.get_output_embeddings().weight
        assert torch.equal(embedding.roll(turns, 0), head)


def test_a_quantized_head_is_named_and_a_tied_one_is_no_other_than_the_embedding(tmp_path):
    folder = sound("compressed-tensors", tmp_path / "f")
    rows, layer = 260, "model.layers.0.self_attn.q_proj"

    def quantize(tensors: Tensors) -> None:
        del tensors["lm_head.weight"]
        for part in ("weight_packed", "weight_scale"):
            each = tensors[f"{layer}.{part}"]
            tensors[f"lm_head.{part}"] = each.repeat(-(-rows // len(each)), 1)[:rows].clone()
        tensors["lm_head.weight_shape"] = torch.tensor([rows, 64])

    edit(folder, tensors=quantize)
    with pytest.raises(UsageError, match="leaves lm_head out of quantization"):
        check(folder)
    check(edit(folder, quantization=lambda found: found.update(ignore=[])))
    edit(folder, config=lambda config: config.update(tie_word_embeddings=True))
    with pytest.raises(UsageError, match=r"lm_head\.weight_packed with other values"):
        check(folder)
