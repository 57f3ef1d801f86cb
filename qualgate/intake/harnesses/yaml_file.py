"""Read a YAML file of results within bounds; its aliases are kept as one value each, and counted as often as used."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from qualgate.documents import quote
from qualgate.errors import UsageError
from qualgate.errors.misplaced import unreadable
from qualgate.intake.harnesses.fields import mapping, sequence

MOST_BYTES = 64 * 2**20
MOST_DEPTH = 64
MOST_PARTS = 20_000_000  # with aliases written out
LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class YamlFile:
    """The counterpart of `JsonFile`; the file is read as a whole."""

    def __init__(self, path: Path, *keys: str) -> None:
        self.path = path
        self.rest: dict[str, Any] = {}
        self._keys = keys

    @property
    def items(self) -> Iterator[Any]:
        """Yield the items of the list at the path of keys. UsageError names the file and the line of a fault."""
        self.rest |= mapping(self._load())
        below: Any = self.rest
        for key in self._keys:
            below = mapping(below).get(key)
        yield from sequence(below)

    def _load(self) -> Any:
        try:
            with self.path.open("rb") as file:
                raw = file.read(MOST_BYTES + 1)
            if len(raw) > MOST_BYTES:
                raise UsageError(f"{self.path}: more than {MOST_BYTES // 2**20} MiB of YAML; write the results as JSON")
            depth = 0
            for event in yaml.parse(raw, LOADER):
                depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
                if depth > MOST_DEPTH:
                    raise UsageError(f"{self.path}:{event.start_mark.line + 1}: nested too deeply")
            value = yaml.load(raw, LOADER)  # a safe loader
            if _parts(value, {}) > MOST_PARTS:
                raise UsageError(f"{self.path}: its aliases stand for more than {MOST_PARTS:,} values")
        except OSError as error:
            raise UsageError(unreadable(self.path, error)) from None
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else 1
            raise UsageError(f"{self.path}:{line}: not YAML: {quote(str(error.problem))}") from None
        except (yaml.YAMLError, ValueError, OverflowError, TypeError) as error:
            raise UsageError(f"{self.path}: not readable as YAML: {quote(str(error))}") from None
        except RecursionError:
            raise UsageError(f"{self.path}: nested too deeply") from None
        return value


def _parts(value: Any, known: dict[int, int]) -> int:
    """Values in a value, an alias counted as often as it is used. RecursionError for one that holds itself."""
    if not isinstance(value, dict | list):
        return 1
    if id(value) not in known:
        known[id(value)] = MOST_PARTS + 1  # until it is known, it holds itself
        parts = value.values() if isinstance(value, dict) else value
        known[id(value)] = 1 + sum(_parts(part, known) for part in parts)
    return known[id(value)]
