"""Compare a harness's own summary with the samples of its log: a difference means rows lost, doubled or edited."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import isclose
from pathlib import Path
from typing import Any

from qualgate.errors import UsageError
from qualgate.intake.harnesses.fields import number
from qualgate.intake.harnesses.log import Sample

MOST_MODELS = 1000


class Tally:
    """Counts of the samples that pass through, and the mean of each metric over questions, repeats averaged first."""

    def __init__(self) -> None:
        self.samples = 0
        self.errors = 0  # samples that the harness itself calls failed
        self.sums: dict[str, dict[str, tuple[float, int]]] = {}  # metric → id → (sum, values)

    @property
    def answers(self) -> int:
        """Samples without an error."""
        return self.samples - self.errors

    def counted(self, samples: Iterable[Sample]) -> Iterator[Sample]:
        """Yield the samples, counting them."""
        for sample in samples:
            self.samples += 1
            self.errors += bool(sample.error)
            for name, value in sample.values.items():
                if value is not None:
                    of_metric = self.sums.setdefault(name, {})
                    total, number = of_metric.get(sample.id, (0.0, 0))
                    of_metric[sample.id] = total + value, number + 1
            yield sample

    def mean(self, metric: str) -> float | None:
        """The mean over questions; None without a value."""
        of_metric = self.sums.get(metric)
        return sum(total / number for total, number in of_metric.values()) / len(of_metric) if of_metric else None

    def total(self, metric: str) -> float:
        """The sum of all values."""
        return sum(total for total, _ in self.sums.get(metric, {}).values())


def miscounted(path: Path, harness: str, what: str, stated: Any, found: float) -> Iterator[str]:
    """Yield a line if the harness stated another number than the log holds. stated: anything but a number says
    nothing."""
    if isinstance(stated, bool) or (told := number(stated)) is None:
        return
    if not isclose(told, found, abs_tol=1e-6):
        yield f"{path}: {harness} counted {told:,} {what}, and the log holds {found:,}"


class Models:
    """The models of one file's samples, of which one is judged."""

    def __init__(self, path: Path, wanted: str) -> None:
        self._path, self._wanted = path, wanted
        self._names: dict[str, None] = {}

    def chosen(self, samples: Iterable[Sample]) -> Iterator[Sample]:
        """Yield the samples of the chosen model. UsageError if there are several and none is chosen, or it has none."""
        any_chosen = False
        for sample in samples:
            if sample.model is None:  # all are of one
                yield sample
                continue
            if sample.model not in self._names:
                if len(self._names) >= MOST_MODELS:
                    raise UsageError(f"{self._path}: answers of more than {MOST_MODELS} models")
                self._names[sample.model] = None
            if self._wanted in ("", sample.model):
                any_chosen = True
                yield sample
        listed = ", ".join(f"{name!r:.60}" for name in self._names)
        if not self._wanted and len(self._names) > 1:
            raise UsageError(
                f"{self._path}: answers of several models ({listed}); choose by --baseline-model and --variant-model"
            )
        if self._wanted and not any_chosen and self._names:
            raise UsageError(f"{self._path}: no answer of the model {self._wanted!r:.80}; it has {listed}")
