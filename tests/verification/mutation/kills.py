"""Which tests notice a mutant: each mutant meets the tests that reach its lines, the cheapest first, until one fails.

A mutant lies in a copy of the checkout, never in the checkout itself. A test that fails in an unchanged copy too is no
witness. What is known is kept, so that an interrupted run goes on where it stopped.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.time.costs import Recorded, Test
from tests.verification.mutation.mutants import ROOT, Mutant, drawn

ROOMS = ("gate", "stats", "scoring", "store", "pipeline", "engine", "quant")
FIRST = 40  # tests that a mutant meets before all the others are collected
PATIENCE = 60.0, 4.0  # s, and times their cost: after that a mutant that never ends is noticed
PRELOADED = ("torch", "transformers", "hypothesis", "scipy.stats", "sqlalchemy", "pytest", "numpy", "pydantic")
INSTALLED = {"app": "qualgate_app", "evalsets": "qualgate_evalsets", "migrations": "qualgate_migrations"}


@dataclass(frozen=True, slots=True)
class Fate:
    """killer: the first test that failed, or "time" where the tests did not end; None: the mutant survived."""

    mutant: str
    killer: str | None
    met: int


def own_paths(checkout: Path, mapped: Path) -> list[str]:
    """Where Python looks first, so that a checkout's packages come before those that are installed. mapped: a folder of
    links under the names that a package is installed by."""
    mapped.mkdir(parents=True, exist_ok=True)
    for name, installed in INSTALLED.items():
        if not (mapped / installed).exists():
            (mapped / installed).symlink_to(checkout / name)
    return [str(checkout), str(checkout / "kernels"), str(mapped)]


class Copy:
    """A checkout's files in a folder of their own; tests there import them, not what is installed."""

    def __init__(self, checkout: Path, folder: Path) -> None:
        self.folder = folder
        if not folder.exists():
            ignored = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".hypothesis", "build", ".pytest_cache")
            shutil.copytree(checkout, folder, symlinks=True, ignore=ignored)
        self.paths = own_paths(folder, folder / "mapped")

    @contextlib.contextmanager
    def changed(self, mutant: Mutant) -> Iterator[None]:
        path = self.folder / mutant.path
        source = path.read_bytes()
        path.write_bytes(mutant.apply(source))
        try:
            yield
        finally:
            path.write_bytes(source)

    def first_failure(self, tests: Sequence[Test]) -> str | None:
        """The first of these tests that fails here."""
        names = self.folder / "names"
        failed = self.folder / "failed"
        failed.unlink(missing_ok=True)
        names.write_text("\n".join(test.name for test in tests))
        child = multiprocessing.get_context("fork").Process(target=_run, args=(self.folder, self.paths, names))
        child.start()
        least, times = PATIENCE
        child.join(least + times * sum(test.seconds for test in tests))
        if child.is_alive():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid or 0, 9)
            child.join()
            return "time"
        return failed.read_text() if failed.exists() else None


class _Failure:
    """A plugin of pytest: the name of the first test that fails, for whoever asked."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def pytest_runtest_logreport(self, report: object) -> None:
        if getattr(report, "failed", False) and not self.path.exists():
            self.path.write_text(report.nodeid)  # type: ignore[attr-defined]

    def pytest_collectreport(self, report: object) -> None:
        self.pytest_runtest_logreport(report)


def _run(folder: Path, paths: list[str], names: Path) -> None:
    """In a child that has imported what is slow to import, and nothing of ours."""
    os.setsid()
    os.chdir(folder)
    for name in [name for name in sys.modules if name.split(".")[0] in ("tests", "qualgate", *INSTALLED.values())]:
        del sys.modules[name]
    sys.path[:0] = paths
    os.environ |= {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    output = os.open(folder / "output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    import pytest

    words = ["-x", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "", f"@{names}"]
    pytest.main(words, plugins=[_Failure(folder / "failed")])
    sys.stdout.flush()
    os._exit(0)


class _Hunt:
    """Of one suite: a checkout with its tests, and what they were recorded to reach."""

    def __init__(self, checkout: Path, recorded: Recorded, work: Path) -> None:
        for name in PRELOADED:
            __import__(name)
        self.copy = Copy(checkout, work / f"copy-{os.getpid()}")
        self.recorded = recorded
        self.unfit: set[str] = set()

    def fate(self, mutant: Mutant) -> Fate:
        tests = self.recorded.reaching(mutant.path, mutant.line, mutant.end_line)
        met = 0
        for part in (tests[:FIRST], tests[FIRST:]):
            waiting = [test for test in part if test.name not in self.unfit]
            while waiting:
                with self.copy.changed(mutant):
                    killer = self.copy.first_failure(waiting)
                if killer is None:
                    break
                at = next((at for at, test in enumerate(waiting) if test.name == killer), None)
                if at is None:  # a file that no longer imports, or tests that do not end
                    return Fate(str(mutant), killer, met)
                met += at + 1
                if self.copy.first_failure(waiting[at : at + 1]) is None:
                    return Fate(str(mutant), killer, met)
                self.unfit.add(killer)
                waiting = waiting[at + 1 :]
            met += len(waiting)
        return Fate(str(mutant), None, met)


def _fates_file(folder: Path, seed: int) -> Path:
    return folder / f"fates-{seed}.jsonl"


def known_fates(folder: Path, seed: int) -> dict[str, Fate]:
    """Mutant -> what came of it, as an earlier hunt of this seed left it in the folder."""
    path = _fates_file(folder, seed)
    rows = map(json.loads, path.read_text(encoding="utf-8").splitlines()) if path.exists() else ()
    return {row["mutant"]: Fate(**row) for row in rows}


def hunt(recorded: Recorded, folder: Path, seed: int, count: int, share: str = "1/1") -> list[Fate]:
    """Find what comes of `count` mutants of this seed; of a share "K/N" every N-th from the K-th on.

    Fates that `folder` holds are taken from there, the others are added as they come.
    """
    first, step = map(int, share.split("/"))
    mutants = drawn(seed, count, [f"qualgate/{room}" for room in ROOMS])[first - 1 :: step]
    known = known_fates(folder, seed)
    waiting = [mutant for mutant in mutants if str(mutant) not in known]
    with tempfile.TemporaryDirectory(prefix="qualgate-mutants-") as work:
        suite = _Hunt(ROOT, recorded, Path(work)) if waiting else None
        for number, mutant in enumerate(waiting, 1):
            assert suite is not None
            fate = known[str(mutant)] = suite.fate(mutant)
            with _fates_file(folder, seed).open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(fate)) + "\n")
            print(f"{number} of {len(waiting)}: {fate.killer or 'SURVIVED'}: {mutant}", flush=True)
    return [known[str(mutant)] for mutant in mutants]
