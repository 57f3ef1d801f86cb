"""Read models for reports and the dashboard: frozen, paged, counted in SQL."""

from qualgate.store.queries.answers import Answer, CaseDetail, case_detail
from qualgate.store.queries.changed import Changed, changed_scores
from qualgate.store.queries.drafted import drafted
from qualgate.store.queries.drift import PositionDrift, Said, baseline_said, drift_by_position
from qualgate.store.queries.flipped import (
    Direction,
    Flip,
    FlipCount,
    Judged,
    count_flipped_cases,
    flip_counts,
    flipped_cases,
    flips,
    judged_by,
)
from qualgate.store.queries.judged_before import judged_before
from qualgate.store.queries.newest import latest_run, latest_run_of, newest_complete
from qualgate.store.queries.nights import Flaky, Watched, flaky, watched
from qualgate.store.queries.pages import (
    RunLine,
    VariantLine,
    count_queue,
    count_runs,
    count_superseded,
    list_decisions,
    list_runs,
    queue,
    verdict_words,
)
from qualgate.store.queries.readings import READINGS, Readings, read_by, readings
from qualgate.store.queries.side_by_side import SHOWS, Compared, Show, side_by_side
from qualgate.store.queries.summary import (
    ArmLine,
    EvalsetLine,
    RunSummary,
    StoredVerdict,
    as_archived,
    as_damaged,
    checked_run,
    run_summary,
    verdicts_at,
)
from qualgate.store.queries.times import AnswerTime, answer_times
from qualgate.store.queries.trajectories import ScoredPair, Trajectories, Trajectory, TurnLine, gathered, trajectories

__all__ = [
    "READINGS",
    "SHOWS",
    "Answer",
    "AnswerTime",
    "ArmLine",
    "CaseDetail",
    "Changed",
    "Compared",
    "Direction",
    "EvalsetLine",
    "Flaky",
    "Flip",
    "FlipCount",
    "Judged",
    "PositionDrift",
    "Readings",
    "RunLine",
    "RunSummary",
    "Said",
    "ScoredPair",
    "Show",
    "StoredVerdict",
    "Trajectories",
    "Trajectory",
    "TurnLine",
    "VariantLine",
    "Watched",
    "answer_times",
    "as_archived",
    "as_damaged",
    "baseline_said",
    "case_detail",
    "changed_scores",
    "checked_run",
    "count_flipped_cases",
    "count_queue",
    "count_runs",
    "count_superseded",
    "drafted",
    "drift_by_position",
    "flaky",
    "flip_counts",
    "flipped_cases",
    "flips",
    "gathered",
    "judged_before",
    "judged_by",
    "latest_run",
    "latest_run_of",
    "list_decisions",
    "list_runs",
    "newest_complete",
    "queue",
    "read_by",
    "readings",
    "run_summary",
    "side_by_side",
    "trajectories",
    "verdict_words",
    "verdicts_at",
    "watched",
]
