"""Raise this process's limit on open files for its connections, or it would look like a server's failure."""

from __future__ import annotations

import resource

from qualgate.errors import UsageError

OTHERS = 256  # open files of a process besides its connections


def connections(number: int, at_most: bool = False) -> int:
    """Allow `number` connections at once, raising the limit of open files if needed, and return how many are allowed.

    If that limit cannot be raised so far: UsageError, or with `at_most` the largest number that is allowed.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    if soft != unlimited and soft < number + OTHERS:
        soft = number + OTHERS if hard == unlimited else min(hard, number + OTHERS)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == unlimited or soft >= number + OTHERS:
        return number
    if at_most and soft > OTHERS:
        return soft - OTHERS
    raise UsageError(
        f"{number:,} requests at once take as many open files, and this process may have {soft:,} (ulimit -Hn). Raise "
        "that limit, or ask fewer at once (`load.concurrency`)."
    )
