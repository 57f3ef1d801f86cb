"""Install the packages that evalsets declare for programs; their content is part of a run's key."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from qualgate.errors import UsageError
from qualgate.records import Evalset
from qualgate.scoring.code import NoPackages, held_packages


def packages_held(sets: Sequence[Evalset], planning: Callable[[str], None] = lambda line: None) -> tuple[str, ...]:
    """Return the versions and content hashes of the sets' packages, installing them if needed.

    Raises UsageError naming the set and the package that is unavailable. planning: receives progress lines.
    """
    contents: dict[tuple[str, ...], str] = {}
    for item in sets:
        for packages in dict.fromkeys(tuple(case.body["packages"]) for case in item.cases if case.body.get("packages")):
            if packages not in contents:
                planning(f"planning: packages of {item.name}: {', '.join(packages)}")
                contents[packages] = _install(item, packages)
    return tuple(sorted({content for content in contents.values() if content}))


def _install(item: Evalset, packages: tuple[str, ...]) -> str:
    """Return the version and content hash of the packages, installed if needed. Raises UsageError naming the set
    `item` if they are unavailable."""
    try:
        return held_packages(packages)
    except NoPackages as error:
        raise UsageError(
            f"evalset {item.name}: its `packages` cannot be had on this machine, so no program could be judged: "
            f"{error}. Correct `packages`, or make them available to pip as wheels."
        ) from None
