"""The weight files of a folder held against its index and against each other: every server loads some of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from qualgate.errors import UsageError
from qualgate.quant.agreement.table import READINGS
from qualgate.quant.tensor_entry import TensorEntry
from qualgate.text.numbers import counted

Header = Callable[[Path], Mapping[str, TensorEntry]]
_LISTED = "single file and index"
_CHUNK = 2**24  # bytes
_NOT_LOADED = ("original/*.safetensors", "original/*.pth", "*.bin", "*.pt", "*.pth", "*.gguf", "params.json")
_MOST_SHOWN = 6
_AGAIN = "Fetch or save this checkpoint again."


def check_index(index: Path | None, listed: Mapping[str, str], read: Mapping[str, Mapping[str, TensorEntry]]) -> None:
    """Raise UsageError where an index and the tensors of its shards differ, or two shards hold one tensor differently.

    listed: which tensor the index says is in which file; read: the tensors that each file holds.
    """
    holders: dict[str, list[str]] = {}
    for file, entries in read.items():
        for name in entries:
            holders.setdefault(name, []).append(file)
    for name, files in sorted(holders.items()):
        first, *remainder = (read[file][name] for file in files)
        if any(not same_bytes(first, other) for other in remainder):
            raise UsageError(
                f"{index} names {' and '.join(files)}, and both hold {name}, with different values: "
                f"{READINGS['tensor twice'].sentence}. Save the checkpoint again, so that each tensor is in one file."
            )
    for name, file in listed.items():
        if name not in read.get(file, {}):
            places = " and ".join(holders.get(name, ())) or "no file of the index"
            raise UsageError(f"{index} says that {name} is in {file}, but it is in {places}. {_AGAIN}")
    if index is not None and (unlisted := sorted(holders.keys() - listed.keys())):
        remainder = f" (and {counted(len(unlisted) - 1, 'further tensor')})" if len(unlisted) > 1 else ""
        raise UsageError(
            f"{index} does not list {unlisted[0]}, which {holders[unlisted[0]][0]} holds{remainder}: "
            f"{READINGS['tensor unlisted'].sentence}. Add it to the index, or save the checkpoint again."
        )


def files_beside(
    folder: Path, model: Mapping[str, TensorEntry], listed: set[str] | None, header: Header
) -> dict[str, int]:
    """Return the weight files of the folder that are not the model's, and how many tensors each holds (0: not looked
    at).

    model: its tensors; listed: the files that model.safetensors.index.json names, None without one. UsageError for a
    file that some server would load and that holds a tensor of the model with other numbers.
    """
    model_files = {entry.file.name for entry in model.values()}
    others = [file for kind in _NOT_LOADED for file in sorted(folder.glob(kind)) if file.is_file()]
    counts = {name: 0 for file in others if (name := file.relative_to(folder).as_posix()) not in model_files}
    _check_index_holds(folder, model, model_files, listed, header)
    listed = listed or set()
    for file in sorted(folder.glob("*.safetensors")):
        if file.name in model_files:
            continue
        entries = header(file)
        situation = _situation(file.name, listed)
        differing = _differing(model, entries, whole=situation == _LISTED) if situation else []
        if differing:
            named = ", and model.safetensors.index.json lists it" if situation == _LISTED else ""
            raise UsageError(
                f"{folder} holds {file.name} beside {min(model_files)}{named}: its {differing[0]} ({len(differing)} of "
                f"{counted(len(entries), 'tensor')}) is not the model's, and {READINGS[situation].sentence}. Keep the "
                "right file, and remove the other one."
            )
        counts[file.name] = len(entries)
    return counts


def _check_index_holds(
    folder: Path, model: Mapping[str, TensorEntry], model_files: set[str], listed: set[str] | None, header: Header
) -> None:
    """Raise UsageError for an index that names none of the model's files, unless its files hold all of the model."""
    if listed is None or model_files & listed or not all(file.endswith(".safetensors") for file in model_files):
        return
    listed_files = [folder / file for file in listed if (folder / file).is_file()]
    names = {name for file in listed_files for name in header(file)}
    if lacking := sorted(model.keys() - names):
        raise UsageError(
            f"{folder} holds {min(model_files)} beside model.safetensors.index.json, whose files ({len(listed_files)} "
            f"of {len(listed)} are there) do not hold {lacking[0]}: {READINGS['index alone'].sentence}. Remove the "
            f"index if {min(model_files)} is right; else fetch the files that it lists and remove {min(model_files)}."
        )


def check_no_adapter(folder: Path) -> None:
    """Raise UsageError for an adapter in the model's own folder."""
    if (folder / "adapter_config.json").is_file():
        raise UsageError(
            f"{folder} holds adapter_config.json beside config.json: {READINGS['adapter'].sentence}. Move the adapter "
            "to a folder of its own, or write `read_as: vllm` beside `model` if no transformers with PEFT serves it."
        )


def beside_note(name: str, beside: Mapping[str, int], listed: set[str] | None) -> str:
    """Return a line for the user on files of an arm's folder that nothing here reads; "" where there are none.

    beside, listed: see `files_beside`.
    """
    situations: dict[str, list[str]] = {}
    for file in beside:
        named = _situation(file, listed or set()) if beside[file] else ""
        situations.setdefault(named or "files beside", []).append(file)
    parts = [
        f"{', '.join(files[:_MOST_SHOWN])}{', …' if len(files) > _MOST_SHOWN else ''}, which nothing here judges: "
        f"{READINGS[situation].sentence}"
        for situation, files in situations.items()
    ]
    return f"{name}: beside the model's weights its folder holds {'; and '.join(parts)}" if parts else ""


def _situation(file: str, listed: set[str]) -> str:
    """Which of the table's situations makes a server load `file`; "" where none does."""
    if file.startswith("consolidated"):
        return "consolidated"
    if file in listed:
        return _LISTED
    return "" if listed else "another file"


def _differing(model: Mapping[str, TensorEntry], entries: Mapping[str, TensorEntry], *, whole: bool) -> list[str]:
    """Return the tensors of `entries` that the model holds with other bytes or does not hold.

    Of those that it does not hold, only tensors of its modules count; with `whole`, all do.
    """
    modules = {name.rpartition(".")[0] for name in model} - {""}
    return [
        name
        for name, entry in sorted(entries.items())
        if (not same_bytes(model[name], entry) if name in model else whole or name.rpartition(".")[0] in modules)
    ]


def same_bytes(left: TensorEntry, right: TensorEntry) -> bool:
    """Return whether two tensors of safetensors files are the same to the bit."""
    if (left.dtype, left.shape, left.nbytes) != (right.dtype, right.shape, right.nbytes):
        return False
    return all(left_chunk == right_chunk for left_chunk, right_chunk in zip(_chunks(left), _chunks(right), strict=True))


def _chunks(entry: TensorEntry) -> Iterable[bytes]:
    with entry.file.open("rb") as stream:
        stream.seek(entry.start)
        for position in range(0, entry.nbytes, _CHUNK):
            yield stream.read(min(_CHUNK, entry.nbytes - position))
