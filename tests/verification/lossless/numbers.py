"""Does a run's chance answer as the enumeration has it: at the edges, and by numbers that no two draws share?"""

from __future__ import annotations

from collections.abc import Sequence
from math import nextafter
from types import ModuleType

import torch

LAST = 1 - 2.0**-53  # the largest number that is drawn
DRAWS = 4096


def told_otherwise(chance: ModuleType) -> str:
    """What `chance` (the module, or what was made of it) answers otherwise than it should; "" for nothing."""
    try:
        return _edges(chance) or _keys(chance) or _spread(chance)
    except ValueError as error:
        return f"refuses what is right: {error}"


def _edges(chance: ModuleType) -> str:
    class Forced(chance.HashedChance):  # type: ignore[misc, name-defined]
        number = 0.0

        def uniform(self) -> float:
            return self.number

    for number in (0.0, 0.25, 0.5, LAST):
        Forced.number = number
        forced = Forced(seed=0, case=0, round=())
        for probability, accepted in ((0.0, False), (number, False), (nextafter(number, 2.0), True), (1.0, True)):
            if forced.accepts(probability) is not accepted:
                return f"accepts({probability}) is {not accepted} by the number {number}"
        for weights in ([0, 1, 0, 3, 0], [0, 0.02, 0, 0.06, 0], [1e9, 1, 0, 0.5, 0], [5e-324, 0, 5e-324, 0, 0]):
            token = forced.token(torch.tensor(weights, dtype=torch.float64))
            expected = _by_hand(weights, number)
            if token != expected:
                return f"of weights {weights} the number {number} draws {token}, not {expected}"
    return ""


def _by_hand(weights: Sequence[float], number: float) -> int:
    possible = [token for token, weight in enumerate(weights) if weight]
    for token in possible:
        if sum(weights[: token + 1]) > number * sum(weights):
            return token
    return possible[-1]


def _keys(chance: ModuleType) -> str:
    """Of rounds, levels, cases and seeds side by side."""
    made = chance.HashedChance
    rounds = [made(seed=seed, case=case, round=(said,)) for seed in (0, 1) for case in (0, -7) for said in range(3)]
    rounds += [one.within(call) for one in rounds for call in range(3)]
    rounds += [one.within(call) for one in rounds[-9:] for call in range(3)]
    numbers = [one.uniform() for one in rounds for _ in range(4)]
    return "" if len(set(numbers)) == len(numbers) else "draws share a number"


def _spread(chance: ModuleType) -> str:
    """Exact: so many numbers leave a 64th empty once in 1e26."""
    one = chance.HashedChance(seed=0, case=0, round=())
    places = {int(one.uniform() * 64) for _ in range(DRAWS)}
    return "" if places == set(range(64)) else "numbers do not reach from 0 to 1"
