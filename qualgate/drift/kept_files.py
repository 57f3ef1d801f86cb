"""A baseline's logits kept once, in few bytes, and the KL of a later variant from them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from qualgate.drift.logit_files import MAGIC as NPY
from qualgate.drift.logit_files import read_logits
from qualgate.drift.stored import MAGIC, Certified, StoredBaseline, certify, store
from qualgate.errors import IntegrityError, UsageError
from qualgate.errors.misplaced import unreadable

LARGEST = 2**33  # bytes of a file that is read into memory
LLAMA_A_TOKEN, LLAMA_A_POSITION = 2, 8  # bytes that llama.cpp's logits file takes


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptBytes:
    """What keeping took, in bytes, and what llama.cpp's logits file would take of the same positions."""

    positions: int
    vocabulary: int
    bytes: int
    llama_bytes: int


def keep_file(base: Path, at_most: float) -> tuple[bytes, KeptBytes]:
    """What to write for a .npy file of logits, float32 [positions, vocabulary]; at_most: nats, as of `stored.store`."""
    logits = read_logits(base)
    try:
        kept = store(logits, at_most=at_most).to_bytes()
    except UsageError as error:
        raise UsageError(f"{base}: {error}") from None
    positions, vocabulary = logits.shape
    llama = positions * (LLAMA_A_TOKEN * vocabulary + LLAMA_A_POSITION)
    return kept, KeptBytes(positions=positions, vocabulary=vocabulary, bytes=len(kept), llama_bytes=llama)


def kl_from_file(kept: Path, variant: Path) -> Certified:
    """KL(baseline || variant) at each position. UsageError for files of another kind or shape, IntegrityError
    for a stored baseline that is not as it was written."""
    try:
        if not kept.is_file() or kept.stat().st_size > LARGEST:  # a pipe or a device would be waited for
            raise UsageError(f"{kept}: no such file, or over {LARGEST:,} bytes; `qualgate drift --keep` writes one")
        data = kept.read_bytes()
    except OSError as error:
        raise UsageError(unreadable(kept, error)) from None
    if not data.startswith(MAGIC.partition(b"/")[0]):  # another file than was meant, and none of ours that was damaged
        kind = "a .npy file" if data.startswith(NPY) else "another kind of file"
        raise UsageError(
            f"{kept} is {kind}, not a stored baseline: --kept takes what `qualgate drift --keep BASE.npy KEPT` wrote, "
            "and after it the variant's logits"
        )
    try:
        baseline = StoredBaseline.from_bytes(data)
    except IntegrityError as error:
        raise IntegrityError(f"{kept}: {error}") from None
    logits = read_logits(variant)
    try:
        return certify(baseline, logits)
    except UsageError as error:
        raise UsageError(f"{variant} against {kept}: {error}") from None
