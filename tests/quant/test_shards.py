"""Safetensors headers: every kind of damage is named with its file and tensor."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from qualgate.errors import UsageError
from qualgate.quant.shards import read_header, tensor_entries

F32 = {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}


def written(path: Path, header: object, data: int) -> Path:
    raw = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(raw)) + raw + bytes(data))
    return path


def test_a_header_written_by_safetensors_is_read(tmp_path):
    save_file({"a": torch.zeros(3, 5, dtype=torch.bfloat16), "b": torch.zeros(0)}, tmp_path / "x.safetensors")
    entries = read_header(tmp_path / "x.safetensors")
    assert (entries["a"].dtype, entries["a"].shape, entries["a"].nbytes) == ("BF16", (3, 5), 30)
    assert entries["b"].nbytes == 0


@pytest.mark.parametrize(
    ("header", "data", "message"),
    [
        ({"a": F32}, 12, "truncated: tensor a"),
        ({"a": F32}, 20, "4 bytes after"),
        ({"a": F32, "b": F32 | {"data_offsets": [8, 24]}}, 24, "tensor b overlaps"),
        ({"a": F32, "b": F32 | {"data_offsets": [24, 40]}}, 40, "tensor b leaves a gap"),
        ({"a": F32 | {"shape": [3, 2]}}, 16, "tensor a.* needs 24 bytes"),
        ({"a": F32 | {"shape": [-2, -2]}}, 16, "tensor a has shape"),
        ({"a": F32 | {"shape": [2**62] * 40}}, 16, "tensor a has shape"),
        ({"a": F32 | {"shape": [2**70, 1]}}, 16, "tensor a has shape"),
        ({"a": F32 | {"dtype": "F31"}}, 16, "dtype 'F31'"),
        ({"a": {"dtype": "F32"}}, 16, "no readable"),
        ([1, 2], 16, "no readable"),
    ],
)
def test_damage_is_named(tmp_path, header, data, message):
    with pytest.raises(UsageError, match=message):
        read_header(written(tmp_path / "x.safetensors", header, data))


@pytest.mark.parametrize("content", [b"", b"\x01", struct.pack("<Q", 10**15) + b"{}", struct.pack("<Q", 5) + b"{"])
def test_a_file_cut_in_its_header_is_refused(tmp_path, content):
    (tmp_path / "x.safetensors").write_bytes(content)
    with pytest.raises(UsageError, match="cut within its header"):
        read_header(tmp_path / "x.safetensors")


def sharded(folder: Path) -> Path:
    written(folder / "one.safetensors", {"a": F32}, 16)
    written(folder / "two.safetensors", {"b": F32}, 16)
    index = {"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def test_shards_are_found_through_the_index(tmp_path):
    assert sorted(tensor_entries(sharded(tmp_path))) == ["a", "b"]


def test_a_missing_shard_is_named(tmp_path):
    (sharded(tmp_path) / "two.safetensors").unlink()
    with pytest.raises(UsageError, match=r"names the shard two\.safetensors, which is missing"):
        tensor_entries(tmp_path)


def test_a_tensor_that_its_shard_does_not_hold_is_named(tmp_path):
    written(sharded(tmp_path) / "two.safetensors", {"c": F32}, 16)
    with pytest.raises(UsageError, match=r"says that b is in two\.safetensors"):
        tensor_entries(tmp_path)


def test_an_index_cannot_reach_out_of_its_folder(tmp_path):
    index = {"weight_map": {"a": "../one.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(UsageError, match="same folder"):
        tensor_entries(tmp_path)
