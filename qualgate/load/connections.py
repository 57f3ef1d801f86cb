"""How many connections this process may hold: what it lacks itself must not be told as a server's failure."""

from __future__ import annotations

import resource

from qualgate.errors import UsageError

OTHERS = 256  # files that a process holds beside its connections


def connections(wanted: int, at_most: bool = False) -> int:
    """`wanted`, once the process may open so many files. UsageError where it may not; at_most: as many as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    if soft != unlimited and soft < wanted + OTHERS:
        soft = wanted + OTHERS if hard == unlimited else min(hard, wanted + OTHERS)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == unlimited or soft >= wanted + OTHERS:
        return wanted
    if at_most and soft > OTHERS:
        return soft - OTHERS
    raise UsageError(
        f"{wanted:,} requests at once take as many open files, and this process may have {soft:,} (ulimit -Hn). Raise "
        "that limit, or ask fewer at once (`load.concurrency`)."
    )
