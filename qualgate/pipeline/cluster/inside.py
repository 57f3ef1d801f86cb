"""The program of a cluster job: `qualgate run`, and a last log line with the outcome.

    python -m qualgate.pipeline.cluster.inside ID VERSION FOLDER FILES GATE.yaml [OPTIONS of `qualgate run`]

The line carries the job's id, which no output of a model or a server can contain. VERSION: of the qualgate that
submitted the job. FOLDER: for files and artifacts, on storage that the nodes share; "" for Ray's working folder.
FILES: the relative paths of the files that travelled, as JSON; the folder may hold more.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from qualgate.errors import Exit
from qualgate.records.identity import content_hash, file_hash, own_version

MARK = "qualgate-job "  # begins the line
REPORTS = "qualgate-reports"  # beside the gate file
ARTIFACTS = "qualgate.artifacts"  # likewise, of a store that is a database
LATE_SECONDS = 5.0  # how long to read a run's last output after it ended
PART_BYTES = 65_536  # bytes read at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """Outcome of a run on a cluster."""

    id: str  # of its job
    exit: int
    shown: str  # what `qualgate run` printed: the report
    report: str  # the same as JSON; "" where no run was made
    fault: str = ""  # why `exit` is not the run's own


def end_line(end: End) -> str:
    """Return the log line that `read_end` parses."""
    return MARK + json.dumps(asdict(end))


def read_end(log: str, job: str) -> End | None:
    """Return the job's outcome; None if its log has none."""
    for line in reversed(log.splitlines()):
        if line.startswith(MARK):
            try:
                end = End(**json.loads(line.removeprefix(MARK)))
            except (ValueError, TypeError):
                continue
            if end.id == job and end.exit in set(Exit):
                return end
    return None


def main(words: Sequence[str]) -> int:
    """Run, print the outcome line, and return the run's exit code; 13 for a killed or crashed process."""
    job, version, folder, names, gate_file, *options = words
    working_folder = Path.cwd()
    if version != own_version():
        return _refuse(
            job,
            f"this job was submitted by qualgate {version}, and the cluster's head has {own_version()}; install the "
            "same version on both",
        )
    try:
        home = _laid_out(working_folder, json.loads(names), Path(folder)) if folder else working_folder
    except OSError as error:
        return _refuse(job, f"{folder}: {error.strerror}; give another --folder, which the cluster's nodes share")
    code, output = _run([sys.executable, "-m", "qualgate", "run", gate_file, *options], home)
    print("\n" + end_line(End(id=job, exit=code, shown=output, report=_report(home, output))), flush=True)
    return code


def _refuse(job: str, why: str) -> Exit:
    print(f"qualgate: {why}", flush=True)
    print(end_line(End(id=job, exit=Exit.USAGE, shown="", report="")), flush=True)
    return Exit.USAGE


def _run(command: Sequence[str], home: Path) -> tuple[int, str]:
    """Run the command; return its exit code and its stdout, which is printed as well."""
    for number in (signal.SIGINT, signal.SIGTERM):  # Ray signals every process of a job; the run reports its own end
        signal.signal(number, lambda number, frame: None)
    run = subprocess.Popen(command, cwd=home, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, bufsize=0)
    parts: list[bytes] = []
    ended = threading.Event()
    reader = threading.Thread(target=_read, args=(run.stdout, parts, ended), daemon=True)
    reader.start()
    code = run.wait()
    reader.join(LATE_SECONDS)  # a child of the run may keep its stdout open for ever
    ended.set()
    return code if code in set(Exit) else Exit.INFRASTRUCTURE, b"".join(parts).decode("utf-8", "replace")


def _read(output: IO[bytes], parts: list[bytes], ended: threading.Event) -> None:
    """Collect what is written, and print it until the run has ended."""
    while (block := output.read(PART_BYTES)) and not ended.is_set():
        parts.append(block)
        sys.stdout.buffer.write(block)
        sys.stdout.buffer.flush()


def _report(home: Path, output: str) -> str:
    """Return the JSON report that the run printed the path of; "" for none or more than one."""
    paths = set(re.findall(rf"^report: ({REPORTS}/[\w-]+\.json)$", output, re.MULTILINE))
    try:
        return (home / paths.pop()).read_text(encoding="utf-8") if len(paths) == 1 else ""
    except OSError:
        return ""


def _laid_out(files: Path, names: Sequence[str], shared: Path) -> Path:
    """Copy the files into a folder named by their content hash. All such folders share one artifacts folder, whose
    entries are named by plan: a gate file with another margin reuses them."""
    hashes = {name: file_hash(files / name) for name in sorted(names)}
    home = shared / content_hash(hashes)[:16]
    for name, digest in hashes.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        if not (home / name).is_file() or file_hash(home / name) != digest:
            _copy(files / name, home / name)
    (shared / ARTIFACTS).mkdir(exist_ok=True)
    with suppress(FileExistsError):
        (home / ARTIFACTS).symlink_to(Path("..") / ARTIFACTS)
    return home


def _copy(file: Path, target: Path) -> None:
    """Copy a file atomically: another job may read it."""
    partial = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
    try:
        shutil.copy2(file, partial)
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
