"""A file that carries its digest: whole, or not read."""

from __future__ import annotations

import random

import pytest

from qualgate.identity import is_whole, read_sealed, write_sealed


@pytest.mark.parametrize("body", [b"", b"a", random.Random(0).randbytes(500)], ids=["nothing", "a byte", "more"])
def test_what_was_written_is_read_and_no_flipped_bit_no_cut_and_no_addition_is(tmp_path, body):
    path = tmp_path / "file"
    write_sealed(path, body)
    assert is_whole(path)
    assert read_sealed(path) == body
    assert [one.name for one in tmp_path.iterdir()] == ["file"]
    data = path.read_bytes()
    flipped = [data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :] for at in range(len(data)) for bit in range(8)]
    for broken in [*flipped, *(data[:length] for length in range(len(data))), data + b"\0", data + data, b""]:
        path.write_bytes(broken)
        assert not is_whole(path)
        with pytest.raises(ValueError, match="not those that were written"):
            read_sealed(path)


def test_what_is_not_there_is_not_whole(tmp_path):
    assert not is_whole(tmp_path / "gone")
    assert not is_whole(tmp_path)
    with pytest.raises(OSError, match="gone"):
        read_sealed(tmp_path / "gone")
