"""Damaged files: whatever is changed in a header, a config or a tensor, the answer is a reading or a UsageError."""

from __future__ import annotations

import json
import os
import random
import resource
import struct
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from qualgate.errors import UsageError
from qualgate.quant.readers import read_quantized
from tests.quant.readers.made import MODULE
from tests.quant.readers.seeds import SEEDS, Seed

# A slice in CI; the whole with QUALGATE_FUZZ=10000.
ROUNDS = int(os.environ.get("QUALGATE_FUZZ", "400"))
SLOWEST = 1.0  # s for one folder
MOST_MEMORY = 64 << 10  # KiB by which reading folders of some 10 kB may raise the process's peak

ODD = [*json.loads('[null, true, 0, -1, 1, 3, 7, 1e308, NaN, "", "x", "16", [], {}, [[]], [1, 2], {"a": 1}]'),
       2**31, 2**63, 10**400]  # fmt: skip


def changed_config(config: dict, draw: random.Random) -> dict:
    """One value anywhere in the config replaced, or one key dropped."""
    config = json.loads(json.dumps(config))
    place = config
    while True:
        key = draw.choice(sorted(place) if isinstance(place, dict) else range(len(place)))
        deeper = place[key]
        if isinstance(deeper, dict | list) and deeper and draw.random() < 0.7:
            place = deeper
            continue
        if draw.random() < 0.2 and isinstance(place, dict):
            del place[key]
        else:
            place[key] = draw.choice(ODD)
        return config


def changed_header(raw: bytes, draw: random.Random) -> bytes:
    """One entry of a safetensors header changed, the data as it was."""
    length = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8 : 8 + length])
    entry = header[draw.choice(sorted(header))]
    key = draw.choice(sorted(entry)) if entry else "dtype"
    if key == "shape" and draw.random() < 0.7:
        entry["shape"] = draw.choice([entry["shape"][::-1], [*entry["shape"], 1], entry["shape"][:-1], [2**40, 2**40]])
    elif key == "dtype" and draw.random() < 0.8:
        entry["dtype"] = draw.choice(
            ["I8", "U8", "I32", "F32", "F16", "BF16", "F8_E4M3", "F8_E8M0", "I64", "BOOL", "F4"]
        )
    elif key == "data_offsets" and draw.random() < 0.7:
        entry[key][draw.randrange(2)] += draw.choice([-8, -1, 1, 4, 2**40])
    else:
        entry[key] = draw.choice(ODD)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + raw[8 + length :]


def changed_bytes(raw: bytes, draw: random.Random) -> bytes:
    """A few bytes anywhere, a cut, or a repetition."""
    kind = draw.randrange(4)
    if kind == 0:
        return raw[: draw.randrange(len(raw))]
    if kind == 1:
        return raw + raw[: draw.randrange(1, 100)]
    changed = bytearray(raw)
    for _ in range(draw.choice([1, 1, 4, 64])):
        changed[draw.randrange(len(changed) if kind == 2 else min(len(changed), 600))] = draw.randrange(256)
    return bytes(changed)


def changed_tensor(tensors: dict[str, torch.Tensor], draw: random.Random) -> dict[str, torch.Tensor]:
    """One tensor with another shape, dtype, name or values."""
    changed = dict(tensors)
    name = draw.choice(sorted(changed))
    tensor = changed[name]
    kind = draw.randrange(7)
    if kind == 0:
        del changed[name]
    elif kind == 1:
        changed[name] = tensor.flatten()
    elif kind == 2:
        changed[name] = tensor[: draw.randrange(len(tensor) + 1)] if tensor.dim() else tensor.reshape(1)
    elif kind == 3:
        changed[name] = tensor.float().to(
            draw.choice([torch.float32, torch.int32, torch.int8, torch.float16, torch.int64])
        )
    elif kind == 4:
        changed[draw.choice(["x.qweight", "x.weight_packed", "x.weight_scale", f"{MODULE}.bias", "x.SCB"])] = (
            tensor.clone()
        )
    elif kind == 5:
        value = draw.choice([0.0, -1.0, float("nan"), float("inf"), 255.0, 1e30])
        changed[name] = torch.full(tensor.shape, value).to(
            torch.float32 if tensor.dtype.is_floating_point else torch.int32
        )
        changed[name] = changed[name].to(tensor.dtype)
    else:
        changed[name] = torch.cat([tensor, tensor]) if tensor.dim() else tensor
    return {key: value.contiguous() for key, value in changed.items()}


def made(folder: Path, seed: Seed, draw: random.Random) -> None:
    """A folder of this seed with one kind of damage."""
    tensors, config, metadata = seed
    kind = draw.randrange(4)
    file = folder / "model.safetensors"
    save_file(changed_tensor(tensors, draw) if kind == 0 else tensors, file, metadata or {"format": "pt"})
    if kind == 1 and metadata and draw.random() < 0.7:
        described = {name: json.dumps(changed_config(json.loads(text), draw)) for name, text in metadata.items()}
        save_file(tensors, file, described)
    elif kind == 1:
        config = changed_config(config, draw)
    elif kind == 2:
        file.write_bytes(changed_header(file.read_bytes(), draw))
    elif kind == 3:
        file.write_bytes(changed_bytes(file.read_bytes(), draw))
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "quantization_config": config}))


@pytest.mark.parametrize("name", sorted(SEEDS))
def test_no_damage_ends_in_anything_but_a_reading_or_a_usage_error(tmp_path, name):
    torch.manual_seed(0)
    seed = SEEDS[name]()
    save_file(seed[0], tmp_path / "model.safetensors", seed[2] or {"format": "pt"})
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", "quantization_config": seed[1]}))
    assert read_quantized(tmp_path).layers  # what is damaged below is whole
    draw = random.Random(name)
    refused = slowest = longest = 0.0
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(ROUNDS // len(SEEDS)):
        made(tmp_path, seed, draw)
        start = time.thread_time()  # of this thread: another process's load is no hang
        try:
            read_quantized(tmp_path)
        except UsageError as error:
            refused += 1
            longest = max(longest, len(str(error)))
        slowest = max(slowest, time.thread_time() - start)
    assert slowest < SLOWEST
    assert longest < 2000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - held < MOST_MEMORY
    assert refused > ROUNDS // len(SEEDS) / 4  # else nothing was really damaged


@pytest.mark.parametrize("kinds", [("Q4_K", "Q2_K"), ("Q3_K", "TQ1_0"), ("IQ1_M", "IQ2_XS"), ("IQ4_XS", "NVFP4")])
def test_a_damaged_gguf_or_part_of_one_ends_the_same_way(tmp_path, kinds):
    pytest.importorskip("gguf")
    from tests.quant.readers.test_gguf import blocks, split

    parts = [{f"blk.{layer}.ffn_up.weight": (kind, blocks(kind, 4, 256))} for layer, kind in enumerate(kinds)]
    files = sorted(split(tmp_path, parts).iterdir())
    whole = [file.read_bytes() for file in files]
    assert len(read_quantized(tmp_path).layers) == 2
    draw = random.Random(kinds[0])
    refused = 0
    for _ in range(ROUNDS // 32):
        place = draw.randrange(2)
        files[place].write_bytes(changed_bytes(whole[place], draw))
        start = time.thread_time()
        try:
            read_quantized(tmp_path)
        except UsageError:
            refused += 1
        assert time.thread_time() - start < SLOWEST
        files[place].write_bytes(whole[place])
    assert refused > ROUNDS // 32 / 4
