"""What a hostile program takes of memory in all, the kernel's own too, as a cgroup around it counts.

python -m tests.verification.escapes.kernel_memory NAME TIER    runs one program of the suite, for `taken`
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from dataclasses import replace

from qualgate.sandbox import Limits, Sandbox, cgroup
from tests.verification.escapes.ground import ground
from tests.verification.escapes.hostile import ESCAPES
from tests.verification.escapes.suite import attempt

LIMITS = Limits(cpu_seconds=2, wall_seconds=8, memory_bytes=2**28)
MOST = 2**33  # bytes that no program may get hold of while it is measured: the host runs the tests
NAMES = tuple(name for name in ESCAPES if name.startswith(("S1 ", "S2", "S4", "S15", "S18")))


def taken(name: str, tier: str) -> int | None:
    """Bytes at the peak, with the Python that started it; None where no cgroup may be made."""
    made = cgroup.make(MOST)
    if made is None:
        return None
    try:
        command = [sys.executable, "-m", __spec__.name if __spec__ else __name__, name, tier]
        subprocess.run(made.within(command), check=True, stdout=subprocess.DEVNULL)
        for peak in ("memory.peak", "memory.max_usage_in_bytes"):
            with contextlib.suppress(FileNotFoundError):
                return int((made.folder / peak).read_text())
        return None
    finally:
        made.remove()


def main() -> None:
    sandbox = Sandbox.best(force="A" if sys.argv[2] == "A" else "B")
    assert sandbox is not None, "asked for a tier that holds"
    with ground() as (place, _):
        attempt(sys.argv[1], replace(sandbox, limits=LIMITS), place)


if __name__ == "__main__":
    main()
