"""llama.cpp's table from files: two models' logits and the tokens that followed, as numpy saves them.

The files are anyone's. Nothing in them is executed (no pickles), nothing is converted, and only a few rows are held in
memory at a time: logits lie on the disk until they are compared.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from qualgate.drift.llama_table import FEWEST_TOKENS, Chunk, LlamaTable, compare, llama_table
from qualgate.errors import UsageError
from qualgate.errors.misplaced import nearest_path, unreadable

MOST_POSITIONS = 2**22
MOST_VOCABULARY = 2**20
NUMBERS_AT_ONCE = 2**24  # logits of each model in memory: 64 MiB
MAGIC = b"\x93NUMPY"


def table_of_files(base: Path, variant: Path, tokens: Path, chunk: int | None = None) -> LlamaTable:
    """The 34 values from logits [positions, vocabulary], float32, and the token after each position, integers.

    chunk: positions that read one text, the clusters of the errors; None: all of them, and then no clustered error.
    UsageError for files of another kind, shape or size, logits that are not finite, tokens outside the vocabulary.
    """
    before, after, following = read_logits(base, FEWEST_TOKENS), read_logits(variant, FEWEST_TOKENS), _tokens(tokens)
    positions, vocabulary = before.shape
    if after.shape != before.shape:
        raise UsageError(f"{variant} has shape {after.shape} and {base} {before.shape}: not the same positions")
    if following.shape != (positions,):
        raise UsageError(f"{tokens} has shape {following.shape}; {base} needs one token for each of {positions:,} rows")
    if outside := np.flatnonzero((following < 0) | (following >= vocabulary)).tolist():
        raise UsageError(f"{tokens}: token {following[outside[0]]} at {outside[0]} is not one of {vocabulary:,}")
    size = positions if chunk is None else chunk
    if size < 1 or positions % size:
        raise UsageError(f"--chunk {size}: {positions:,} positions are not a whole number of such chunks")
    at_once = max(1, NUMBERS_AT_ONCE // vocabulary)
    chunks = []
    for start in range(0, positions, size):
        edges = [*range(start, start + size, at_once), start + size]
        parts = []
        for a, b in pairwise(edges):
            for path, logits in ((base, before), (variant, after)):
                if not np.isfinite(logits[a:b]).all():
                    raise UsageError(f"{path}: rows {a} to {b - 1} hold logits that are infinite or not a number")
            parts.append(compare(before[a:b], after[a:b], following[a:b]))
        chunks.append(Chunk(**{name: np.concatenate([getattr(p, name) for p in parts]) for name in Chunk.__slots__}))
    return llama_table(chunks)


def read_logits(path: Path, fewest: int = 1) -> NDArray[np.float32]:
    """Logits [positions, vocabulary] on the disk, not read yet. UsageError for a file of another kind or size."""
    found = _mapped(path)
    if found.dtype != np.float32 or found.ndim != 2:
        raise UsageError(
            f"{path} holds {found.dtype} of shape {found.shape}; logits are float32 [positions, vocabulary]"
        )
    positions, vocabulary = found.shape
    if not fewest <= positions <= MOST_POSITIONS or not 2 <= vocabulary <= MOST_VOCABULARY:
        raise UsageError(
            f"{path} has {positions:,} positions over {vocabulary:,} tokens; this takes {fewest} to "
            f"{MOST_POSITIONS:,} positions and 2 to {MOST_VOCABULARY:,} tokens"
        )
    return found


def _tokens(path: Path) -> NDArray:
    found = _mapped(path)
    if found.dtype.kind not in "iu" or found.ndim != 1 or len(found) > MOST_POSITIONS:
        raise UsageError(f"{path} holds {found.dtype} of shape {found.shape}; tokens are integers [positions]")
    return np.asarray(found)


def _mapped(path: Path) -> NDArray:
    """The array in the file, on the disk. UsageError for what is no array of plain numbers."""
    if not path.is_file():  # a pipe or a device would be waited for
        raise UsageError(f"{path}: no such file{nearest_path(path)}")
    try:
        with path.open("rb") as file:
            plain = file.read(len(MAGIC)) == MAGIC
        if not plain:
            raise UsageError(f"{path} is no .npy file; save it with numpy.save")
        with np.errstate(over="ignore"):  # a header may lie about the size; the file is then too short
            return np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError as error:
        raise UsageError(unreadable(path, error)) from None
    except (ValueError, TypeError, EOFError, OverflowError) as error:
        raise UsageError(f"{path} is no .npy file of plain numbers, or not whole: {error}") from None
