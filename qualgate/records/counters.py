"""A server's draft counters, read before and after each job of an arm, and their sums."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftCounts:
    """Totals since a server started; None: not counted. verifications: passes that verified a draft. by_place: accepted
    tokens at each place of a draft, the first place first."""

    verifications: int | None = None
    proposed: int | None = None
    accepted: int | None = None
    by_place: tuple[int, ...] = ()

    @property
    def told(self) -> bool:
        """Whether the counters show if drafts were made."""
        return self.verifications is not None or self.proposed is not None

    @property
    def drafted(self) -> bool:
        """Whether a draft was made."""
        return bool(self.verifications or self.proposed)

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted / proposed tokens."""
        return self.accepted / self.proposed if self.accepted is not None and self.proposed else None

    @property
    def acceptance_length(self) -> float | None:
        """Tokens per verification, its own included: 1 + accepted / verifications, as in vLLM."""
        if self.accepted is None or not self.verifications:
            return None
        return 1 + self.accepted / self.verifications

    @property
    def reading(self) -> int:
        """A number that grows with every draft, to order readings of one server."""
        return (self.verifications or 0) + (self.proposed or 0) + (self.accepted or 0)

    def since(self, before: DraftCounts) -> DraftCounts | None:
        """Return the increase since `before`; None if a count fell or exists in one reading only: then another server
        answered."""
        differences: dict[str, int | None] = {}
        for name in ("verifications", "proposed", "accepted"):
            before_count, after_count = getattr(before, name), getattr(self, name)
            if (before_count is None) != (after_count is None) or (after_count or 0) < (before_count or 0):
                return None
            differences[name] = None if after_count is None else after_count - (before_count or 0)
        earlier = (*before.by_place, *[0] * len(self.by_place))
        places = tuple(after - previous for after, previous in zip(self.by_place, earlier, strict=False))
        if len(self.by_place) < len(before.by_place) or min(places, default=0) < 0:
            return None
        return DraftCounts(**differences, by_place=places)

    def __add__(self, other: DraftCounts) -> DraftCounts:
        """Add up two counts; a number unknown in one is unknown in the sum."""
        sums = {}
        for name in ("verifications", "proposed", "accepted"):
            own_count, other_count = getattr(self, name), getattr(other, name)
            sums[name] = None if own_count is None or other_count is None else own_count + other_count
        length = max(len(self.by_place), len(other.by_place))
        padded = [(*side.by_place, *[0] * (length - len(side.by_place))) for side in (self, other)]
        return DraftCounts(**sums, by_place=tuple(map(sum, zip(*padded, strict=True))))


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftWindow:
    """A time in which a server answered for an arm. server: its process, as far as known. evalset: the only set
    answered in it; "": several sets."""

    server: str
    evalset: str
    before: DraftCounts
    after: DraftCounts


def joined(windows: Iterable[DraftWindow]) -> tuple[DraftWindow, ...]:
    """Merge overlapping windows, which come from concurrent jobs at one server."""
    merged: list[DraftWindow] = []
    for window in sorted(windows, key=lambda window: (window.server, window.before.reading, window.after.reading)):
        last = merged[-1] if merged else None
        if last is None or last.server != window.server or window.before.reading > last.after.reading:
            merged.append(window)
        elif window.before.reading < last.after.reading or window.evalset == last.evalset:
            evalset = window.evalset if window.evalset == last.evalset else ""
            after = max(last.after, window.after, key=lambda counts: counts.reading)
            merged[-1] = DraftWindow(server=window.server, evalset=evalset, before=last.before, after=after)
        elif (
            window.after != window.before
        ):  # it begins where the last one ends, with another set; without drafts it is over
            merged.append(window)
    return tuple(merged)


def counted_in(windows: Iterable[DraftWindow], evalset: str | None = None) -> DraftCounts | None:
    """Return the sum of non-overlapping windows; None without any, or if a window's ends are from different servers.
    evalset: count only this set's windows."""
    total: DraftCounts | None = None
    for window in windows:
        if evalset is not None and window.evalset != evalset:
            continue
        came = window.after.since(window.before)
        if came is None:
            return None
        total = came if total is None else total + came
    return total


def evalsets_of(windows: Iterable[DraftWindow]) -> tuple[str, ...]:
    """Sets with windows of their own, if every window belongs to one set; else ()."""
    names = [window.evalset for window in windows]
    return () if "" in names else tuple(sorted(set(names)))
