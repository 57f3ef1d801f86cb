"""The peers of benchmark `decode`: transformers' `generate` and `generate_batch`, and lm-eval's `hf`.

They get the same numbers as plain torch modules: a folder of dequantized weights, written once.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from qualgate.engine import dense
from qualgate.engine.load import load_arm
from qualgate.quant.linear import QuantizedLinear
from qualgate.quant.recipes import parse_recipe
from qualgate.records import ArmSpec, Prompt
from qualgate_kernels.dequantize import dequantize_torch
from tests.benchmarks.race import Contender, best_sizes

SIZES = (4, 8, 16, 32, 64, 128)
PAGE = 256  # positions in a block of generate_batch, its default
PAD = 0


def write_dequantized(model: Path, recipe: object, cache: Path, out: Path) -> Path:
    """`model` as `recipe` (as in a gate file; None: as it is) makes its numbers, in float32, in folder `out`."""
    from safetensors.torch import save_file

    quantize = None if recipe is None else parse_recipe(recipe)
    spec = ArmSpec(name="dequantized", model=str(model), quantize=quantize, kernels="torch")
    arm = load_arm(spec, cache, {}, device="cpu")
    dense.take_back(arm.model)
    tied = arm.model.config.tie_word_embeddings
    tensors = {
        name: parameter.detach().float().contiguous()
        for name, parameter in arm.model.named_parameters()  # what is tied is named once
    }
    for name, module in arm.model.named_modules():
        if isinstance(module, QuantizedLinear):
            tensors[f"{name}.weight"] = dequantize_torch(module.packed).float().contiguous()
    assert tied or "lm_head.weight" in tensors, "the head is neither tied nor there"
    shutil.copytree(model, out, ignore=shutil.ignore_patterns("*.safetensors*", "*.md"))
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    return out


def load_transformers(folder: Path, dtype: torch.dtype = torch.float32) -> Any:
    """The folder's model as transformers loads it."""
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()
    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, local_files_only=True).eval()


class Transformers:
    """One model and the prompts it is asked. Both ways say token ids, up to the end token or the prompt's limit."""

    def __init__(self, model: Any, stop_ids: Sequence[int], prompts: Mapping[str, Sequence[Prompt]]) -> None:
        self.model, self._stop_ids, self._prompts = model, list(stop_ids), prompts

    @property
    def counts(self) -> dict[str, int]:
        """Prompts of each kind."""
        return {kind: len(mine) for kind, mine in self._prompts.items()}

    def generate(self, kind: str, size: int) -> list[tuple[int, ...]]:
        """`generate` in batches of `size`, longest answers first, so that the rows of a batch end together."""
        prompts = self._prompts[kind]
        order = sorted(range(len(prompts)), key=lambda at: (-prompts[at].max_new_tokens, -len(prompts[at].token_ids)))
        found: dict[int, tuple[int, ...]] = {}
        for first in range(0, len(order), size):
            places = order[first : first + size]
            found |= dict(zip(places, self._batch([prompts[at] for at in places]), strict=True))
        return [found[at] for at in range(len(prompts))]

    def _batch(self, prompts: Sequence[Prompt]) -> list[tuple[int, ...]]:
        width = max(len(prompt.token_ids) for prompt in prompts)
        ids = torch.tensor([[PAD] * (width - len(one.token_ids)) + [*one.token_ids] for one in prompts])
        lengths = torch.tensor([len(one.token_ids) for one in prompts])
        mask = torch.arange(width) >= (width - lengths)[:, None]
        said = self.model.generate(
            ids, attention_mask=mask.long(), do_sample=False, pad_token_id=PAD, eos_token_id=self._stop_ids,
            max_new_tokens=max(prompt.max_new_tokens for prompt in prompts),
        )[:, width:].tolist()  # fmt: skip
        return [self._cut(tokens, prompt) for tokens, prompt in zip(said, prompts, strict=True)]

    def generate_batch(self, kind: str, size: int) -> list[tuple[int, ...]]:
        """Continuous batching of at most `size` requests a step. Its cache is told its size: on CPUs it would take, and
        fill with zeros, nearly all memory."""
        from transformers import GenerationConfig
        from transformers.generation.configuration_utils import ContinuousBatchingConfig

        prompts = self._prompts[kind]
        longest = max(len(one.token_ids) + one.max_new_tokens for one in prompts)
        how = GenerationConfig(
            do_sample=False, eos_token_id=self._stop_ids, pad_token_id=PAD,
            max_new_tokens=max(one.max_new_tokens for one in prompts),
        )  # fmt: skip
        blocks = min(size, len(prompts)) * -(-longest // PAGE)
        cache = ContinuousBatchingConfig(num_blocks=blocks, page_size=PAGE, max_requests_per_batch=size)
        found: dict[str, tuple[int, ...]] = {}
        manager_of = self.model.continuous_batching_context_manager
        attention = self.model.config._attn_implementation
        try:
            with manager_of(
                generation_config=how, continuous_batching_config=cache, timeout=5, warmup=False
            ) as manager:
                for at, prompt in enumerate(prompts):
                    manager.add_request([*prompt.token_ids], str(at), max_new_tokens=prompt.max_new_tokens)
                while len(found) < len(prompts):
                    result = manager.get_result(timeout=1)
                    if result is not None and result.is_finished():
                        found[result.request_id] = tuple(result.generated_tokens)
                    elif result is None and not manager.is_running():
                        raise RuntimeError("generate_batch ended before all were answered")
        finally:
            self.model.set_attn_implementation(attention)
        return [self._cut(found[str(at)], prompt) for at, prompt in enumerate(prompts)]

    def _cut(self, tokens: Sequence[int], prompt: Prompt) -> tuple[int, ...]:
        ends = [place + 1 for place, token in enumerate(tokens) if token in self._stop_ids]
        return tuple(tokens[: min([*ends, prompt.max_new_tokens])])

    def at_best(self, way: str, sizes: Sequence[int]) -> tuple[Contender, dict[str, int]]:
        """`generate` or `generate_batch` at the size that is best for each kind, and those sizes."""
        answer = getattr(self, way)
        best = best_sizes(answer, self.counts, sizes)
        return self.at(way, best), best

    def at(self, way: str, best: Mapping[str, int]) -> Contender:
        """The same, at known sizes."""
        answer = getattr(self, way)
        return Contender(answer=lambda kind: answer(kind, best[kind]))
