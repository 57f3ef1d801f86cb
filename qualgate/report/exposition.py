"""The state of a service as Prometheus metrics. Names and labels are a contract: users' alerts depend on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

from qualgate.errors import QualgateError
from qualgate.records.identity import own_version
from qualgate.records.verdicts import VerdictWord
from qualgate.store.queries.service import ServiceState

if TYPE_CHECKING:
    from prometheus_client import Metric

# A status without runs is exported as 0, not left out: an alert on a sum would not fire otherwise.
RUNS = ("running", "complete", "incomplete")


@dataclass(frozen=True, slots=True)
class Exposition:
    """A prometheus-client collector. state, overdue: called at each scrape; overdue: (nightly file, gate) → seconds
    since a night was due. failed: called if either cannot be read; the scrape then has `qualgate_store_up` 0 alone."""

    state: Callable[[], ServiceState]
    overdue: Callable[[], Mapping[tuple[str, str], float]]
    failed: Callable[[QualgateError], None]

    def collect(self) -> Iterator[Metric]:
        """Yield every metric."""
        from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily

        yield InfoMetricFamily("qualgate", "The program that reads the store", {"version": own_version()})
        up = GaugeMetricFamily("qualgate_store_up", "1 where the store could be read")
        try:
            metrics = [*families(self.state()), _overdue(self.overdue())]
        except QualgateError as error:
            self.failed(error)
            metrics = []
        up.add_metric((), float(bool(metrics)))
        yield up
        yield from metrics


def families(state: ServiceState) -> Iterator[Metric]:
    """Yield the metrics of a store's state: runs, units, verdicts, nights, and digests that wait."""
    yield _gauge("runs", "Runs in the store", {"status": RUNS}, state.runs)
    yield _gauge("units", "Answers of the runs under way", {"arm": (), "status": ()}, state.units)
    yield _counter("verdicts", "Verdicts ever given", {"word": get_args(VerdictWord)}, state.verdicts)
    by_gate = {"nightly": (), "gate": ()}
    yield _gauge("night_last_timestamp_seconds", "When the newest night ended", by_gate, state.last_nights)
    exit_counts = {(nightly, str(code)): number for (nightly, code), number in state.night_exits.items()}
    by_exit = {"nightly": (), "exit": ()}
    yield _gauge("nights", "Gates and models by the exit code of their newest night", by_exit, exit_counts)
    waiting = {nightly: number for nightly, (number, _) in state.waiting.items()}
    oldest = {nightly: seconds for nightly, (_, seconds) in state.waiting.items()}
    yield _gauge("digests_waiting", "Digests that are not delivered", {"nightly": ()}, waiting)
    yield _gauge("digest_oldest_seconds", "Age of the oldest that is not delivered", {"nightly": ()}, oldest)


def _overdue(overdue: Mapping[tuple[str, str], float]) -> Metric:
    return _gauge("night_due_seconds", "For how long a night has been due; 0: none is", {"nightly": (), "gate": ()},
                  overdue)  # fmt: skip


def _gauge(name: str, what: str, labels: Labels, values: Values) -> Metric:
    from prometheus_client.core import GaugeMetricFamily

    return _filled(GaugeMetricFamily(f"qualgate_{name}", what, labels=tuple(labels)), labels, values)


def _counter(name: str, what: str, labels: Labels, values: Values) -> Metric:
    from prometheus_client.core import CounterMetricFamily

    return _filled(CounterMetricFamily(f"qualgate_{name}", what, labels=tuple(labels)), labels, values)


Labels = Mapping[str, tuple[str, ...]]  # name → values that are always exported
Values = float | Mapping[str, float] | Mapping[tuple[str, str], float]


def _filled(family: Metric, labels: Labels, values: Values) -> Metric:
    """Return the family with its samples: those of `values`, and 0 for every label value that is always exported."""
    samples: dict[Any, float] = dict.fromkeys(next(iter(labels.values()), ()), 0.0)
    samples |= values if isinstance(values, Mapping) else {(): values}
    for key, value in samples.items():
        family.add_metric((key,) if isinstance(key, str) else key, value)  # type: ignore[attr-defined]
    return family
