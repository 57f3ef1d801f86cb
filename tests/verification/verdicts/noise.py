"""How often the gate blocks the baseline held against itself: symmetric noise, no loss. Row `aa.block_rate`."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from qualgate.stats.paired.compare import compare_pairs

DESIGNS = ((100, 0.05, 0.02), (400, 0.05, 0.02), (400, 0.15, 0.02), (1319, 0.05, 0.01))  # cases, flips, max_drop


def measure(quick: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    row = block_rate(quick)
    return row.pop("rows"), [row]


def block_rate(quick: bool, alpha: float = 0.05, seed: int = 20260101) -> dict[str, Any]:
    """The largest share of A/A runs that a rule blocks, over designs of (cases, share that flips, max_drop).

    Flips fall both ways alike. The goal: at most alpha and three standard errors of the simulation, in every design.
    """
    draws, generator = 2_000 if quick else 100_000, np.random.default_rng(seed)
    rows = []
    for n, discordance, margin in DESIGNS[: 2 if quick else None]:
        tables = generator.multinomial(n, [discordance / 2, discordance / 2, 1 - discordance], draws)
        blocks = lru_cache(None)(
            lambda lost, gained, n=n, margin=margin: compare_pairs(lost, gained, n, margin, alpha).p_beyond <= alpha
        )
        # A rule never blocks where no more is lost than is allowed, so only the other tables are tested.
        hits = sum(lost - gained > margin * n and blocks(int(lost), int(gained)) for lost, gained, _ in tables)
        rows.append(
            {"n": n, "discordance": discordance, "max_drop": margin, "draws": draws, "blocked": int(hits) / draws}
        )
    worst = max(row["blocked"] for row in rows)
    return {
        "id": "aa.block_rate",
        "goal": "at most alpha and three standard errors",
        "measured": worst,
        "spread": [min(row["blocked"] for row in rows), worst],
        "met": worst <= alpha + 3 * (alpha * (1 - alpha) / draws) ** 0.5,
        "rows": rows,
    }
