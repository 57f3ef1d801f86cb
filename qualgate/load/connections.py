"""Raise this process's limit on open files for its connections, or it would look like a server's failure."""

from __future__ import annotations

import resource

from qualgate.errors import UsageError

OTHERS = 256  # open files of a process besides its connections


def connections(wanted: int, at_most: bool = False) -> int:
    """Raise the limit and return `wanted`; if that is not allowed, raise UsageError, or with `at_most` return the
    largest number allowed."""
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
