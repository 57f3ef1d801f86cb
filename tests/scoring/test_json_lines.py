"""Files of one JSON object a line: what editors and shells make of them, and which lines are none."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path

import pytest

from qualgate.scoring.json_lines import JsonLines

LINES = b'{"id": "a"}\n{"id": "b"}\n{"id": "c"}\n'
MARK = b"\xef\xbb\xbf"


def read(folder: Path, raw: bytes, max_line: int = 2**20) -> tuple[str, list[tuple[int, str]]]:
    """The ids that were read, and the faults."""
    (folder / "x.jsonl").write_bytes(raw)
    lines = JsonLines(folder / "x.jsonl", max_line)
    ids = "".join(body["id"] for body in lines)
    assert lines.sha256 == hashlib.sha256(raw).hexdigest()
    return ids, lines.faults


@pytest.mark.parametrize(
    "raw", [LINES, MARK + LINES, LINES + b"\n", LINES + b"\n \r\n\t\n", LINES.replace(b"\n", b"\r\n"), LINES[:-1]]
)
def test_a_mark_before_and_blank_lines_behind_say_nothing(tmp_path, raw):
    assert read(tmp_path, raw) == ("abc", [])


@pytest.mark.parametrize(
    ("raw", "ids", "faults"),
    [
        (LINES.replace(b"\n", b"\n\n \n", 1) + b"\n", "abc", [(2, "an empty line"), (3, "an empty line")]),
        (b"\n" + LINES, "abc", [(1, "an empty line")]),
        (MARK + b"\n" + LINES, "abc", [(1, "an empty line")]),
        (b"\n\n", "", [(1, "an empty line")]),
        (MARK, "", [(1, "an empty line")]),
        (LINES + MARK + LINES, "abcbc", [(4, "a byte-order mark; only a file's first line may begin with one")]),
        (LINES.decode().encode("utf-16"), "", [(1, "the file is UTF-16; save it as UTF-8")]),
        (LINES.decode().encode("utf-16-le"), "", [(1, "the file is UTF-16; save it as UTF-8")]),
        (gzip.compress(LINES, mtime=0), "", [(1, "the file is compressed (gzip); give it unpacked")]),
        (b'{"id": "' + b"x" * 2**20 + b'"}\n' + LINES, "abc", [(1, "a line of more than 1 MiB")]),
        (LINES + b'{"id": "d"', "abc", [(4, "not a JSON object: Expecting ',' delimiter at column 11")]),
        (LINES + b'{"id": "d"\r\n', "abc", [(4, "not a JSON object: Expecting ',' delimiter at column 11")]),
    ],
)
def test_a_line_that_is_no_object_is_named_and_the_others_are_read(tmp_path, raw, ids, faults):
    assert read(tmp_path, raw) == (ids, faults)
