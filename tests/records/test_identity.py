"""A file that carries its digest: whole, or not read."""

from __future__ import annotations

import hashlib
import os
import random
from pathlib import Path

import pytest

from qualgate.records import identity
from qualgate.records.identity import cached_hash, is_whole, read_sealed, write_sealed


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


@pytest.fixture
def read(monkeypatch) -> list[str]:
    """The names of files whose bytes are read to be hashed."""
    names, digest = [], hashlib.file_digest
    monkeypatch.setattr(
        identity.hashlib, "file_digest", lambda file, how: names.append(Path(file.name).name) or digest(file, how)
    )
    return names


def hashed(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(1)  # wherever its reader stands
        return cached_hash(file)


def later(monkeypatch) -> None:
    now = identity.time.time_ns()
    monkeypatch.setattr(identity.time, "time_ns", lambda: now + 10**10)


def test_a_file_that_rests_is_read_once_and_again_whenever_it_changed(tmp_path, read, monkeypatch):
    path = tmp_path / "weights"
    path.write_bytes(b"abc")
    later(monkeypatch)
    said = [hashed(path), hashed(path)]
    assert said == [hashlib.sha256(b"abc").hexdigest()] * 2
    assert read == ["weights"]
    before = path.stat()
    path.write_bytes(b"abd")
    while path.stat().st_ctime_ns == before.st_ctime_ns:  # until its file system's clock ticks
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # as a tool does that keeps times
    assert hashed(path) == hashlib.sha256(b"abd").hexdigest()
    path.rename(tmp_path / "old")
    path.write_bytes(b"abc")
    later(monkeypatch)
    assert hashed(path) == hashlib.sha256(b"abc").hexdigest()
    assert len(read) == 3


def test_a_file_that_changed_a_moment_ago_is_read_each_time(tmp_path, read):
    path = tmp_path / "weights"
    path.write_bytes(b"abc")
    assert hashed(path) == hashed(path)
    assert read == ["weights"] * 2
