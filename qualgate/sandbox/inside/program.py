"""Run one whole program as `python program.py < input` would: only its output and its end count.

The first line in is {"program", "prelude", "stdin"}. The only reply is the line BEGUN, once the prelude has run: from
then on the pipe of replies is standard error, for people only. The input is in an unlinked file.
"""

from __future__ import annotations

import json
import os
import sys
from types import ModuleType

TYPE_CHECKING = False  # typing takes as long to import as all the rest
if TYPE_CHECKING:
    from typing import BinaryIO

BEGUN = b"begun\n"


def serve(questions: BinaryIO, replies: BinaryIO) -> None:
    """Run the one program of the first line in a module `__main__`. Raises what it raises, SystemExit too."""
    task = json.loads(questions.readline())
    questions.close()
    _give(task["stdin"])
    main = sys.modules["__main__"] = ModuleType("__main__")
    sys.argv[:] = ["answer.py"]
    exec(compile(task["prelude"], "<prelude>", "exec", dont_inherit=True), main.__dict__)
    replies.write(BEGUN)
    replies.flush()
    os.dup2(replies.fileno(), 2)
    exec(compile(task["program"], "<answer>", "exec", dont_inherit=True), main.__dict__)


def _give(text: str) -> None:
    """Make `text` the standard input, read-only."""
    with open("stdin", "wb") as file:
        file.write(text.encode("utf-8"))
    handle = os.open("stdin", os.O_RDONLY)
    os.unlink("stdin")
    os.dup2(handle, 0)
    os.close(handle)
    sys.stdin = sys.__stdin__ = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
