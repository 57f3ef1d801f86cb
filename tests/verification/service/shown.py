"""Rows `pages.shown` and `pages.sessions`: the dashboard's pages as its server answers them, over a run of 1,000,000
answers in a store of its own.

A session speaks Streamlit's websocket, as a browser does; a page is shown once the script behind it has ended. What a
browser takes besides to load Streamlit's own files and to draw is not counted. Where a large run's evidence or answers
are still being read in the background the page says so, and it is asked for once more when they have been.

python -m tests.verification.service.shown [--minutes M] [--store URL]     JSON; a store that was made before is used
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.sync.client import ClientConnection, connect

from qualgate.gate.verdict import decide_plain
from qualgate.records import UnitKey
from qualgate.store import labels, queries, runs
from qualgate.store.database import open_store
from tests.app.server import started
from tests.benchmarks.memory import descendants
from tests.store.made import make_plan, make_results
from tests.verification.goals import SERVICE

COLD, WARM, P95, GROWTH = 1.5, 0.3, 2.0, 50.0  # s, s, s, MB a session
ANSWERS, ANSWERS_QUICK = 1_000_000, 1_200
SESSIONS, MINUTES, SECONDS_QUICK = 20, 30.0, 5.0
WRONG = {"int8": 0.0, "int4-g32": 0.012, "mxfp4": 0.03}
VARIANT, SETS = "mxfp4", 3
PAUSE = (5.0, 25.0)  # s that a person looks at a page
PAGES = ("queue", "runs", "nights", "loads", "decisions", "verdict")
BEING = ("being checked", "being read")
READ_WITHIN = 3_600.0  # s for the evidence and the answers of the run


def measure(quick: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """quick: a small run, and seconds instead of half an hour."""
    few = f"{ANSWERS_QUICK:,} answers" if quick else None
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/q.db"
        make(url, ANSWERS_QUICK if quick else ANSWERS)
        shown, sessions = both(url, SECONDS_QUICK if quick else MINUTES * 60)
    met = shown["slowest cold, s"] < COLD and shown["slowest warm, s"] < WARM and not shown["and still"]
    rows = [
        SERVICE.row("pages.shown", shown, met=met, few=few, by_chance=True),
        SERVICE.row("pages.sessions", sessions, met=held(sessions), few=few, by_chance=True),
    ]
    return [shown, sessions], rows


def held(sessions: dict[str, Any]) -> bool:
    return sessions["p95, s"] < P95 and sessions["growth, MB a session"] < GROWTH and not sessions["failed"]


def make(url: str, answers: int) -> None:
    """A complete run of so many answers whose evidence is whole. Its verdicts are those of a small one like it, since
    deciding takes minutes and is not measured here."""
    with open_store(url) as store:
        small, plan = (
            make_plan(cases=-(-count // (SETS * (len(WRONG) + 1))), wrong=WRONG) for count in (1_200, answers)
        )
        for each in (small, plan):
            run = runs.begin(store, each)
            for result, scored in make_results(each, WRONG):
                runs.record(store, run.run_id, result, scored)
            if each is small:
                judged = decide_plain(runs.evidence(store, run.run_id), each.policy)
            runs.finish(store, run.run_id, judged, complete=True)


def both(url: str, seconds: float, patience: float = READ_WITHIN) -> tuple[dict[str, Any], dict[str, Any]]:
    """Each page alone, then the sessions, by one server."""
    with open_store(url, create=False) as store:
        run = queries.latest_run(store)
        keys = queries.case_keys(store, run, VARIANT, queries.CaseFilter(show="lost"), "KL")[:500]
    with started(url) as (address, command):
        server = _server(command.pid)
        shown = pages(address, run, server, patience)
        return shown, sessions(address, url, run, [key.case for key in keys], server, seconds)


def pages(address: str, run: str, server: int, patience: float) -> dict[str, Any]:
    """Page → s of the first time and, the middle one of five, of later ones. patience: s to wait for the run's evidence
    and answers to be read."""
    with session(address) as socket:
        found: dict[str, dict[str, float]] = {}
        for page in PAGES:
            worked = _worked(server)
            found[page] = {"cold": opened(socket, page, run)[0], "cold, of a processor": _worked(server) - worked}
        began, being = time.monotonic(), BEING
        while being and time.monotonic() - began < patience:
            time.sleep(1)
            text = opened(socket, "verdict", run)[1]
            being = tuple(word for word in BEING if word in text)
        read = time.monotonic() - began
        found["verdict"]["first whole"] = opened(socket, "verdict", run)[0]
        for page in PAGES:
            worked = _worked(server)
            found[page]["warm"] = statistics.median(opened(socket, page, run)[0] for _ in range(5))
            found[page]["warm, of a processor"] = (_worked(server) - worked) / 5
    return {
        "pages, s": found,
        "slowest cold, s": max(one["cold"] for one in found.values()),
        "slowest warm, s": max(one["warm"] for one in found.values()),
        "evidence and answers read after, s": read,
        "and still": being,
    }


def sessions(
    address: str, url: str, run: str, cases: list[tuple[str, str, int]], server: int, seconds: float
) -> dict[str, Any]:
    """Sessions that look at pages and open cases, while somebody labels one every ten seconds. server: its process."""
    until = time.monotonic() + seconds
    before = _memory(server)
    with ThreadPoolExecutor(SESSIONS + 1) as people:
        looking = [people.submit(_look, address, run, cases, until, seed) for seed in range(SESSIONS)]
        labelled = people.submit(_label, url, run, cases, until)
        found = [one.result() for one in looking]
        count = labelled.result()
    took = sorted(itertools.chain.from_iterable(each for each, _ in found))
    return {
        "sessions": SESSIONS,
        "minutes": seconds / 60,
        "load of the machine": os.getloadavg()[0],
        "pages": len(took),
        "labels": count,
        "median, s": statistics.median(took),
        "p95, s": took[int(len(took) * 0.95)],
        "slowest, s": took[-1],
        "failed": sum(failed for _, failed in found),
        "growth, MB a session": (_memory(server) - before) / 1e6 / SESSIONS,
    }


def _server(command: int) -> int:
    """The process that serves, below the command's."""
    return next(
        one for one in descendants(command) if b"qualgate_app.serve" in Path(f"/proc/{one}/cmdline").read_bytes()
    )


def _memory(process: int) -> int:
    """Bytes that it holds itself: what checks a run ends by itself, and is none of it."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _worked(process: int) -> float:
    """s of a processor that it took so far, which do not depend on what else the machine does."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _look(
    address: str, run: str, cases: list[tuple[str, str, int]], until: float, seed: int
) -> tuple[list[float], int]:
    """s of each page of one session, and how many of them showed an error."""
    rng, took, failed = random.Random(seed), [], 0
    with session(address) as socket:
        while time.monotonic() < until:
            time.sleep(rng.uniform(*PAUSE))
            page = rng.choice((*PAGES, *["verdict"] * 6))
            name = "/".join(rng.choice(cases)[:2])
            seconds, text = opened(socket, page, run, f"&case={name}" if rng.random() < 0.8 else "")
            took.append(seconds)
            failed += "cannot show this" in text or "Traceback" in text
    return took, failed


def _label(url: str, run: str, cases: list[tuple[str, str, int]], until: float) -> int:
    for count, case in enumerate(itertools.cycle(cases)):
        if time.monotonic() + 10 > until:
            return count
        with open_store(url, create=False) as store:
            labels.set_label(store, run, UnitKey(VARIANT, *case), "acceptable", name=f"Ada {count}")
        time.sleep(10)
    return 0


@contextmanager
def session(address: str) -> Iterator[ClientConnection]:
    """A browser's connection."""
    stream = f"ws{address.removeprefix('http')}/_stcore/stream"
    with connect(stream, subprotocols=["streamlit"], max_size=None, origin=address) as socket:  # type: ignore[list-item]
        yield socket


def opened(socket: ClientConnection, page: str, run: str, more: str = "") -> tuple[float, str]:
    """s until a page is whole, and what the server sent for it."""
    asked = BackMsg()
    asked.rerun_script.page_name = page
    asked.rerun_script.query_string = f"run={run}&variant={VARIANT}{more}" if page == "verdict" else ""
    began, sent = time.perf_counter(), []
    socket.send(asked.SerializeToString())
    while True:
        got = ForwardMsg.FromString(socket.recv(timeout=120))
        kind = got.WhichOneof("type")
        if kind == "delta":
            sent.append(str(got.delta))
        if kind == "script_finished":
            return time.perf_counter() - began, "".join(sent)


def main() -> int:
    parser = argparse.ArgumentParser(description="Pages of a store of 1,000,000 answers.")
    parser.add_argument("--minutes", type=float, default=MINUTES)
    parser.add_argument("--store", help="of an earlier call; made and kept if there is none")
    parser.add_argument("--patience", type=float, default=READ_WITHIN, help="s to wait until the run was read")
    parser.add_argument("--answers", type=int, default=ANSWERS)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url = asked.store or f"sqlite:///{folder}/q.db"
        try:
            open_store(url, create=False).close()
        except Exception:
            make(url, asked.answers)
        shown, found = both(url, asked.minutes * 60, asked.patience)
    print(json.dumps({"pages.shown": shown, "pages.sessions": found}, indent=2))
    return 0 if held(found) else 1


if __name__ == "__main__":
    sys.exit(main())
