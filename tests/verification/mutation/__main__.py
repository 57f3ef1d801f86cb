"""Draw mutants of the product and let each meet the tests that reach its lines.

python -m tests.verification.mutation FOLDER [--seed N] [--count N] [--share 1/2]

FOLDER holds a traced run (`python -m tests.time record FOLDER --traced`). What came of each mutant is kept there, so an
interrupted hunt goes on. At the end it prints how many were killed, and the survivors.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.time.costs import read
from tests.verification.mutation.kills import hunt

SEED, COUNT = 42, 150


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.verification.mutation")
    parser.add_argument("folder", type=Path, help="of a traced run")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--share", default="1/1", metavar="K/N", help="every N-th mutant from the K-th on")
    asked = parser.parse_args()
    fates = hunt(read(asked.folder), asked.folder, asked.seed, asked.count, asked.share)
    survivors = [fate for fate in fates if fate.killer is None]
    print(f"{len(fates) - len(survivors)} of {len(fates)} killed; survivors:")
    for fate in survivors:
        print(f"  {fate.mutant} ({fate.met} tests reach it)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
