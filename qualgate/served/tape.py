"""Recordings: what was said between a run and its servers, one file for each job of each arm, and read from there.

FOLDER/ARM/SESSION.jsonl holds a line for each exchange, in the order in which they ended, between a first line that
says of whose server it is and a last one with the sha256 of all before it. A session is written aside and put in its
place when it ended well, so a job that was interrupted leaves none and is recorded when it is run again. No key is in
it: neither as a header, nor where a server repeats it whole.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from math import inf
from pathlib import Path
from typing import Any, TextIO

from qualgate.errors import EvidenceMissing, IntegrityError, UsageError
from qualgate.escaping import visible_line
from qualgate.identity import own_version
from qualgate.records import Served, Wire
from qualgate.served.faults import NotRecorded

FORM = 1  # of the files
STARTED = "http://started"  # in place of the address of a server that a run starts, whose port is another each time
SHOWN = 60  # characters of a value that differs


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """A request as it is recorded. of: the case that it asks of, "" of none."""

    of: str
    method: str
    address: str
    body: Any

    @property
    def key(self) -> str:
        """Equal of requests that are the same."""
        return json.dumps([self.of, self.method, self.address, self.body], sort_keys=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What came back: status, headers that matter, and what came when (s since it was asked), as text that holds any
    bytes (surrogateescape). broke: why it is not whole, name and words of a `network.Broken`; None: it is."""

    status: int = 0
    headers: Mapping[str, str]
    pieces: Sequence[tuple[float, str]] = ()
    broke: tuple[str, str] | None = None


def about(arm: str, model: str, served: Served) -> dict[str, Any]:
    """A session's first line: of whose server it is, and the headers that each of its requests had beside."""
    who = {"serve": served.started(os.environ)} if served.command else {"endpoint": served.endpoint}
    return {"recording": FORM, "arm": arm, "model": model, **who, "headers": dict(served.extra_headers)}


def normal(address: str, served: Served) -> str:
    """An address as it is recorded."""
    if not served.command:
        return address
    scheme, _, rest = address.partition("://")
    return f"{STARTED}/{rest.partition('/')[2]}" if scheme else address


class Recorder:
    """A session under way. `add` what was said; `keep` puts it in its place, `drop` leaves what was there before."""

    def __init__(self, wire: Wire, arm: str, model: str, served: Served, session: str) -> None:
        self.served, self._about = served, about(arm, model, served)
        self._path = _path(wire, arm, session)
        self._part = self._path.with_suffix(f".{os.getpid()}.part")
        self._asked: set[str] = set()
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file: TextIO = self._part.open("w", encoding="ascii")
        except OSError as error:
            raise _unwritable(self._path, error) from None
        self._hash, self._count = sha256(), 0
        self._write(self._about)

    def add(self, asking: Asking, said: Said, key: str) -> None:
        """An exchange that ended. key: the server's, which is written as ***."""
        self._asked.add(asking.key)
        self._write(
            {
                **({"of": asking.of} if asking.of else {}),
                "asked": {"method": asking.method, "address": asking.address, "body": asking.body},
                "said": {
                    "status": said.status, "pieces": without(said.pieces, key),
                    "headers": {name: _hidden(text, key) for name, text in said.headers.items()},
                    **({"broke": [_hidden(text, key) for text in said.broke]} if said.broke else {}),
                },
            }
        )  # fmt: skip

    def keep(self) -> None:
        """In its place, with what an earlier session of this name asked and this one did not."""
        for line in self._before():
            self._write(line)
        try:
            self._file.write(json.dumps({"end": self._count - 1, "sha256": self._hash.hexdigest()}) + "\n")
            self._file.close()
            self._part.replace(self._path)
        except OSError as error:
            raise _unwritable(self._path, error) from None

    def drop(self) -> None:
        """Nothing of it is kept."""
        self._file.close()
        self._part.unlink(missing_ok=True)

    def _before(self) -> list[dict[str, Any]]:
        try:
            lines = _lines(self._path)
        except (IntegrityError, NotRecorded):
            return []
        return [one for one in lines[1:] if _asking(one).key not in self._asked] if lines[0] == self._about else []

    def _write(self, value: Mapping[str, Any]) -> None:
        line = json.dumps(value) + "\n"  # ASCII: what is no text stays an escape
        self._hash.update(line.encode())
        self._count += 1
        try:
            self._file.write(line)
        except OSError as error:
            raise _unwritable(self._path, error) from None


class Player:
    """A session that was recorded. NotRecorded where there is none of that name, or it is of another server;
    IntegrityError where it is not as it was written."""

    def __init__(self, wire: Wire, arm: str, model: str, served: Served, session: str) -> None:
        self.served, self._name = served, f"{arm}/{session}"
        if not _path(wire, arm, session).parent.is_dir():
            raise NotRecorded(
                f"{wire.recording}: nothing is in it of what {arm} was asked: the run was recorded without, or by a "
                "version that did not keep that. No server is asked in its place: record the run again, or replay it "
                "without."
            )
        lines = _lines(_path(wire, arm, session))
        expected = about(arm, model, served)
        if lines[0] != expected:
            raise NotRecorded(
                f"{self._name}: the recording is of another server: {_differs(lines[0], expected)}. Replay the gate "
                "file that was recorded, or record this one."
            )
        self._said: dict[str, deque[Said]] = defaultdict(deque)
        self._asked: list[Asking] = []
        for line in lines[1:]:
            asking = _asking(line)
            self._asked.append(asking)
            self._said[asking.key].append(_said(line))

    def answer(self, asking: Asking) -> Said:
        """What was said to this request, to the same one again what was said then. NotRecorded where nothing was."""
        if left := self._said.get(asking.key):
            return left.popleft()
        what = visible_line(f"{asking.method} {asking.address}" + (f" of {asking.of}" if asking.of else ""))
        raise NotRecorded(
            f"{self._name}: {what} is not in the recording: {self._why(asking)}. No server is asked in its place: "
            "replay the gate file and evalsets that were recorded, or record these."
        )

    def _why(self, asking: Asking) -> str:
        if asking.key in self._said:
            return "it was asked less often then"
        alike = [
            one
            for one in self._asked
            if (one.of, one.method, one.address) == (asking.of, asking.method, asking.address)
        ]
        if not alike:
            return "nothing of this kind was asked then"
        nearest = min(alike, key=lambda one: len(_differing(_keys(one), _keys(asking))))
        return _differs(_keys(nearest), _keys(asking))


def session_of(wire: Wire, arm: str, model: str, served: Served, session: str) -> Recorder | Player | None:
    """By what a run's wire says: its conversations are recorded, told again, or neither (None)."""
    if not wire.recording:
        return None
    return (Player if wire.replayed else Recorder)(wire, arm, model, served, session)


def without(pieces: Sequence[tuple[float, str]], key: str) -> list[tuple[float, str]]:
    """The pieces with a key that is in them as ***; joined to one where it is parted between two."""
    if not key or key not in "".join(text for _, text in pieces):
        return list(pieces)
    shown = [(at, _hidden(text, key)) for at, text in pieces]
    whole = "".join(text for _, text in shown)
    return [(shown[-1][0], _hidden(whole, key))] if key in whole else shown


def _hidden(text: str, key: str) -> str:
    return text.replace(key, "***") if key else text


# ---------------------------------------------------------------------------------------------------------- the folder


def begin_recording(folder: Path, gate_file: str) -> None:
    """Make the folder ready for a run's recording. UsageError where something else is in it, or a whole recording."""
    told = _told(folder)
    if told is None and folder.is_dir() and any(folder.iterdir()):
        raise UsageError(f"--record {folder}: it holds other files; name a new folder.")
    if told is not None and told.get("whole"):
        raise UsageError(f"--record {folder}: it holds a whole recording already; name a new folder, or delete it.")
    if told is None:
        made = {"gate_file": gate_file, "made_by": f"qualgate {own_version()}", "began": datetime.now(UTC).isoformat()}
        _tell(folder, {"recording": FORM, **made})


def of_run(folder: Path, run: str, *, whole: bool = False) -> None:
    """Note which run a recording is of, and whether it is whole. UsageError where it is of another: of two runs
    together, none could be told again."""
    told = _told(folder) or {}
    if told.get("run", run) != run:
        raise UsageError(
            f"--record {folder}: it holds what was said in run {told['run']!r:.80}, and this is run {run}; name a new "
            "folder, or delete it."
        )
    _tell(folder, {**told, "run": run, "whole": whole})
    for part in folder.glob("*/*.part") if whole else ():  # of processes that were killed
        part.unlink(missing_ok=True)


def check_recorded(folder: Path, max_age: float | None = None) -> None:
    """UsageError where the folder holds no recording that this version reads, EvidenceMissing where it was begun longer
    ago than max_age (s), or nobody knows when: told again, answers are no newer."""
    told = _told(folder)
    if told is None:
        raise UsageError(
            f"--replay {folder}: there is no recording; `qualgate run GATE.yaml --record FOLDER` makes one."
        )
    if told.get("recording") != FORM:
        raise UsageError(f"--replay {folder}: its form is {told.get('recording')!r:.40}; this version reads {FORM}.")
    if max_age is not None and not 0 <= _age(told.get("began")) <= max_age:
        raise EvidenceMissing(
            f"--replay {folder}: it was begun at {told.get('began')!r:.40}, longer ago than `max_age` allows; record "
            "the run again."
        )


def _age(began: Any) -> float:
    """Seconds since then; inf where it is no time."""
    try:
        return (datetime.now(UTC) - datetime.fromisoformat(began)).total_seconds()
    except (TypeError, ValueError):
        return inf


def _told(folder: Path) -> dict[str, Any] | None:
    try:
        found = json.loads((folder / "recording.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _tell(folder: Path, told: Mapping[str, Any]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        part = folder / "recording.part"
        part.write_text(json.dumps(told, indent=2) + "\n", encoding="ascii")
        part.replace(folder / "recording.json")
    except OSError as error:
        raise _unwritable(folder, error) from None


def _unwritable(path: Path, error: OSError) -> UsageError:
    return UsageError(f"{path}: the recording cannot be written ({error.strerror}); make room, or name another folder.")


def _path(wire: Wire, arm: str, session: str) -> Path:
    return Path(wire.recording) / arm / f"{session}.jsonl"


# ------------------------------------------------------------------------------------------------------------ the lines


def _lines(path: Path) -> list[dict[str, Any]]:
    """All but the last, which they are held against."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise NotRecorded(
            f"{path}: no such part of the recording ({error.strerror}). The run that was recorded did not come so far, "
            "or its batches were others."
        ) from None
    *texts, last = raw.splitlines(keepends=True) or [b""]
    try:
        end = json.loads(last)
        lines = [json.loads(one) for one in texts]
        whole = (end["end"], end["sha256"]) == (len(lines) - 1, sha256(b"".join(texts)).hexdigest())
        if whole and lines[0].get("recording") == FORM:
            return lines
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        pass
    raise IntegrityError(f"{path}: the recording is not as it was written. Restore the file, or record the run again.")


def _asking(line: Mapping[str, Any]) -> Asking:
    asked = line["asked"]
    return Asking(of=line.get("of", ""), method=asked["method"], address=asked["address"], body=asked["body"])


def _said(line: Mapping[str, Any]) -> Said:
    said = line["said"]
    pieces = tuple((at, text) for at, text in said["pieces"])
    broke = tuple(said["broke"]) if "broke" in said else None
    return Said(status=said["status"], headers=said["headers"], pieces=pieces, broke=broke)


def _keys(asking: Asking) -> Mapping[str, Any]:
    return asking.body if isinstance(asking.body, dict) else {"body": asking.body}


def _differing(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    return [
        name
        for name in dict.fromkeys([*then, *now])
        if then.get(name) != now.get(name) or (name in then) != (name in now)
    ]


def _differs(then: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Each key that differs: "`max_tokens` was 64, and is 48", long values from shortly before they part."""

    def text(told: Mapping[str, Any], name: str) -> str:
        return visible_line(json.dumps(told[name], ensure_ascii=True)) if name in told else "not said"

    def shown(text: str, start: int) -> str:
        part = text[start : start + SHOWN]
        return "…" * (start > 0) + part + "…" * (start + SHOWN < len(text))

    told = []
    for name in _differing(then, now)[:3]:
        was, is_ = text(then, name), text(now, name)
        same = next((at for at, (one, other) in enumerate(zip(was, is_, strict=False)) if one != other), 0)
        start = max(0, same - SHOWN // 3) if max(len(was), len(is_)) > SHOWN else 0
        told.append(f"`{name}` was {shown(was, start)}, and is {shown(is_, start)}")
    return "; ".join(told)
