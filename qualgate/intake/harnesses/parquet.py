"""Read Parquet files of others within bounds, batch by batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from qualgate.documents import quote
from qualgate.errors import UsageError
from qualgate.intake.harnesses.containers import CUT, extra
from qualgate.sandbox import killable

MOST_ROWS = 20_000_000
MOST_BATCH = 2**28  # bytes of one batch, and of its rows if each held all of a column
MOST_ROW = 32 * 2**20  # bytes, in the mean of a batch
ROWS = 1000  # of a batch
BOUNDS = killable.Bounds(cpu_seconds=600, wall_seconds=1800, memory_bytes=4 * 2**30)


def parquet_batches(path: Path, columns: Sequence[str], needed: Sequence[str]) -> Iterator[Any]:
    """Yield record batches of some columns; those that the file lacks are left out.

    needed: its columns at the top. A child process reads the whole file first, since the reader may crash on a damaged
    one. UsageError names the file, if it is damaged or unpacks to too much.
    """
    try:
        fault, rows = killable.run(check_file, str(path), list(columns), list(needed), within=BOUNDS)
    except killable.Killed as error:
        fault, rows = f"not readable as Parquet: reading it ended by {quote(str(error))}. {CUT}", 1
    if fault:
        raise UsageError(f"{path}: {fault}")
    try:
        with _opened(str(path)) as file:
            yield from file.iter_batches(rows, columns=list(columns), use_threads=False)
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: changed while it was read: {quote(str(error)[:300])}") from None


def check_file(path: str, columns: Sequence[str], needed: Sequence[str]) -> tuple[str, int]:
    """Read the file as a whole: (its fault or "", rows of a batch)."""
    arrow = extra("pyarrow")
    try:
        with _opened(path) as file:
            if missing := [name for name in needed if name not in file.schema_arrow.names]:
                return f"has no column {', '.join(map(quote, missing))}", 1
            metadata = file.metadata
            if metadata.num_rows > MOST_ROWS:
                return f"more than {MOST_ROWS:,} rows", 1
            rows = max(1, min(ROWS, MOST_BATCH // max(1, _largest_chunk(metadata))))
            for batch in file.iter_batches(rows, columns=columns, use_threads=False):
                batch.validate(full=True)
                if batch.nbytes > MOST_ROW * len(batch):
                    return f"a row unpacks to more than {MOST_ROW // 2**20} MiB", 1
    except (MemoryError, arrow.ArrowMemoryError):
        return f"unpacks to more than {BOUNDS.memory_bytes // 2**30} GiB", 1
    except (OSError, arrow.ArrowException, ValueError, TypeError, KeyError, RecursionError, OverflowError) as error:
        return f"not readable as Parquet: {quote(str(error)[:300])}. {CUT}", 1
    return "", rows


def _opened(path: str) -> Any:
    limits = {"thrift_string_size_limit": 2**24, "thrift_container_size_limit": 2**20}
    return extra("pyarrow.parquet").ParquetFile(path, **limits)


def _largest_chunk(metadata: Any) -> int:
    """Unpacked bytes of the largest column of a row group, as the file says."""
    return max(
        (
            metadata.row_group(group).column(column).total_uncompressed_size
            for group in range(metadata.num_row_groups)
            for column in range(metadata.num_columns)
        ),
        default=0,
    )


def first_lengths(batch: Any, struct: str, lists: str) -> Iterator[tuple[dict[str, Any], int | None]]:
    """(The struct without its field `lists`, length of the first list in that field) for each row of a batch.

    The lists, tokens of every answer, never become Python objects.
    """
    arrow, compute = extra("pyarrow"), extra("pyarrow.compute")
    column = batch.column(struct)
    if not arrow.types.is_struct(column.type):
        raise TypeError(f"`{struct}` is no struct")
    fields = [column.type.field(index).name for index in range(column.type.num_fields)]
    kept = [name for name in fields if name != lists]
    parts = [compute.struct_field(column, name).to_pylist() for name in kept]
    lengths: list[int | None] = [None] * len(column)
    if lists in fields:
        outer = compute.struct_field(column, lists)
        if arrow.types.is_list(outer.type) and arrow.types.is_list(outer.type.value_type):
            inner, at = compute.list_value_length(outer.flatten()).to_pylist(), 0
            for row, number in enumerate(compute.list_value_length(outer).to_pylist()):
                lengths[row] = inner[at] if number else None
                at += number or 0
    values = zip(*parts, strict=True) if parts else ((),) * len(column)
    yield from ((dict(zip(kept, row, strict=True)), length) for row, length in zip(values, lengths, strict=True))
