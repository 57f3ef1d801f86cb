"""Read the containers of results within bounds: JSON files of any size, zip archives, folders.

Every file is hostile: a member that unpacks to more than it should, a name that leads out of its folder, a value nested
without end. UsageError names the file and the place.
"""

from __future__ import annotations

import json
import os
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import IO, Any

from qualgate.documents import quote
from qualgate.errors import UsageError
from qualgate.errors.extras import needs
from qualgate.errors.misplaced import unreadable
from qualgate.intake.harnesses.log import Choice

MOST_MEMBER = 256 * 2**20  # bytes of one unpacked member
MOST_UNPACKED = 16 * 2**30  # of all members that are read
MOST_MEMBERS = 2_000_000
MOST_WHOLE = 256 * 2**20  # bytes of a JSON file that is read as a whole
MOST_FILES = 100_000  # of a folder
ZSTANDARD = 93  # the zip method
CUT = "Was the file cut, or still being written?"
DAMAGED = (zipfile.BadZipFile, NotImplementedError, RuntimeError, OSError, EOFError, ValueError, zlib.error)


def read_json(path: Path) -> Any:
    """Read a JSON file as a whole. UsageError for one that is too large or no JSON."""
    try:
        with path.open("rb") as file:
            raw = file.read(MOST_WHOLE + 1)
    except OSError as error:
        raise UsageError(unreadable(path, error)) from None
    if len(raw) > MOST_WHOLE:
        raise UsageError(f"{path}: more than {MOST_WHOLE // 2**20} MiB in one JSON value")
    return decode(raw, str(path))


def decode(raw: bytes, where: str) -> Any:
    """Decode JSON. UsageError begins with `where`."""
    try:
        return json.loads(raw.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise UsageError(f"{where}: not valid UTF-8 at byte {error.start + 1}") from None
    except json.JSONDecodeError as error:
        raise UsageError(
            f"{where}:{error.lineno}: not JSON: {error.msg}. Was the file cut, or still being written?"
        ) from None
    except RecursionError:
        raise UsageError(f"{where}: nested too deeply") from None
    except ValueError as error:  # whole numbers of thousands of digits
        raise UsageError(f"{where}: not readable as JSON: {error}") from None


class Archive:
    """A zip archive whose members are read within bounds, packed by deflate or Zstandard."""

    def __init__(self, path: Path) -> None:
        """Open the archive. UsageError if it is none, or has too many members."""
        self.path = path
        self._left = MOST_UNPACKED
        try:
            self._zip = zipfile.ZipFile(path)
        except OSError as error:
            raise UsageError(unreadable(path, error)) from None
        except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
            raise UsageError(f"{path}: not a whole zip archive ({error}). {CUT}") from None
        if len(self._zip.namelist()) > MOST_MEMBERS:
            raise UsageError(f"{path}: more than {MOST_MEMBERS:,} members")

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *_: object) -> None:
        self._zip.close()

    @property
    def names(self) -> tuple[str, ...]:
        """The members' names, in the archive's order. UsageError where one name stands twice."""
        names = tuple(self._zip.namelist())
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise UsageError(f"{self.path}: holds {quote(twice)} twice")
        return names

    def json(self, name: str) -> Any:
        """Decode a member as JSON. UsageError for one that is missing, damaged or too large."""
        return decode(self._bytes(name), f"{self.path}: {name}")

    def _bytes(self, name: str) -> bytes:
        try:
            info = self._zip.getinfo(name)
            limit = min(MOST_MEMBER, self._left)
            if info.compress_type == ZSTANDARD:
                raw = self._of_zstandard(info, limit)
            else:
                with self._zip.open(info) as member:
                    raw = member.read(limit + 1)
        except KeyError:
            raise UsageError(f"{self.path}: has no member {name!r}, which such a log holds") from None
        except DAMAGED as error:
            raise UsageError(f"{self.path}: {name}: cannot be unpacked ({error})") from None
        if len(raw) > limit:
            raise UsageError(f"{self.path}: {name}: unpacks to more than {limit // 2**20:,} MiB")
        self._left -= len(raw)
        return raw

    def _of_zstandard(self, info: zipfile.ZipInfo, limit: int) -> bytes:
        """Unpack a member that Python's zipfile reads from 3.14 on only."""
        zstandard = extra("zstandard")
        file: IO[bytes] = self._zip.fp  # type: ignore[assignment]
        file.seek(info.header_offset)
        header = file.read(30)
        if len(header) < 30 or header[:4] != b"PK\x03\x04":
            raise zipfile.BadZipFile("its local header is damaged")
        file.seek(int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little"), os.SEEK_CUR)
        packed = file.read(min(info.compress_size, MOST_MEMBER))
        try:
            with zstandard.ZstdDecompressor(max_window_size=2**27).stream_reader(
                packed, read_across_frames=True
            ) as stream:
                raw: bytes = stream.read(limit + 1)
        except zstandard.ZstdError as error:
            raise zipfile.BadZipFile(str(error)) from None
        if len(raw) <= limit and (len(raw) != info.file_size or zlib.crc32(raw) != info.CRC):
            raise zipfile.BadZipFile("its length or its checksum is wrong")
        return raw


def extra(module: str) -> Any:
    """Import a library of the extra `intake`. UsageError says how to install it."""
    try:
        return import_module(module)
    except ImportError:
        raise UsageError(needs("reading these results", "intake")) from None


def files_in(folder: Path, suffix: str = "") -> tuple[str, ...]:
    """Relative paths of the files in a folder, sorted; links are left out. UsageError beyond MOST_FILES."""
    found = (
        os.path.relpath(os.path.join(top, name), folder)
        for top, _, names in os.walk(folder)
        for name in names
        if name.endswith(suffix) and not os.path.islink(os.path.join(top, name))
    )
    names = tuple(islice(found, MOST_FILES + 1))
    if len(names) > MOST_FILES:
        raise UsageError(f"{folder}: more than {MOST_FILES:,} files; name the results' own folder")
    return tuple(sorted(Path(name).as_posix() for name in names))


def choose(folder: Path, results: Mapping[str, tuple[Sequence[str], str]], choice: Choice, what: str) -> Path:
    """The only results of a folder that fit the choice. UsageError unless there is exactly one such path.

    results: path in the folder → (names of its task, the longest first; its model). what: their name in messages.
    """
    fitting = [
        name for name, (tasks, model) in results.items() if choice.task in ("", *tasks) and choice.model in ("", model)
    ]
    if len(fitting) == 1:
        return folder / fitting[0]
    tasks = sorted({results[name][0][0] for name in fitting or results})
    models = sorted({results[name][1] for name in fitting or results})
    listed = ", ".join(tasks[:20])
    if not results:
        raise UsageError(f"{folder}: no {what}")
    if not fitting:
        of = f" of {', '.join(models)}" if any(models) else ""
        wanted = " of ".join(f"{name!r:.80}" for name in (choice.task, choice.model) if name)
        raise UsageError(f"{folder}: no {what} of {wanted}; it has {listed}{of}")
    if len(models) > 1:
        raise UsageError(
            f"{folder}: {what} of several models ({', '.join(models)}); choose by --baseline-model and --variant-model"
        )
    if len(tasks) > 1:
        raise UsageError(f"{folder}: {what} of several tasks ({listed}); choose one: --task NAME")
    raise UsageError(f"{folder}: {len(fitting)} runs of the task {listed}; name one file: {', '.join(fitting[:3])}")
