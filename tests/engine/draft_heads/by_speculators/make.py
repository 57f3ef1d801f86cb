"""Make the folders beside this file with the library `speculators`, in an environment of its own:

    python -c "from tests.tiny_models import save_tiny_model; save_tiny_model('target', layers=6)"
    OTHER_PYTHON make.py target tests/engine/draft_heads/by_speculators

Release 0.9.0 with torch 2.13.0 and transformers 5.19.0 made those that are here. `drafts.safetensors` holds what a head
read and what the library's own forward pass drafts of it: for each step of an unrolled draft the logits at each place.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from speculators.models.eagle3 import Eagle3DraftModel
from transformers import LlamaConfig, Qwen3Config

DRAFTED, ROWS, STEPS = 130, 20, 3
SIZES = {
    "vocab_size": 260, "hidden_size": 64, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 512, "rms_norm_eps": 1e-5,
}  # fmt: skip
BY_DEFAULT = {"norm_before_residual": True, "norm_before_fc": True, "norm_output": True}
FOLDERS = {  # what the library's training does by itself; and what it does where it is asked for
    "by_default": (
        LlamaConfig(**SIZES, layer_types=["sliding_attention"], sliding_window=9), {**BY_DEFAULT, "target": [2, 3, 5]},
    ),
    "as_asked": (
        Qwen3Config(**SIZES, rope_parameters={"rope_type": "linear", "factor": 4.0, "rope_theta": 50000.0}),
        {"norm_before_residual": True, "fc_norm": True, "embed_requires_grad": True, "target": [1, 4]},
    ),
}  # fmt: skip


def make(name: str, verifier: str, out: Path) -> None:
    """One folder of random weights, with the drafts of the head in it."""
    layer, options = FOLDERS[name]
    torch.manual_seed(len(name))
    ids = torch.arange(0, 2 * DRAFTED, 2)
    kept = torch.zeros(SIZES["vocab_size"], dtype=torch.bool)
    kept[ids] = True
    target = options.pop("target")
    head = Eagle3DraftModel.from_training_args(
        layer, t2d=kept, d2t=ids - torch.arange(DRAFTED), draft_vocab_size=DRAFTED, ttt_steps=STEPS,
        verifier_name_or_path=verifier, target_layer_ids=target, draft_attn_impl="eager", **options,
    ).eval()  # fmt: skip
    with torch.no_grad():
        for key, numbers in head.named_parameters():
            if "norm" in key:
                numbers.copy_((1 + 0.2 * torch.randn_like(numbers)).bfloat16())
            elif "embed" not in key or options.get("embed_requires_grad"):
                numbers.copy_((0.3 * torch.randn_like(numbers)).bfloat16())
    logits = list[torch.Tensor]()
    head.lm_head.register_forward_hook(lambda module, given, found: logits.append(found[0].clone()))
    states, tokens = torch.randn(1, ROWS, len(target) * SIZES["hidden_size"]), torch.randint(0, 256, (1, ROWS))
    with torch.no_grad():
        head(states, tokens, torch.zeros(1, ROWS, dtype=torch.long), ttt_steps=STEPS)
    drafts = {"states": states[0], "tokens": tokens[0], "logits": torch.stack(logits)}
    head.bfloat16().save_pretrained(out / name)
    (out / name / "config.py").unlink()  # the library's own code, which nobody here runs
    save_file(drafts, out / name / "drafts.safetensors")


if __name__ == "__main__":
    verifier, out = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    os.chdir(verifier.parent)  # its config names the verifier as it was given
    for name in FOLDERS:
        make(name, verifier.name, out)
