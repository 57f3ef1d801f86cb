"""llama.cpp as a peer: its server in a process of an interpreter that has it, on a GGUF of our quantized weights."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from qualgate.engine import dense
from qualgate.engine.load import load_arm
from qualgate.quant.linear import QuantizedLinear
from qualgate.quant.recipes import parse_recipe
from qualgate.records import ArmSpec, Prompt
from qualgate_kernels.packed import PackedWeight, unpack_codes
from tests.benchmarks import llama_answers
from tests.benchmarks.peer_process import Peer, longest, running, write_asked
from tests.benchmarks.race import Round
from tests.verification.references.edited_folders.gguf_files import named

INTERPRETER = "QUALGATE_SERVERS_LLAMACPP"  # environment variable: a Python that can import xllamacpp
RECIPES: dict[str, Any] = {
    "q8_0": {"method": "int8", "group_size": 32},
    "q4_0": {"method": "int4", "group_size": 32},
}
"""llama.cpp's types → the recipes whose weights they hold: symmetric codes, a scale for each 32 weights of a row."""
KINDS = {8: "Q8_0", 4: "Q4_0"}


def missing() -> str:
    """Why there is no llama.cpp; "" where an interpreter is named."""
    if not os.environ.get(INTERPRETER):
        return f"not measured: {INTERPRETER} names no interpreter with xllamacpp"
    return ""


@contextmanager
def serving(file: Path, prompts: Mapping[str, Sequence[Prompt]], slots: int, work: Path) -> Iterator[Peer]:
    """llama.cpp's server with the GGUF `file`, warmed up with the prompts, of which it answers `slots` at once.

    It has as many threads as torch here, keeps no prompt, and says as many tokens as each prompt allows. work: a folder
    for what it is asked. Down where it does not come up.
    """
    asked = write_asked(work / f"{file.stem}-{slots}.json", prompts)
    arguments = [str(file), str(torch.get_num_threads()), str(slots), str(longest(prompts) + 1), str(asked)]
    command = [os.environ[INTERPRETER], llama_answers.__file__, *arguments]
    with running("llama.cpp", command, os.environ, work / f"{asked.stem}.log") as llama:
        yield llama


def equal_tokens(rounds: Sequence[Round], ours: str, theirs: str) -> float:
    """The share of tokens at which both said the same, place by place."""
    pairs = [
        (a, b)
        for one in rounds
        for turns in one.values()
        for said in zip(turns[ours].said, turns[theirs].said, strict=True)
        for a, b in zip(*said, strict=False)
    ]
    return sum(a == b for a, b in pairs) / len(pairs)


def write_gguf(model: Path, recipe: object, cache: Path, out: Path) -> Path:
    """`model`, a Llama, as `recipe` quantizes it: the same codes and scales as blocks of Q8_0 or Q4_0, and what is not
    quantized as it is: float16 where that holds it, else bfloat16.

    Its vocabulary has numbers for texts, since it is asked by token ids. ValueError for scales that float16 does not
    hold.
    """
    import gguf

    spec = ArmSpec(name="gguf", model=str(model), quantize=parse_recipe(recipe), kernels="torch")
    arm = load_arm(spec, cache, {}, device="cpu")
    dense.take_back(arm.model)
    config = arm.model.config
    writer = gguf.GGUFWriter(out, "llama")
    _write_header(writer, config, arm.stop_ids)
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    for name, module in arm.model.named_modules():
        if isinstance(module, QuantizedLinear):
            target = named(f"{name}.weight")
            raw = blocks(module.packed)[_order(heads.get(target.split(".")[-2], 0), module.out_features)]
            kind = gguf.GGMLQuantizationType[KINDS[module.packed.bits]]
            writer.add_tensor(target, raw.contiguous().numpy(), raw_dtype=kind)
    for name, parameter in arm.model.named_parameters():
        values = parameter.detach().float().contiguous()
        if parameter.dim() == 1:
            writer.add_tensor(named(name), values.numpy())
        else:
            exact = torch.equal(values.half().float(), values)  # float16 is what llama.cpp multiplies faster
            kind = gguf.GGMLQuantizationType.F16 if exact else gguf.GGMLQuantizationType.BF16
            writer.add_tensor(named(name), gguf.quants.quantize(values.numpy(), kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return out


def blocks(packed: PackedWeight) -> torch.Tensor:
    """Bytes [rows, bytes of a row]: of each 32 weights a float16 scale, then 32 signed bytes (Q8_0), or 16 bytes whose
    low halves are the first 16 weights and whose high halves are the others (Q4_0)."""
    rows, columns = packed.shape
    if packed.code != "int" or packed.group_size != 32 or packed.zero_points is not None or packed.bits not in KINDS:
        raise ValueError(f"expected 4 or 8 symmetric bits in groups of 32, got {packed.format}")
    scales = packed.scales.half()
    if not torch.equal(scales.float(), packed.scales.float()):
        raise ValueError("scales: float16 does not hold them")
    codes = unpack_codes(packed.codes, packed.bits, columns, torch.int32).to(torch.uint8).view(rows, -1, 32)
    held = codes ^ 128 if packed.bits == 8 else codes[..., :16] | codes[..., 16:] << 4
    return torch.cat([scales.view(torch.uint8).view(rows, -1, 2), held], -1).view(rows, -1)


def _order(heads: int, rows: int) -> torch.Tensor:
    """Where llama.cpp's rows of q or k are among those of transformers; heads: 0 for other matrices."""
    return torch.arange(rows).view(heads, 2, -1).transpose(1, 2).flatten() if heads else torch.arange(rows)


def _write_header(writer: Any, config: Any, stop_ids: Sequence[int]) -> None:
    import gguf

    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list([f"t{at}" for at in range(config.vocab_size)])
    writer.add_token_types([gguf.TokenType.NORMAL] * config.vocab_size)
    writer.add_token_merges(["t 0"])
    for at in stop_ids[:1]:
        writer.add_eos_token_id(at)
    writer.add_add_bos_token(False)
