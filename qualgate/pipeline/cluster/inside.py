"""The program that a job on a cluster is: `qualgate run`, and a last line of the job's log that says how it ended.

    python -m qualgate.pipeline.cluster.inside ID VERSION FOLDER FILES GATE.yaml [OPTIONS of `qualgate run`]

The line carries the job's id, which nothing that a model or a server says can hold. VERSION: of the qualgate that
submitted it. FOLDER: where the files are laid out and runs keep their artifacts, on storage that the nodes share; ""
for Ray's own working folder. FILES: the relative paths of what travelled, as JSON: that folder may hold more.
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
from qualgate.identity import content_hash, file_hash, own_version

MARK = "qualgate-job "  # begins the line
REPORTS = "qualgate-reports"  # beside the gate file
ARTIFACTS = "qualgate.artifacts"  # likewise, of a store that is a database
LATE_SECONDS = 5.0  # in which what a run wrote last is read
PART_BYTES = 65_536  # read at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """How a run on a cluster ended, in its own words."""

    id: str  # of its job
    exit: int
    shown: str  # what `qualgate run` printed: the report
    report: str  # the same as JSON; "" where no run was made
    fault: str = ""  # why `exit` is not the run's own


def end_line(end: End) -> str:
    """Return the line of the log that `read_end` reads."""
    return MARK + json.dumps(asdict(end))


def read_end(log: str, job: str) -> End | None:
    """Return how the job ended; None where its log does not say so."""
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
    """Run, and print the line. The exit code is the run's own, 13 for a process that was killed or crashed."""
    job, version, folder, names, gate_file, *options = words
    here = Path.cwd()
    if version != own_version():
        return _refuse(
            job,
            f"this job was submitted by qualgate {version}, and the cluster's head has {own_version()}; install the "
            "same version on both",
        )
    try:
        home = _laid_out(here, json.loads(names), Path(folder)) if folder else here
    except OSError as error:
        return _refuse(job, f"{folder}: {error.strerror}; give another --folder, which the cluster's nodes share")
    code, shown = _run([sys.executable, "-m", "qualgate", "run", gate_file, *options], home)
    print("\n" + end_line(End(id=job, exit=code, shown=shown, report=_report(home, shown))), flush=True)
    return code


def _refuse(job: str, why: str) -> Exit:
    print(f"qualgate: {why}", flush=True)
    print(end_line(End(id=job, exit=Exit.USAGE, shown="", report="")), flush=True)
    return Exit.USAGE


def _run(command: Sequence[str], home: Path) -> tuple[int, str]:
    """Return its exit code and all that it wrote to stdout, which goes to this process's as well."""
    for number in (signal.SIGINT, signal.SIGTERM):  # Ray asks each process of a job to stop: the run says how it ended
        signal.signal(number, lambda number, frame: None)
    run = subprocess.Popen(command, cwd=home, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, bufsize=0)
    parts: list[bytes] = []
    ended = threading.Event()
    reader = threading.Thread(target=_read, args=(run.stdout, parts, ended), daemon=True)
    reader.start()
    code = run.wait()
    reader.join(LATE_SECONDS)  # a process that the run started may hold its stdout for ever
    ended.set()
    return code if code in set(Exit) else Exit.INFRASTRUCTURE, b"".join(parts).decode("utf-8", "replace")


def _read(output: IO[bytes], parts: list[bytes], ended: threading.Event) -> None:
    """Collect what is written, and print it until the run has ended."""
    while (part := output.read(PART_BYTES)) and not ended.is_set():
        parts.append(part)
        sys.stdout.buffer.write(part)
        sys.stdout.buffer.flush()


def _report(home: Path, shown: str) -> str:
    """Return the JSON report that the run itself says it wrote, "" where it names none, or more than one."""
    paths = set(re.findall(rf"^report: ({REPORTS}/[\w-]+\.json)$", shown, re.MULTILINE))
    try:
        return (home / paths.pop()).read_text(encoding="utf-8") if len(paths) == 1 else ""
    except OSError:
        return ""


def _laid_out(files: Path, names: Sequence[str], shared: Path) -> Path:
    """Copy the files into a folder that is named by their content. What runs leave is shared by all such folders: it is
    named by the run's plan, so a gate file with another margin finds it."""
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
    """Copy a file, whole or not at all: another job may read the same one."""
    part = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
    try:
        shutil.copy2(file, part)
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
