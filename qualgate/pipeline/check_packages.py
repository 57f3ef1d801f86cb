"""Whether the packages that sets declare for programs can be had here: asked before a run, and part of its key."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from qualgate.errors import UsageError
from qualgate.records import Evalset
from qualgate.scoring.code import NoPackages, held_packages


def packages_held(sets: Sequence[Evalset], planning: Callable[[str], None] = lambda line: None) -> tuple[str, ...]:
    """What the packages of these sets come to, by versions and content, installed if need be.

    UsageError naming the set and the package that cannot be had. planning: told what is looked at.
    """
    held: dict[tuple[str, ...], str] = {}
    for item in sets:
        for wanted in dict.fromkeys(tuple(case.body["packages"]) for case in item.cases if case.body.get("packages")):
            if wanted not in held:
                planning(f"planning: packages of {item.name}: {', '.join(wanted)}")
                held[wanted] = _held(item, wanted)
    return tuple(sorted({one for one in held.values() if one}))


def _held(item: Evalset, wanted: tuple[str, ...]) -> str:
    try:
        return held_packages(wanted)
    except NoPackages as error:
        raise UsageError(
            f"evalset {item.name}: its `packages` cannot be had on this machine, so no program could be judged: "
            f"{error}. Correct `packages`, or make them available to pip as wheels."
        ) from None
