"""Write files atomically."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from qualgate.errors import UsageError


def write_atomically(path: Path, content: str) -> None:
    """Write a file whole or not at all (temporary file beside it, then rename). Text ends with a new line."""
    encoded = (content if content.endswith("\n") else content + "\n").encode("utf-8", "backslashreplace")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(encoded)
            os.chmod(temporary, 0o644)
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        if file := next((parent for parent in path.parents if os.path.isfile(parent)), None):
            raise UsageError(f"{file}: it is a file, and a folder is needed; choose another name.") from None
        raise UsageError(f"{path}: cannot be written ({error.strerror}); choose a folder you may write to.") from None
