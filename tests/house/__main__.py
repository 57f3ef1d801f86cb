"""`python -m tests.house [--json FILE]`: the table, and exit code 1 where a goal is missed. `python -m tests.house
messages`: every message that users may read."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from tests.house.messages import messages
from tests.house.table import rows


def main() -> int:
    """Print every row; 1 when one with a goal misses it."""
    parser = argparse.ArgumentParser(prog="python -m tests.house", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there as well")
    parser.add_argument("what", nargs="?", choices=["table", "messages"], default="table")
    options = parser.parse_args()
    if options.what == "messages":
        print("\n".join(dict.fromkeys(f"{path}:{line}: {text}" for path, line, text in messages())))
        return 0
    path = options.json
    table = rows()
    width = max(len(row.what) for row in table)
    for row in table:
        mark = "" if row.met is None else "ok" if row.met else "MISSED"
        print(f"{row.what:{width}}  {row.measured!s:>12}  {row.goal:>12}  {mark}")
        for line in row.places if row.met is False else ():
            print(f"{'':{width}}    {line}")
    if path is not None:
        path.write_text(json.dumps([row.as_plain() for row in table], indent=2) + "\n", encoding="utf-8")
    return int(any(row.met is False for row in table))


if __name__ == "__main__":
    sys.exit(main())
