"""Read tables of anyone's making, CSV or JSON lines: the columns' meanings are guessed from their names, and printed.

A meaning that two columns claim is not guessed: the user says which, by `--columns`.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from qualgate.documents import nearest, quote
from qualgate.errors import UsageError
from qualgate.errors.misplaced import unreadable
from qualgate.intake.harnesses.containers import CUT
from qualgate.intake.harnesses.fields import read_score, whole
from qualgate.intake.harnesses.log import Choice, Run, Sample
from qualgate.intake.harnesses.probe import Probe
from qualgate.intake.harnesses.rows import Samples, reader
from qualgate.intake.harnesses.summary import Tally
from qualgate.intake.jsonl import read_objects
from qualgate.records.identity import sha256_text

MEANINGS: Mapping[str, tuple[str, ...]] = {  # meaning → names of columns, in lower case without signs
    "id": ("id", "sampleid", "questionid", "caseid", "itemid", "docid", "taskid", "uid"),
    "question": ("question", "prompt", "input", "query", "instruction", "messages", "problem"),
    "answer": ("answer", "output", "response", "completion", "prediction", "generation", "modelanswer", "modeloutput"),
    "score": ("score", "correct", "pass", "passed", "iscorrect", "success", "accuracy", "acc", "exactmatch", "reward"),
    "target": ("target", "reference", "expected", "gold", "label", "groundtruth", "expectedanswer", "goldanswer"),
    "model": ("model", "modelname", "modelid"),
    "repeat": ("repeat", "epoch", "trial", "run", "sampleindex", "attempt"),
    "error": ("error", "errormessage", "exception"),
    "finish": ("finishreason", "stopreason", "finish"),
    "tokens": ("tokens", "outputtokens", "completiontokens", "tokencount", "outputtokencount"),
}
MOST_COLUMNS = 1000
LONGEST_CELL = 16 * 2**20  # characters
MOST_FIELDS_READ = 65_536  # bytes of the head in which the first line ends
NONE = ("", "null", "none", "nan", "n/a", "na")
WORDS = (
    dict.fromkeys(("true", "yes", "pass", "passed", "correct", "1"), 1.0)
    | dict.fromkeys(("false", "no", "fail", "failed", "incorrect", "0"), 0.0)
    | dict.fromkeys(NONE)
)
NO_ERROR = (*NONE, "false", "0")
_WORD = re.compile(r"[^a-z0-9]+")


def recognise(probe: Probe) -> bool:
    """Whether the path is a table with a column of scores, and one of ids or questions."""
    if probe.names:
        return False
    names = probe.keys or _header(probe)
    known = {meaning for name in names for meaning in MEANINGS if _plain(name) in MEANINGS[meaning]}
    return "score" in known and bool(known & {"id", "question"})


def _header(probe: Probe) -> Sequence[str]:
    """Names in the first line of a CSV file, () for anything else."""
    if probe.path.suffix.lower() not in (".csv", ".tsv"):
        return ()
    line = probe.head.decode("utf-8-sig", "replace").partition("\n")[0]
    try:
        return next(csv.reader([line], delimiter=_delimiter(line)), ())
    except csv.Error:
        return ()


def _delimiter(line: str) -> str:
    return max(",;\t", key=line.count)


def _plain(name: Any) -> str:
    return _WORD.sub("", str(name).lower())


@reader
def read(path: Path, choice: Choice, tally: Tally) -> Samples:
    """Read a table. UsageError names columns whose meaning is not clear, and what to write."""
    if path.is_dir():
        raise UsageError(f"{path}: is a folder; a table is one file")
    with path.open("rb") as file:
        is_lines = file.read(64).lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{")
    columns = Columns(path, choice.columns)
    for line, body in read_objects(path) if is_lines else _csv_rows(path):
        names = columns.settle(body)
        cells = {meaning: body.get(name) for meaning, name in names.items()}
        where = f"{path}:{line}"
        answer = cells.get("answer")
        yield Sample(
            id=_id(where, cells),
            where=where,
            line=line,
            repeat=_repeat(where, cells.get("repeat")),
            question=cells.get("question"),
            target=_text(cells.get("target")),
            text=answer if isinstance(answer, str | None) else _text(answer),
            tokens=_whole(cells.get("tokens")),
            finish="" if (finish := _text(cells.get("finish"))).strip().lower() in NONE else finish.strip(),
            error=_error(cells.get("error")),
            values={names["score"]: read_score(where, names["score"], cells["score"], WORDS)},
            model=_text(cells.get("model")),
        )
    return Run(path=path, notes=(f"{path}: read as {columns.shown()}",))


class Columns:
    """What the columns of one table mean."""

    def __init__(self, path: Path, written: Mapping[str, str]) -> None:
        """written: meaning → column, as the user says. UsageError for a meaning that is none."""
        self._path, self._written = path, written
        self._names: dict[str, str] = {}
        self._seen: dict[str, None] = {}  # a key may first stand in a later row, such as `error`
        for meaning in written:
            if meaning not in MEANINGS:
                raise UsageError(f"--columns {meaning}=…: no such meaning{nearest(meaning, MEANINGS)}")

    def settle(self, names: Collection[str]) -> Mapping[str, str]:
        """Meaning → column, from the names of this row and those before. UsageError where two may be one meaning."""
        if self._seen and all(name in self._seen for name in names):
            return self._names
        self._seen |= dict.fromkeys(names)
        names, self._names = list(self._seen), {}
        if len(names) > MOST_COLUMNS:
            raise UsageError(f"{self._path}: more than {MOST_COLUMNS:,} columns")
        for column in self._written.values():
            if column not in names:
                raise UsageError(f"{self._path}: has no column {column!r:.60}{nearest(column, names)}")
        taken = set(self._written.values())
        for meaning, known in MEANINGS.items():
            claims = [name for name in names if _plain(name) in known and name not in taken]
            if meaning in self._written:
                continue
            if len(claims) > 1:
                listed = ", ".join(f"{name!r:.40}" for name in claims[:5])
                raise UsageError(
                    f"{self._path}: the columns {listed} may each be the {meaning}; say which: "
                    f"--columns {meaning}={claims[0]:.40}"
                )
            self._names |= {meaning: claims[0]} if claims else {}
        self._names |= self._written
        if "score" not in self._names or not {"id", "question"} & self._names.keys():
            raise UsageError(
                f"{self._path}: needs a column of scores and one of ids or questions; it has "
                f"{', '.join(f'{name:.40}' for name in names[:20])}. Name them: --columns id=…,score=…"
            )
        return self._names

    def shown(self) -> str:
        """The mapping, for a note."""
        return ", ".join(f"{meaning} = {name:.40}" for meaning, name in self._names.items())


def _csv_rows(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield (line, row). UsageError names the line of a row that is not whole."""
    csv.field_size_limit(LONGEST_CELL)
    line = 1
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            first = file.readline(MOST_FIELDS_READ)
            file.seek(0)
            table = csv.reader(file, delimiter=_delimiter(first), strict=True)
            names = next(table, [])
            if twice := [name for name in names if names.count(name) > 1][:1]:
                raise UsageError(f"{path}:1: the column {twice[0]!r:.60} stands there twice")
            for row in table:
                line = table.line_num
                if len(row) != len(names):
                    raise UsageError(f"{path}:{line}: has {len(row)} cells, and the first line {len(names)}. {CUT}")
                yield line, dict(zip(names, row, strict=True))
    except OSError as error:
        raise UsageError(unreadable(path, error)) from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not valid UTF-8 at byte {error.start + 1} of a piece. {CUT}") from None
    except csv.Error as error:
        raise UsageError(f"{path}:{line}: not readable as CSV: {quote(str(error))}. {CUT}") from None


def _text(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else str(value)


def _id(where: str, cells: Mapping[str, Any]) -> str:
    """The row's id, else its question; with a column of repeats a question may stand in several rows."""
    name = cells.get("id")
    if "id" in cells:
        if not isinstance(name, str | int) or isinstance(name, bool) or name == "":
            raise UsageError(f"{where}: its id must be a text or a whole number, found {name!r:.40}")
        return str(name)
    question = _text(cells.get("question"))
    if not question.strip():
        raise UsageError(f"{where}: has neither an id nor a question")
    return (
        question
        if len(question) <= 200
        else f"{question[:120]}… ({len(question):,} characters, {sha256_text(question)[:12]})"
    )


def _repeat(where: str, value: Any) -> int:
    if value is None or value == "":
        return 0
    if (repeat := _whole(value)) is None:
        raise UsageError(f"{where}: its repeat must be a whole number from 0, found {value!r:.40}")
    return repeat


def _whole(value: Any) -> int | None:
    if isinstance(value, str):
        return int(value) if value.strip().isascii() and value.strip().isdigit() and len(value) < 10 else None
    return whole(int(value)) if isinstance(value, float) and value.is_integer() and abs(value) < 2**31 else whole(value)


def _error(value: Any) -> str:
    if value in (None, False, 0, [], {}) or (isinstance(value, str) and value.strip().lower() in NO_ERROR):
        return ""
    return f"the table names an error: {str(value)[:300]}"
