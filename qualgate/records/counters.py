"""A server's counts of its drafts, read before and after each job of an arm, and their sums."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftCounts:
    """Totals since a server started; None: it does not count that. verifications: passes that verified a draft.
    by_place: tokens accepted at each place of a draft, the first place first."""

    verifications: int | None = None
    proposed: int | None = None
    accepted: int | None = None
    by_place: tuple[int, ...] = ()

    @property
    def told(self) -> bool:
        """Whether any of it says that drafts were made, or that none were."""
        return self.verifications is not None or self.proposed is not None

    @property
    def drafted(self) -> bool:
        """Whether a draft was made."""
        return bool(self.verifications or self.proposed)

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted of the proposed tokens."""
        return self.accepted / self.proposed if self.accepted is not None and self.proposed else None

    @property
    def acceptance_length(self) -> float | None:
        """Tokens that a verification gives, its own token among them: 1 + accepted / verifications, as vLLM has it."""
        if self.accepted is None or not self.verifications:
            return None
        return 1 + self.accepted / self.verifications

    @property
    def reading(self) -> int:
        """Grows with every draft: readings of one server are ordered by it."""
        return (self.verifications or 0) + (self.proposed or 0) + (self.accepted or 0)

    def since(self, before: DraftCounts) -> DraftCounts | None:
        """What came to it; None where a count fell, or is told by one of the two alone: then the server is another."""
        found: dict[str, int | None] = {}
        for name in ("verifications", "proposed", "accepted"):
            one, other = getattr(before, name), getattr(self, name)
            if (one is None) != (other is None) or (other or 0) < (one or 0):
                return None
            found[name] = None if other is None else other - (one or 0)
        earlier = (*before.by_place, *[0] * len(self.by_place))
        places = tuple(now - then for now, then in zip(self.by_place, earlier, strict=False))
        if len(self.by_place) < len(before.by_place) or min(places, default=0) < 0:
            return None
        return DraftCounts(**found, by_place=places)

    def __add__(self, other: DraftCounts) -> DraftCounts:
        """Of both; what one of them does not know is not known of both."""
        sums = {}
        for name in ("verifications", "proposed", "accepted"):
            one, two = getattr(self, name), getattr(other, name)
            sums[name] = None if one is None or two is None else one + two
        most = max(len(self.by_place), len(other.by_place))
        padded = [(*one.by_place, *[0] * (most - len(one.by_place))) for one in (self, other)]
        return DraftCounts(**sums, by_place=tuple(map(sum, zip(*padded, strict=True))))


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftWindow:
    """A time in which a server answered for an arm. server: which process, so far as it is known. evalset: whose
    answers alone were made in it; "": several sets'."""

    server: str
    evalset: str
    before: DraftCounts
    after: DraftCounts


def joined(windows: Iterable[DraftWindow]) -> tuple[DraftWindow, ...]:
    """The same time, each part of it once: jobs that one server answers side by side have windows that overlap."""
    found: list[DraftWindow] = []
    for one in sorted(windows, key=lambda one: (one.server, one.before.reading, one.after.reading)):
        last = found[-1] if found else None
        if last is None or last.server != one.server or one.before.reading > last.after.reading:
            found.append(one)
        elif one.before.reading < last.after.reading or one.evalset == last.evalset:
            evalset = one.evalset if one.evalset == last.evalset else ""
            after = max(last.after, one.after, key=lambda counts: counts.reading)
            found[-1] = DraftWindow(server=one.server, evalset=evalset, before=last.before, after=after)
        elif one.after != one.before:  # it begins where the last one ends, with another set; without drafts it is over
            found.append(one)
    return tuple(found)


def counted_in(windows: Iterable[DraftWindow], evalset: str | None = None) -> DraftCounts | None:
    """What windows that do not overlap add up to; None where there are none, or their ends are no one server's.
    evalset: of its windows alone."""
    total: DraftCounts | None = None
    for one in windows:
        if evalset is not None and one.evalset != evalset:
            continue
        came = one.after.since(one.before)
        if came is None:
            return None
        total = came if total is None else total + came
    return total


def evalsets_of(windows: Iterable[DraftWindow]) -> tuple[str, ...]:
    """Sets with a window of their own, where every window is one set's: else a set's drafts are in others' windows."""
    names = [one.evalset for one in windows]
    return () if "" in names else tuple(sorted(set(names)))
