"""A whole program, run behind the wall on an input: what it printed, if it ended by itself and with code 0."""

from __future__ import annotations

import json
import re
import time

from qualgate.sandbox.inside.program import BEGUN
from qualgate.sandbox.process import Ended, Interpreter

_TAIL = 4096  # bytes of standard error that are kept, the last
_LAST_LINE = re.compile(r"^(?:\w+\.)*([A-Z]\w*)(?:: (.*))?$")
_ERROR_TYPES = {"SyntaxError": "syntax", "IndentationError": "syntax", "TabError": "syntax", "MemoryError": "memory"}


class Program(Interpreter):
    """A fresh Python that runs one program. A context manager: on leaving, nothing of it is left."""

    def run(self, program: str, stdin: str, prelude: str = "") -> str:
        """What `program` printed to standard output, given `stdin`; bytes that are no UTF-8 as lone surrogates.

        prelude: run before it, in its module. Ended where it did not end with code 0: error_type "syntax" or
        "exception" by the last line of standard error, "exit" where that names no exception, "prelude" where it never
        began, or a limit's.
        """
        self._clock = time.monotonic()
        task = json.dumps({"program": program, "stdin": stdin, "prelude": prelude})
        unsent, told, begun = memoryview(task.encode("ascii") + b"\n"), b"", False
        try:
            while True:
                unsent = self._wait(unsent)
                told += bytes(self._lines)
                self._lines.clear()
                if not begun and told.startswith(BEGUN):
                    told, begun = told.removeprefix(BEGUN), True
                told = told[-_TAIL:]
        except Ended as ended:
            if not begun:
                raise Ended("prelude", f"the prelude fails: {ended}") from None
            code = self._process.returncode
            if ended.error_type != "exit" or code is None:
                raise
            if code != 0:
                raise _said(told.decode("utf-8", "backslashreplace"), ended) from None
        while self._printed >= 0 and self._drained():
            pass
        return bytes(self._output).decode("utf-8", "surrogateescape")

    def _drained(self) -> bool:
        """Whether something more was in the pipe of output, all of whose writers are gone."""
        try:
            self._drain()
        except BlockingIOError:
            return False
        return True


def _said(told: str, ended: Ended) -> Ended:
    """How a program ended that Python ended for an exception."""
    lines = told.strip().splitlines()
    found = _LAST_LINE.match(lines[-1].strip()) if lines else None
    if found is None or (not lines[0].startswith("Traceback") and '  File "' not in told):
        return ended
    return Ended(_ERROR_TYPES.get(found[1], "exception"), f"{found[1]}: {(found[2] or '')[:300]}")
