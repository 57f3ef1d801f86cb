"""Run a whole program behind the wall on an input; return its output if it ended by itself with code 0."""

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
        """Return what `program` printed to standard output, given `stdin`; non-UTF-8 bytes as lone surrogates.

        prelude: run before it, in its module. Ended if it did not end with code 0: error_type "syntax" or "exception"
        by the last line of standard error, "exit" if that names no exception, "prelude" if it never began, or a
        limit's.
        """
        self._clock = time.monotonic()
        task = json.dumps({"program": program, "stdin": stdin, "prelude": prelude})
        unsent, errors, begun = memoryview(task.encode("ascii") + b"\n"), b"", False
        try:
            while True:
                unsent = self._wait(unsent)
                errors += bytes(self._lines)
                self._lines.clear()
                if not begun and errors.startswith(BEGUN):
                    errors, begun = errors.removeprefix(BEGUN), True
                errors = errors[-_TAIL:]
        except Ended as ended:
            if not begun:
                raise Ended("prelude", f"the prelude fails: {ended}") from None
            code = self._process.returncode
            if ended.error_type != "exit" or code is None:
                raise
            if code != 0:
                raise _said(errors.decode("utf-8", "backslashreplace"), ended) from None
        while self._printed >= 0 and self._drained():
            pass
        return bytes(self._output).decode("utf-8", "surrogateescape")

    def _drained(self) -> bool:
        """Read the output pipe, all of whose writers are gone; return whether it held more."""
        try:
            self._drain()
        except BlockingIOError:
            return False
        return True


def _said(errors: str, ended: Ended) -> Ended:
    """Return the end of a program by the exception on its standard error, if that shows one."""
    lines = errors.strip().splitlines()
    match = _LAST_LINE.match(lines[-1].strip()) if lines else None
    if match is None or (not lines[0].startswith("Traceback") and '  File "' not in errors):
        return ended
    return Ended(_ERROR_TYPES.get(match[1], "exception"), f"{match[1]}: {(match[2] or '')[:300]}")
