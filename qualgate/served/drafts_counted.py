"""A server's counts of its drafts, read from its page of metrics (Prometheus' text format).

A missing count is unknown; a count of zero is known. Other clients' requests are in the server's counts as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import isfinite
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from qualgate.records import DraftCounts, DraftWindow, Job
from qualgate.served.engines import Counters, counters_of

if TYPE_CHECKING:
    from qualgate.served.client import Client

_SAMPLE = re.compile(r"^([A-Za-z_:][A-Za-z0-9_:]*)(?:\{(.*)\})?[ \t]+(\S+)(?:[ \t]+-?\d+)?[ \t]*$", re.ASCII)
_POSITION = re.compile(r'(?:^|,)\s*position="(\d{1,3})"')
_STARTED = "process_start_time_seconds"
MOST = 2**53  # beyond it a float is no count
MOST_PLACES = 64  # of a draft
NO_PAGE = "it has no page of metrics that could be read"
NO_COUNTER = "its metrics have no counter of drafts"


Reading = tuple[str, DraftCounts | None, str]  # the process if known; its counts; why there are none, else ""


def counts_in(page: str, counters: Counters) -> DraftCounts | None:
    """Return the page's counts of drafts over all label sets (ranks, models); None if it has none."""
    sums: dict[str, int] = {}
    by_place: dict[int, int] = {}
    for name, labels, value in samples(page):
        counter = name.removesuffix("_total")
        if counter == counters.by_place:
            if (position := _POSITION.search(labels)) and int(position[1]) < MOST_PLACES:
                by_place[int(position[1])] = by_place.get(int(position[1]), 0) + value
        elif counter in (counters.verifications, counters.proposed, counters.accepted):
            sums[counter] = sums.get(counter, 0) + value
    counts = DraftCounts(
        verifications=sums.get(counters.verifications),
        proposed=sums.get(counters.proposed),
        accepted=sums.get(counters.accepted),
        by_place=tuple(by_place.get(position, 0) for position in range(max(by_place, default=-1) + 1)),
    )
    return counts if counts.told else None


def samples(page: str) -> Iterator[tuple[str, str, int]]:
    """Yield name, labels and value of each sample that can be a count."""
    for line in page.splitlines():
        if line.startswith("#") or not (match := _SAMPLE.match(line)):
            continue
        try:
            value = float(match[3])
        except ValueError:
            continue
        if isfinite(value) and 0 <= value < MOST:
            yield match[1], match[2] or "", int(value)


def started_in(page: str) -> str:
    """Return when the process began, as on its page ("1764083000.5"); "" if it is not there."""
    match = re.search(rf"^{_STARTED}[ \t]+([0-9.eE+]{{1,30}})[ \t]*$", page, re.MULTILINE)
    return match[1] if match else ""


async def read_counts(client: Client, engine: str) -> Reading:
    """Read the server's counts now."""
    has_samples = False
    pages: dict[str, str] = {}
    for counters in counters_of(engine):
        if counters.path not in pages:
            pages[counters.path] = await client.page(counters.path)
        page = pages[counters.path]
        has_samples = has_samples or next(samples(page), None) is not None
        if (counts := counts_in(page, counters)) is not None:
            return started_in(page), counts, ""
    return "", None, NO_COUNTER if has_samples else NO_PAGE


def window_of(job: Job, before: Reading, after: Reading) -> tuple[tuple[DraftWindow, ...], str]:
    """Return what was counted during a job, and why nothing was ("" if something was)."""
    assert job.arm.served is not None, "asked of served arms alone"
    (process, first, why), (same, last, why_last) = before, after
    if first is None or last is None:
        return (), why or why_last
    if process != same or last.since(first) is None:
        return (), "its counts fell while it answered: it was started again"
    sets = {prompt.key.evalset for prompt in job.prompts}
    window = DraftWindow(
        server=f"{urlsplit(job.arm.served.endpoint).netloc} {process}".strip(),
        evalset=next(iter(sets)) if len(sets) == 1 else "",
        before=first,
        after=last,
    )
    return (window,), ""
