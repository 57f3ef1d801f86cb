"""Load a stored run as a report, to be rendered elsewhere. No statistic is computed here.

A report depends on neither host nor clock: the same stored evidence gives the same bytes on every machine.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from qualgate.errors import EXIT_ORDER, Exit
from qualgate.records import FourArm, Policy, Verdict
from qualgate.report.comparison_text import seen_text
from qualgate.report.four_arms import choice_line
from qualgate.report.source import Source, stored_source
from qualgate.store import queries
from qualgate.store.database import open_store
from qualgate.store.labels import CaseOfRun, Label, labels
from qualgate.text.escaping import visible_line

FLIPS_SHOWN = 20  # right → wrong answers quoted for each variant


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The content of a run's report in any format; `report.formats.rendered` renders it."""

    run: queries.RunSummary
    flips: dict[str, tuple[queries.Flip, ...]]  # variant → the first cases that were right and are wrong, each once
    lost: dict[str, int] = field(default_factory=dict)  # variant → how many such cases there are, by the same rules
    flip_counts: dict[str, tuple[queries.FlipCount, ...]] = field(default_factory=dict)  # variant → by metric and set
    drift: dict[str, tuple[queries.PositionDrift, ...]] = field(default_factory=dict)  # variant → along the answers
    trajectories: dict[str, tuple[queries.Trajectories, ...]] = field(default_factory=dict)  # variant → by evalset
    readings: dict[str, tuple[queries.Readings, ...]] = field(default_factory=dict)  # the same, of two readings or more
    labels: dict[str, dict[CaseOfRun, Label]] = field(default_factory=dict)  # variant → case → a person's label
    source: Source = field(default_factory=Source)
    link: str = ""  # http(s) address of a page with more, for the format `comment`
    warn_only: bool = False  # the command that made it exits 0 whatever `exit` says

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """The newest verdict on each variant, in the gate file's order."""
        return tuple(stored.verdict for stored in self.run.verdicts)

    @property
    def policy(self) -> Policy:
        """The policy of the newest verdicts; the run's own if there are none."""
        return self.run.verdicts[0].policy if self.run.verdicts else self.run.policy

    @property
    def remarks(self) -> tuple[str, ...]:
        """Sentences to be read before the verdicts."""
        why = self.run.policy.decides_nothing
        sentences = (
            f"{why[0].upper()}{why[1:]}. It decides nothing." if why else "",
            f"The run was {self.run.pruned}."
            if self.run.pruned and not self.run.verdicts
            else "",  # else in each verdict
            self.decided_otherwise,
            *(f"Scoring {scoring.number}, {scoring.text}." for scoring in self.run.scorings),
        )
        return tuple(filter(None, sentences))

    @property
    def first_look(self) -> bool:
        """Whether the run is a first look without a policy: `qualgate compare`."""
        return self.run.policy.first_look

    @property
    def decided_otherwise(self) -> str:
        """A sentence if the newest verdicts use other rules than the run was made with; else ""."""
        first, policy = self.run.policy, self.policy
        if policy.nel and policy.nel != first.nel:
            return "Decided by a NeMo Evaluator policy given later, not by the rules that this run was made with."
        if not policy.nel and (policy.rules, policy.alpha, policy.nel) != (first.rules, first.alpha, first.nel):
            return "Decided by rules given later, not by those that this run was made with."
        return ""

    @property
    def four_arm(self) -> FourArm | None:
        """The choice among four arms, if there is one."""
        return next((verdict.four_arm for verdict in self.verdicts if verdict.four_arm is not None), None)

    @property
    def settled_by_choice(self) -> bool:
        """Whether an arm was chosen (perhaps pending review), so that failures of the other arms fail nothing."""
        return self.four_arm is not None and self.exit in (Exit.APPROVE, Exit.REVIEW)

    @property
    def exit(self) -> Exit:
        """The most severe code of all verdicts, or that of the four-arm choice; 13 for an incomplete run."""
        codes = {verdict.exit for verdict in self.verdicts} if self.four_arm is None else {self.four_arm.exit}
        return next((code for code in EXIT_ORDER if code in codes), Exit.INFRASTRUCTURE)

    def lines(self) -> list[str]:
        """Return one plain line per variant: name, verdict, reason; and one for the choice among four arms."""
        names = [visible_line(verdict.variant) for verdict in self.verdicts]
        width = max(map(len, names), default=0)
        lines = [
            f"{name:<{width}}  {v.word.upper():<9}  {visible_line(v.reasons[0])}{seen_text(v.seen)}"
            for name, v in zip(names, self.verdicts, strict=True)
        ]
        return lines if self.four_arm is None else [*lines, choice_line(self.four_arm)]


def load_report(
    url: str,
    run_id: str | None = None,
    source: Source | None = None,
    verdicts: tuple[queries.StoredVerdict, ...] = (),
) -> Report:
    """Load the report of a run, by default the newest, and check its stored evidence. UsageError: no such run.

    source: lines of the rules in today's gate file; by default those in the text stored with the run.
    verdicts: replace the stored ones.
    """
    with open_store(url, create=False) as store:
        chosen = run_id or queries.latest_run(store)
        run = queries.checked_run(store, chosen)
        run = replace(run, verdicts=verdicts or run.verdicts)
        intact = [stored.verdict for stored in run.verdicts if stored.verdict.exit != Exit.INTEGRITY and not run.pruned]
        variants = [verdict.variant for verdict in intact]  # of damaged evidence, or none, nothing is drawn
        sets = {item.name for item in run.evalsets}
        metrics = {verdict.variant: queries.judged_by(verdict, sets) for verdict in intact}
        return Report(
            run=run,
            flips={
                v: queries.flipped_cases(store, chosen, v, metrics[v], direction="lost", limit=FLIPS_SHOWN)
                for v in variants
            },
            lost={v: queries.count_flipped_cases(store, chosen, v, metrics[v])["lost"] for v in metrics},
            flip_counts={v: queries.flip_counts(store, chosen, v) for v in variants},
            drift={v: queries.drift_by_position(store, chosen, v) for v in variants},
            trajectories={v: by_set for v in variants if (by_set := queries.trajectories(store, chosen, v))},
            readings={v: by_set for v in variants if (by_set := queries.readings(store, chosen, v))},
            labels={v: {label.case: label for label in labels(store, chosen, v)} for v in variants},
            source=source or stored_source(run.gate_file, run.policy),
        )
