"""What the suite costs, and what each of its tests holds. Results lie in a folder outside of the repository.

python -m tests.time                                             all of it: a traced run, 200 mutants, the table
python -m tests.time record FOLDER [--traced] [pytest's words]   run and record; --traced: branches too (slower)
python -m tests.time show FOLDER                                 by room; the 400 dearest, what each holds alone
python -m tests.time lost BEFORE AFTER [tests/ROOM ...]          branches that the rooms' tests no longer take
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.time.costs import Recorded, read
from tests.time.tracing import FOLDER, ROOT, TRACED, Branch
from tests.verification.mutation.kills import hunt, known_fates, own_paths

HEAVIEST = 400
SEED, COUNT = 41, 200  # of the fixed mutants
PROCESSES = ("-n", "3", "--dist", "loadfile", "--no-loadscope-reorder")


def record(folder: Path, traced: bool, words: list[str]) -> int:
    """Run pytest with the recording, and return its exit code."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in (*folder.glob("*.pickle"), *folder.glob("now-*")):
        path.unlink()
    paths = own_paths(ROOT, folder / "mapped")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", FOLDER: str(folder)}
    if traced:
        environment[TRACED] = "1"
        paths.insert(0, f"{ROOT}/tests/time/children")
    environment["PYTHONPATH"] = os.pathsep.join(paths)
    command = [sys.executable, "-m", "pytest", "-p", "tests.time.recording", *PROCESSES, *words]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


def show(recorded: Recorded, folder: Path, most: int) -> None:
    """Print the table: by room, then by test."""
    total = sum(test.seconds for test in recorded.tests)
    print(f"{len(recorded.tests):,} tests, {total:,.0f} s of processors; {recorded.rest:,.0f} s to collect them")
    for room, (seconds, count) in recorded.by_room().items():
        print(f"{seconds:8.1f} s {count:6,}  {room}")
    killers = Counter(fate.killer for fate in known_fates(folder, SEED).values())
    alone = recorded.held_alone(most) if recorded.branches else {}
    print("\nseconds, lines and branches that no cheaper test reaches, mutants that no cheaper test notices")
    for test in recorded.tests[:most]:
        own = alone.get(test.name)
        alone_counts = f"{len(own.lines):5} {len(own.branches):5}" if own else f"{'?':>5} {'?':>5}"
        print(f"{test.seconds:8.2f} {alone_counts} {killers[test.name]:3}  {test.name}")


def show_branches(recorded: Recorded, test: str) -> None:
    """Print which branches this test takes and no cheaper one does."""
    for file, before, after in sorted(recorded.held_alone(len(recorded.tests))[test].branches):
        print(f"{file}: {before} -> {after}")


def lost(before: Recorded, after: Recorded, rooms: tuple[str, ...]) -> int:
    """Print the branches that only tests of these rooms took, and that none of `after` takes."""

    def taken_in_rooms(inside: bool) -> set[Branch]:
        return before.taken_by(test for test in before.tests if test.name.startswith(rooms) == inside)

    gone = taken_in_rooms(True) - taken_in_rooms(False) - after.taken_by(after.tests)
    for file, number in sorted(Counter(file for file, *_ in gone).items()):
        lines = sorted({max(ends) for path, *ends in gone if path == file})
        print(f"{file}: {number}: lines {', '.join(map(str, lines))}")
    print(f"{len(gone)} branches lost")
    return int(bool(gone))


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.time", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = parser.add_subparsers(dest="command")
    recording = commands.add_parser("record")
    recording.add_argument("folder", type=Path)
    recording.add_argument("--traced", action="store_true")
    shown = commands.add_parser("show")
    shown.add_argument("folder", type=Path)
    shown.add_argument("--most", type=int, default=HEAVIEST, help="how many tests")
    shown.add_argument("--branches", metavar="TEST", help="print which branches this test alone takes")
    compared = commands.add_parser("lost")
    compared.add_argument("before", type=Path)
    compared.add_argument("after", type=Path)
    compared.add_argument("rooms", nargs="*", default=["tests/"])
    arguments, words = parser.parse_known_args()
    match arguments.command:
        case "record":
            return record(arguments.folder, arguments.traced, words)
        case "lost":
            return lost(read(arguments.before), read(arguments.after), tuple(arguments.rooms))
        case "show" if arguments.branches:
            show_branches(read(arguments.folder), arguments.branches)
        case "show":
            show(read(arguments.folder), arguments.folder, arguments.most)
        case _:
            folder = Path(tempfile.gettempdir()) / "qualgate-tests-time"  # an interrupted hunt goes on there
            if not any(folder.glob("tests-*.pickle")):
                record(folder, True, words)
            recorded = read(folder)
            hunt(recorded, folder, SEED, COUNT)
            show(recorded, folder, HEAVIEST)
    return 0


if __name__ == "__main__":
    sys.exit(main())
