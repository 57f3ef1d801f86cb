"""Benchmark `architectures`: every decoder that transformers knows, made small. Does what is let through say the tokens
of its own `generate`, alone and in a batch, and is everything else refused?

The weights are random, so the tokens mean nothing; they are compared with the plain, unbatched greedy loop of
transformers, taken before our engine touches the model. Each round says which engine runs it, and why not the one
before.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from tests.benchmarks.shape import told
from tests.verification.goals import ARCHITECTURES

QUICK = 8  # every eighth
MOST = 30_000_000  # numbers: what cannot be made smaller is left out
SECONDS = 30
TOKENS = 12
LENGTHS = (3, 9, 17, 24)

# By every name that architectures have for them. A config keeps those that it does not know without using them.
COMMON = {
    "vocab_size": 256, "pad_token_id": 0, "max_position_embeddings": 128, "n_positions": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "n_embd": 64, "n_layer": 2, "n_head": 4, "d_model": 64, "n_layers": 2, "n_heads": 4,
    "emb_dim": 64, "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "num_experts_per_tok": 2,
    "moe_intermediate_size": 32, "ffn_dim": 96, "word_embed_proj_dim": 64, "initializer_range": 0.15,
}  # fmt: skip
GROUPED = {"hidden_size": 64, "intermediate_size": 96, "num_key_value_heads": 2, "head_dim": 16}
ROTATED = {"hidden_size": 64, "intermediate_size": 96, "rotary_dim": 8, "n_ctx": 128}
LATENT = {
    "hidden_size": 64, "intermediate_size": 96, "num_key_value_heads": 4, "q_lora_rank": 16, "kv_lora_rank": 16,
    "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8, "head_dim": 8, "n_group": 2, "topk_group": 1,
    "first_k_dense_replace": 1,
}  # fmt: skip
SIZES = (GROUPED, ROTATED, {"hidden_size": 64, "intermediate_size": 96})  # the first that its own code takes


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """One architecture. refused: why; "" where it is let through. same: as its own `generate`, None where refused.
    engine, because: see `choice.Choice`."""

    name: str
    refused: str = ""
    same: bool | None = None
    engine: str = ""
    because: str = ""
    left_out: str = ""  # why it was not tried


def run(quick: bool) -> dict[str, Any]:
    """quick: every eighth architecture. All of them take some two minutes of one core."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    names = sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)[:: QUICK if quick else 1]
    tried = [tried_out(name) for name in told("architectures", names)]
    through = [one for one in tried if one.same is not None]
    wrong = [one.name for one in through if not one.same]
    few = f"{len(names)} architectures" if quick else None
    return ARCHITECTURES.result(
        rounds=[asdict(one) for one in tried],
        rows=[
            ARCHITECTURES.row("tokens", wrong, met=not wrong, few=few),
            ARCHITECTURES.row("let_through", len(through), met=None if quick else len(through) >= 70, few=few),
        ],
    )


def tried_out(name: str) -> Tried:
    """Load it, and if it is let through, hold its tokens against its own."""
    import torch

    from qualgate.engine.choice import choose_engine
    from qualgate.errors import QualgateError

    try:
        with at_most(SECONDS):
            model, why = made(name)
    except Exception as error:
        return Tried(name=name, left_out=f"{type(error).__name__}: {error}"[:120])
    if model is None:
        return Tried(name=name, left_out=why)
    draw = torch.Generator().manual_seed(1)
    prompts = [torch.randint(1, 256, (length,), generator=draw).tolist() for length in LENGTHS]
    try:
        with at_most(SECONDS):
            expected = [_own(model, prompt) for prompt in prompts]
    except Exception as error:
        return Tried(name=name, left_out=f"its own generate fails: {type(error).__name__}: {error}"[:120])
    try:
        choice = choose_engine(model)
    except QualgateError as error:
        return Tried(name=name, refused=str(error)[:160])
    try:
        same = _ours(model, choice, prompts) == [[one] for one in expected] + [expected]
    except QualgateError:  # let through, and refused later
        same = False
    return Tried(name=name, same=same, engine=choice.kind, because=choice.because)


def made(name: str) -> tuple[Any, str]:
    """(the model, "") or (None, why not)."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.utils import logging

    logging.set_verbosity(logging.CRITICAL)
    why = ""
    for sizes in (LATENT,) if hasattr(AutoConfig.for_model(name), "kv_lora_rank") else SIZES:
        try:
            config = AutoConfig.for_model(name, **COMMON, **sizes)
            with torch.device("meta"):
                size = AutoModelForCausalLM.from_config(config).num_parameters()
            if size > MOST:
                return None, f"{size:,} numbers at the least"
            torch.manual_seed(0)
            model = AutoModelForCausalLM.from_config(config).eval()
            model(torch.arange(1, 9)[None])
            return model, ""
        except Exception as error:
            why = why or f"{type(error).__name__}: {error}"[:120]
    return None, why


def _own(model: Any, prompt: list[int]) -> list[int]:
    import torch

    ids = torch.tensor([prompt])
    said = model.generate(
        ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=TOKENS, eos_token_id=None,
        pad_token_id=0,
    )  # fmt: skip
    return said[0, len(prompt) :].tolist()


def _ours(model: Any, choice: Any, prompts: list[list[int]]) -> list[list[list[int]]]:
    """Each prompt by itself, then all together."""
    from qualgate.engine.answers import Answers
    from qualgate.engine.choice import open_engine
    from qualgate.engine.request import Request

    found = []
    with open_engine(model, choice) as engine:
        for rows in (*([prompt] for prompt in prompts), prompts):
            answers = Answers(len(rows))
            engine.run([Request(prompt=tuple(row), max_new_tokens=TOKENS) for row in rows], None, answers)
            found.append(answers.tokens)
    return found


@contextmanager
def at_most(seconds: int) -> Iterator[None]:
    """TimeoutError where the block takes longer."""

    def late(*_: object) -> None:
        raise TimeoutError(f"over {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
