"""Several weight files in one folder: which of them each server loads."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from qualgate.errors import UsageError
from qualgate.pipeline.folder_notes import folder_notes
from qualgate.quant.model_folder import read_model_folder
from tests.quant.agreement.folders import Tensors, sound

SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
NORM = "model.norm.weight"
NOT_LOADED = ["original/model.safetensors", "pytorch_model.bin", "model.gguf", "params.json"]


def split(folder: Path, tensors: Tensors, *, listed: set[str] | None = None) -> None:
    """Two shards and their index beside what the folder holds."""
    names = sorted(tensors)
    places = {name: SHARDS[place >= len(names) // 2] for place, name in enumerate(names)}
    for shard in SHARDS:
        save_file({name: tensors[name] for name in names if places[name] == shard}, folder / shard)
    index = {name: shard for name, shard in places.items() if listed is None or name in listed}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))


def put(file: Path) -> None:
    file.parent.mkdir(exist_ok=True)
    file.write_text("x")


def other(tensors: Tensors) -> Tensors:
    return tensors | {NORM: tensors[NORM] + 1}


def spread(folder: Path, tensors: Tensors) -> None:
    (folder / "model.safetensors").unlink()
    split(folder, tensors)


def twice(folder: Path, tensors: Tensors, norm: torch.Tensor) -> None:
    spread(folder, tensors)
    found = load_file(folder / SHARDS[0]) | {NORM: norm}
    save_file(found, folder / SHARDS[0])


CASES = {
    "a stale index": (lambda f, t: split(f, other(t)), "lists it.*transformers loads model.safetensors; vLLM loads"),
    "an index of the same tensors": (split, list(SHARDS)),
    "an index of fewer": (
        lambda f, t: split(f, {k: v for k, v in t.items() if k != NORM}), f"2 of 2 are there. do not hold {NORM}",
    ),
    "an index of files that are gone": (
        lambda f, t: (split(f, t), [(f / shard).unlink() for shard in SHARDS]), "0 of 2 are there.*files of the index",
    ),
    "an empty index": (
        lambda f, t: (f / "model.safetensors.index.json").write_text('{"weight_map": {}}'), "0 of 0 are there",
    ),
    "an adapter": (lambda f, t: (f / "adapter_config.json").write_text("{}"), "loads, where PEFT is installed"),
    "what no server loads": (
        lambda f, t: [put(f / name) for name in NOT_LOADED], NOT_LOADED,
    ),
    "shards": (spread, []),
    "a tensor in two shards": (
        lambda f, t: twice(f, t, t[NORM] + 1), f"{SHARDS[0]} and {SHARDS[1]}, and both hold {NORM}, with different",
    ),
    "a tensor in two shards, the same": (lambda f, t: twice(f, t, t[NORM]), []),
    "a tensor that is not listed": (
        lambda f, t: ((f / "model.safetensors").unlink(), split(f, t, listed={*t} - {NORM})), f"does not list {NORM}",
    ),
    "one file more": (lambda f, t: save_file({NORM: t[NORM] + 1}, f / "patch.safetensors"), "vLLM loads every"),
    "one file more, beside shards": (
        lambda f, t: (spread(f, t), save_file({NORM: t[NORM] + 1}, f / "patch.safetensors")), ["patch.safetensors"],
    ),
    "another copy": (lambda f, t: save_file(other(t), f / "model_bf16.safetensors"), "vLLM loads every"),
    "a copy": (lambda f, t: save_file(t, f / "copy.safetensors"), ["copy.safetensors"]),
    "consolidated": (lambda f, t: save_file(t, f / "consolidated.safetensors"), ["consolidated.safetensors"]),
    "consolidated, another": (lambda f, t: save_file(other(t), f / "consolidated.safetensors"), "vLLM reads it alone"),
    "consolidated, beside shards": (
        lambda f, t: (spread(f, t), save_file(other(t), f / "consolidated.safetensors")), "vLLM reads it alone",
    ),
    "a further tensor of a module": (
        lambda f, t: save_file({"model.norm.bias": t[NORM]}, f / "model-extra.safetensors"), "its model.norm.bias",
    ),
    "other names": (lambda f, t: save_file({"x": t[NORM]}, f / "adapter_model.safetensors"),
                    ["adapter_model.safetensors"]),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_what_some_server_would_load_is_refused_and_the_rest_is_listed(tmp_path, case):
    folder = sound("plain", tmp_path / "f")
    change, expected = CASES[case]
    change(folder, load_file(folder / "model.safetensors"))
    if isinstance(expected, list):
        assert list(read_model_folder(folder).beside) == expected
        return
    with pytest.raises(UsageError, match=expected):
        read_model_folder(folder)


@pytest.mark.parametrize("kind", ["fp8", "compressed-tensors"])
def test_floats_under_the_names_of_codes_are_refused_where_a_server_loads_them_by_its_glob(tmp_path, kind):
    folder = sound(kind, tmp_path / "f")
    shutil.copy(sound("plain", tmp_path / "plain") / "model.safetensors", folder / "model_bf16.safetensors")
    with pytest.raises(UsageError, match=r"holds model_bf16\.safetensors beside .*vLLM loads every"):
        read_model_folder(folder)


@pytest.mark.parametrize(
    ("case", "sentence"),
    [
        ("a copy", "vLLM loads every *.safetensors of the folder"),
        ("consolidated", "reads it alone, in Mistral's format"),
        ("an index of the same tensors", "vLLM loads the shards of the index"),
        ("one file more, beside shards", "transformers reads none of them"),
        ("what no server loads", "transformers reads none of them"),
    ],
)
def test_the_note_on_files_beside_the_model_says_what_servers_do_with_them(tmp_path, case, sentence):
    folder = sound("plain", tmp_path / "f")
    CASES[case][0](folder, load_file(folder / "model.safetensors"))
    (line,) = folder_notes([("v", read_model_folder(folder, hashed=False))])
    assert sentence in line
