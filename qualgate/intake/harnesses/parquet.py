"""Read Parquet files of others within bounds, batch by batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from qualgate.documents import quote
from qualgate.errors import UsageError
from qualgate.intake.harnesses.containers import CUT, extra

MOST_ROWS = 20_000_000
MOST_BATCH = 2**30  # bytes of one batch, if each of its rows held a column's whole dictionary
MOST_CHUNK = 2**31  # unpacked bytes of one column of one row group
MOST_PAGE_RATIO = 2000  # unpacked bytes per byte of the file
ROWS = 1000  # of a batch


def parquet_batches(path: Path, columns: Sequence[str], needed: Sequence[str]) -> Iterator[Any]:
    """Yield record batches of some columns; those that the file lacks are left out.

    needed: its columns at the top. UsageError names the file, if it is damaged or unpacks to too much.
    """
    parquet, arrow = extra("pyarrow.parquet"), extra("pyarrow")
    try:
        with parquet.ParquetFile(path, thrift_string_size_limit=2**24, thrift_container_size_limit=2**20) as file:
            if missing := [name for name in needed if name not in file.schema_arrow.names]:
                raise UsageError(f"{path}: has no column {', '.join(map(quote, missing))}")
            metadata = file.metadata
            if metadata.num_rows > MOST_ROWS:
                raise UsageError(f"{path}: more than {MOST_ROWS:,} rows")
            largest = _largest_chunk(path, metadata)
            batch_rows = max(1, min(ROWS, MOST_BATCH // max(1, largest)))
            for batch in file.iter_batches(batch_rows, columns=list(columns), use_threads=False):
                batch.validate(full=True)
                yield batch
    except UsageError:
        raise
    except (OSError, arrow.ArrowException, ValueError, TypeError, KeyError, RecursionError, OverflowError) as error:
        raise UsageError(f"{path}: not readable as Parquet: {quote(str(error)[:300])}. {CUT}") from None
    except MemoryError:
        raise UsageError(f"{path}: not readable as Parquet: it asks for more memory than there is") from None


def _largest_chunk(path: Path, metadata: Any) -> int:
    """Unpacked bytes of the largest column of a row group. UsageError for a bomb."""
    sizes = [
        metadata.row_group(group).column(column).total_uncompressed_size
        for group in range(metadata.num_row_groups)
        for column in range(metadata.num_columns)
    ]
    if any(size < 0 or size > MOST_CHUNK for size in sizes):
        raise UsageError(f"{path}: a column unpacks to more than {MOST_CHUNK // 2**30} GiB")
    if sum(sizes) > 2**28 and sum(sizes) > MOST_PAGE_RATIO * path.stat().st_size:
        raise UsageError(f"{path}: unpacks to {MOST_PAGE_RATIO:,} times its size")
    return max(sizes, default=0)


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
