"""Benchmark `determinism-report`: the same evidence, judged and reported again and again, gives the same bytes.

Each repetition is a process of its own with another hash seed, locale, time zone and thread count, on a store whose
jobs were recorded in another order. It decides again from the stored evidence and renders every format.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.benchmarks.commands import answered, store_run
from tests.verification.goals import DETERMINISM_REPORT

REPETITIONS, QUICK = 100, 4
CASES = 12  # x 5 sets x 5 arms x 4 metrics = 1,200 scores
LOCALES = ("C", "C.UTF-8", "en_US.UTF-8", "de_DE.UTF-8", "tr_TR.UTF-8", "ar_SA.UTF-8")
ZONES = ("UTC", "Pacific/Kiritimati", "America/St_Johns", "Asia/Kolkata", "Africa/Casablanca")
# A new store draws a new id for its run, which begins with the second that JUnit tells; all else must be the same.
_CODE = """
import hashlib, json, re, sys
from qualgate.report.formats import FORMATS, rendered
from qualgate.report.summary import load_report
from qualgate.store.database import open_store
from qualgate.store import queries, runs
from qualgate.gate.decide import decide
url = sys.argv[1]
with open_store(url, create=False) as store:
    run = queries.latest_run(store)
    policy = runs.policy(store, run)
    runs.add_verdicts(store, run, decide(runs.evidence(store, run), policy).verdicts, policy)
report = load_report(url, run)
texts = {form: re.sub('timestamp="[0-9T:-]+"', "", rendered(report, form).replace(run, "RUN")) for form in FORMATS}
print(json.dumps({form: hashlib.sha256(text.encode()).hexdigest() for form, text in texts.items()}))
"""


def run(quick: bool) -> dict[str, Any]:
    """Row `deterministic`: how many of the repetitions gave the first one's bytes in every format."""
    rounds = repetitions(QUICK if quick else REPETITIONS)
    same = sum(one["digests"] == rounds[0]["digests"] for one in rounds)
    few = f"{len(rounds)} repetitions only" if quick else None
    row = DETERMINISM_REPORT.row(
        "deterministic", same, spread=[same, len(rounds)], met=same == len(rounds),
        unmet_because=few,
    )  # fmt: skip
    return DETERMINISM_REPORT.result(rounds=rounds, rows=[row])


def repetitions(count: int) -> list[dict[str, Any]]:
    """Each with its environment, the order in which its jobs were recorded, and a digest for each format."""
    plan, results = answered(CASES)
    rng = random.Random(0)
    found = []
    for number in range(count):
        order = list(range(len(results)))
        if number:
            rng.shuffle(order)
        environment = {
            "PYTHONHASHSEED": str(rng.randrange(2**32)),
            "LC_ALL": rng.choice(LOCALES),
            "TZ": rng.choice(ZONES),
            "OMP_NUM_THREADS": str(rng.choice((1, 2, 4))),
        }
        with tempfile.TemporaryDirectory() as folder:
            url = f"sqlite:///{Path(folder) / 'bench.db'}"
            store_run(url, plan, [results[index] for index in order])
            done = subprocess.run(
                [sys.executable, "-c", _CODE, url], capture_output=True, text=True, check=True,
                env={**os.environ, **environment},
            )  # fmt: skip
        found.append({**environment, "jobs": order, "digests": json.loads(done.stdout)})
    return found
