"""Edits of a copy of the model's folder: weights, template, tokenizer, configuration, shards."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any


def _tensors(chosen: Callable[[str], bool], change: Callable[[Any, Any], Any], seed: int = 0) -> Callable[[Path], None]:
    """The model's weights of these names changed by (weight, generator)."""

    def edit(folder: Path) -> None:
        import torch
        from safetensors.torch import load_file, save_file

        file, generator = folder / "model.safetensors", torch.Generator().manual_seed(seed)
        tensors = load_file(file)
        for key in sorted(filter(chosen, tensors)):
            tensors[key] = change(tensors[key].float(), generator).to(tensors[key].dtype).contiguous()
        file.unlink()
        save_file(tensors, file, metadata={"format": "pt"})

    return edit


def _tensor(name: str, change: Callable[[Any, Any], Any], seed: int = 0) -> Callable[[Path], None]:
    """One weight, e.g. "3.mlp.down_proj" (a layer's) or "embed_tokens"."""
    key = f"model.layers.{name}.weight" if name[0].isdigit() else f"model.{name}.weight"
    return _tensors(key.__eq__, change, seed)


def scaled(name: str, factor: float) -> Callable[[Path], None]:
    return _tensor(name, lambda weight, _: weight * factor)


def noised(name: str, sigma: float, seed: int = 0) -> Callable[[Path], None]:
    """sigma: of the weights' own standard deviation."""

    return _tensor(name, partial(_noisy, sigma), seed)


def noised_across(part: str, sigma: float, seed: int) -> Callable[[Path], None]:
    """Every linear layer whose name holds `part`."""
    return _tensors(lambda name: part in name and "_proj" in name, partial(_noisy, sigma), seed)


def _noisy(sigma: float, weight: Any, generator: Any) -> Any:
    import torch

    return weight + sigma * weight.std() * torch.randn(weight.shape, generator=generator)


def one_not_finite(name: str, value: float) -> Callable[[Path], None]:
    def change(weight: Any, _: Any) -> Any:
        weight[0, 0] = value
        return weight

    return _tensor(name, change)


def rows_swapped(*pairs: tuple[int, int]) -> Callable[[Path], None]:
    """Tied embeddings: the model then says, and reads, the one token where it said and read the other."""

    def change(weight: Any, _: Any) -> Any:
        for a, b in pairs:
            weight[[a, b]] = weight[[b, a]]
        return weight

    return _tensor("embed_tokens", change)


def text_replaced(file: str, old: str, new: str) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        text = (folder / file).read_text(encoding="utf-8")
        assert old in text, f"{file} has no {old!r}"
        (folder / file).write_text(text.replace(old, new), encoding="utf-8")

    return edit


def json_changed(file: str, change: Callable[[Any], None]) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        value = json.loads((folder / file).read_text(encoding="utf-8"))
        change(value)
        (folder / file).write_text(json.dumps(value, indent=1), encoding="utf-8")

    return edit


def ids_swapped(left: str, right: str) -> Callable[[Any], None]:
    def change(tokenizer: Any) -> None:
        vocabulary = tokenizer["model"]["vocab"]
        vocabulary[left], vocabulary[right] = vocabulary[right], vocabulary[left]

    return change


def added_shifted(tokenizer: Any) -> None:
    markup = [token for token in tokenizer["added_tokens"] if token["id"] > 3]
    texts = [token["content"] for token in markup]
    for token, text in zip(markup, texts[1:] + texts[:1], strict=True):
        token["content"] = text


def two_shards(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    files = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
    where = {name: files[place % 2] for place, name in enumerate(names)}
    for file in files:
        part = {name: tensors[name] for name in names if where[name] == file}
        save_file(part, folder / file, metadata={"format": "pt"})
    index = {"metadata": {"total_size": sum(t.nbytes for t in tensors.values())}, "weight_map": where}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
