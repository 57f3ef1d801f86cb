"""`make verify`: the proofs that a landing needs.

python -m tests.verification.landing [--all] [--share NAME ...] [--minutes N] [--seed N]

Without options: the shares of the rooms that changed, and the one whose turn it is. Changed is what differs from where
main parted from its upstream, or else from the newest commit that is 12 hours older than the last one. A proof that
failed is named in `failing.txt` and runs, whatever changed, until it passes: commit that file. With --minutes, slices
that have not begun by then are named and not run; each day begins at another one, so that none is left out for long.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, date, datetime, timedelta
from itertools import repeat
from math import inf
from multiprocessing import get_context
from pathlib import Path

from tests.verification.__main__ import Slice, hold, slices
from tests.verification.shares import SHARES, share_in_turn, shares_of

ROOT = Path(__file__).resolve().parents[2]
FAILING = Path(__file__).with_name("failing.txt")
ONE_LANDING = timedelta(hours=12)
SLICES_AT_ONCE = 2  # each runs on one core
STRIDE = 17  # slices between the first of one day and of the next


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()


def base() -> str:
    """The commit that a landing starts from; empty where the history does not say."""
    parted = _git("merge-base", "HEAD", "@{upstream}")
    if parted and parted != _git("rev-parse", "HEAD"):
        return parted
    last = _git("log", "-1", "--format=%cI")
    if not last:
        return ""
    return _git("rev-list", "-1", f"--before={(datetime.fromisoformat(last) - ONE_LANDING).isoformat()}", "HEAD")


def changed() -> list[str] | None:
    """Files that a landing changes, what is not committed among them; None where nobody knows."""
    start = base()
    if not start:
        return None
    return _git("diff", "--name-only", start).splitlines() + _git("ls-files", "-o", "--exclude-standard").splitlines()


def chosen_shares(everything: bool, named: Sequence[str]) -> dict[str, str]:
    """Share -> why it runs."""
    unknown = [name for name in named if name not in SHARES]
    if unknown:
        raise SystemExit(f"no share {unknown[0]!r}; there are: {', '.join(SHARES)}")
    if named:
        return dict.fromkeys(named, "named")
    files = None if everything else changed()
    if files is None:
        return dict.fromkeys(SHARES, "everything")
    turn = share_in_turn(datetime.now(UTC).date())
    return {turn: "its turn"} | dict.fromkeys(shares_of(files), "changed")


def known_failures() -> list[str]:
    return FAILING.read_text(encoding="utf-8").split("\n")[:-1] if FAILING.exists() else []


def keep_failures(failed: Iterable[str], passed: Iterable[str]) -> None:
    """Failures stay until they have passed."""
    failures = sorted({*known_failures(), *failed} - set(passed) | set(failed))
    if failures:
        FAILING.write_text("".join(f"{name}\n" for name in failures), encoding="utf-8")
    else:
        FAILING.unlink(missing_ok=True)


class Outcomes:
    """A plugin of pytest: which tests passed and which failed, as JSON in the file that the variable names."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.failed: set[str] = set()
        self.passed: set[str] = set()

    def pytest_runtest_logreport(self, report: object) -> None:
        name, outcome = report.nodeid, report.outcome  # type: ignore[attr-defined]
        if outcome == "failed":
            self.failed.add(name)
        elif outcome == "passed" and report.when == "call":  # type: ignore[attr-defined]
            self.passed.add(name)

    def pytest_sessionfinish(self) -> None:
        rows = {"failed": sorted(self.failed), "passed": sorted(self.passed - self.failed)}
        self.path.write_text(json.dumps(rows), encoding="utf-8")


def pytest_configure(config: object) -> None:
    """This module is also the plugin, in the process that gathers what the workers of pytest report."""
    path = os.environ.get("QUALGATE_OUTCOMES")
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Outcomes(Path(path)))  # type: ignore[attr-defined]


def run_tests(places: Sequence[str], seed: int) -> tuple[bool, dict[str, list[str]]]:
    """The proofs among the tests of these places, and their properties, drawn often."""
    with tempfile.TemporaryDirectory() as folder:
        outcomes = Path(folder) / "outcomes.json"
        command = [
            *(sys.executable, "-m", "pytest", "-vv", "-m", "proof or hypothesis", "-n", "3", "--dist", "loadfile"),
            *("--no-loadscope-reorder", "-p", "tests.verification.landing", f"--hypothesis-seed={seed}", *places),
        ]
        environment = {**os.environ, "QUALGATE_TEST_DEPTH": "1", "QUALGATE_OUTCOMES": str(outcomes)}
        code = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
        rows = json.loads(outcomes.read_text(encoding="utf-8")) if outcomes.exists() else {"failed": [], "passed": []}
    return code in (0, 5), rows  # 5: these places hold no proof


def in_turn(covered: Sequence[Slice], again: Collection[str], day: date) -> list[Slice]:
    """Those that failed before come first; the others begin at another one each day."""
    first = [one for one in covered if str(one) in again]
    rest = [one for one in covered if str(one) not in again]
    begin = day.toordinal() * STRIDE % max(1, len(rest))
    return [*first, *rest[begin:], *rest[:begin]]


def hold_before(one: Slice, end: float) -> bool | None:
    """Whether it holds; None where it is too late to begin. end: seconds since the epoch."""
    return hold(one) if time.time() < end else None


def run_slices(covered: Sequence[Slice], end: float) -> dict[str, bool | None]:
    """Name of each slice -> whether it holds; None: not begun by `end`, seconds since the epoch."""
    with ProcessPoolExecutor(SLICES_AT_ONCE, mp_context=get_context("spawn")) as pool:
        held = pool.map(hold_before, covered, repeat(end))
        return {str(one): holds for one, holds in zip(covered, held, strict=True)}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.verification.landing")
    parser.add_argument("--all", action="store_true", help="every share")
    parser.add_argument("--share", nargs="*", default=[], metavar="NAME", help=f"of {', '.join(SHARES)}")
    parser.add_argument("--seed", type=int, default=random.randrange(2**31), help="of the property tests")
    parser.add_argument("--minutes", type=float, default=inf, help="slices that have not begun by then are not run")
    asked = parser.parse_args(arguments)
    end = time.time() + 60 * asked.minutes
    reasons = chosen_shares(asked.all, asked.share)
    print("shares:", ", ".join(f"{name} ({reason})" for name, reason in reasons.items()), flush=True)
    print(f"again: make verify SHARE='{' '.join(reasons)}' SEED={asked.seed}", flush=True)
    again = known_failures()
    places = [f"tests/{place}" for name in reasons for place in SHARES[name].tests if (ROOT / "tests" / place).exists()]
    start = time.monotonic()
    whole, tests = run_tests([*places, *(name for name in again if name.startswith("tests/"))], asked.seed)
    print(f"proofs among the tests: {time.monotonic() - start:.0f} s", flush=True)
    proofs = {proof for name in reasons for proof in SHARES[name].slices}
    start = time.monotonic()
    chosen = [one for one in slices() if one.proof in proofs or str(one) in again]
    held = run_slices(in_turn(chosen, again, datetime.now(UTC).date()), end)
    broken, late = ([name for name, holds in held.items() if holds is state] for state in (False, None))
    holding = [name for name, holds in held.items() if holds]
    print(f"{len(holding)} of {len(held)} slices hold: {time.monotonic() - start:.0f} s", flush=True)
    for name in late:
        print(f"not run, {asked.minutes:g} minutes were over: {name}", flush=True)
    failed = [*tests["failed"], *broken]
    keep_failures(failed, [*tests["passed"], *holding])
    for name in failed:
        print(f"failed, and stays in {FAILING.relative_to(ROOT)} until it passes: {name}", flush=True)
    return 0 if whole and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
