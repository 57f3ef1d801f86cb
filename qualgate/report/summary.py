"""A stored run as a report: read from the store, rendered elsewhere. No statistic is computed here.

Nothing of the host or the clock is in it, so the same stored evidence gives the same bytes on every machine.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from qualgate.errors import EXIT_ORDER, Exit
from qualgate.escaping import visible_line
from qualgate.formatting import counted, seen_text, size_text
from qualgate.records import FourArm, Policy, Verdict
from qualgate.report.arms import choice_line
from qualgate.report.probes import probe_lines
from qualgate.report.served import drafts_line
from qualgate.report.source import Source, stored_source
from qualgate.report.spending import spent_lines
from qualgate.store import queries
from qualgate.store.database import open_store

LEFT_OUT_SHOWN = 12  # names of tensors for each arm
FLIPS_SHOWN = 20  # right → wrong answers quoted for each variant


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All that any format says of a run. `report.formats.rendered` makes a text of it."""

    run: queries.RunSummary
    flips: dict[str, tuple[queries.Flip, ...]]  # variant → the first cases that were right and are wrong, each once
    lost: dict[str, int] = field(default_factory=dict)  # variant → how many such cases there are, by the same rules
    flip_counts: dict[str, tuple[queries.FlipCount, ...]] = field(default_factory=dict)  # variant → by metric and set
    drift: dict[str, tuple[queries.PositionDrift, ...]] = field(default_factory=dict)  # variant → along the answers
    trajectories: dict[str, tuple[queries.Trajectories, ...]] = field(default_factory=dict)  # variant → by evalset
    readings: dict[str, tuple[queries.Readings, ...]] = field(default_factory=dict)  # the same, of two readings or more
    source: Source = field(default_factory=Source)
    warn_only: bool = False  # the command that made it exits 0 whatever `exit` says

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """The newest of each variant, in the gate file's order."""
        return tuple(stored.verdict for stored in self.run.verdicts)

    @property
    def policy(self) -> Policy:
        """By which the newest verdicts were made; the run's own when there is none."""
        return self.run.verdicts[0].policy if self.run.verdicts else self.run.policy

    @property
    def remarks(self) -> tuple[str, ...]:
        """What a reader must know before the verdicts, a sentence each."""
        trial = self.run.policy.trial
        said = (
            f"{trial.said[0].upper()}{trial.said[1:]}. It decides nothing." if trial else "",
            f"The run was {self.run.pruned}."
            if self.run.pruned and not self.run.verdicts
            else "",  # else in each verdict
            self.decided_otherwise,
            *(f"Scoring {one.number}, {one.text}." for one in self.run.scorings),
        )
        return tuple(filter(None, said))

    @property
    def first_look(self) -> bool:
        """Whether it was held against no policy: `qualgate compare`."""
        return self.run.policy.trial is not None and self.run.policy.trial.first_look

    @property
    def decided_otherwise(self) -> str:
        """That the newest verdicts are not by the rules the run was made with, as a sentence; "" where they are."""
        then, now = self.run.policy, self.policy
        if now.nel and now.nel != then.nel:
            return "Decided by a NeMo Evaluator policy given later, not by the rules that this run was made with."
        if not now.nel and (now.rules, now.alpha, now.nel) != (then.rules, then.alpha, then.nel):
            return "Decided by rules given later, not by those that this run was made with."
        return ""

    @property
    def of_arms(self) -> tuple[str, ...]:
        """A line for each arm that is served, with what its server says of itself and what probes of it show, for each
        whose answers were asked otherwise than planned, for each whose server counts its drafts, and for each whose
        files hold tensors that have no say in its answers; then what `memory` says."""
        lines = [visible_line(_declares(arm)) for arm in self.run.arms if arm.declared]
        lines += [
            visible_line(f"{arm.name}: started in {mode}: what its server answers beside should change no answer")
            for arm in self.run.arms
            if (mode := arm.invariant_mode)
        ]
        lines += map(visible_line, probe_lines(self.run.arms))
        made = [(arm.name, arm.footprint.generation) for arm in self.run.arms if arm.declared and arm.footprint]
        lines += [visible_line(f"{name}: {one.because}") for name, one in made if one.because]
        lines += [
            visible_line(f"{name}: answers were asked whole (`stream: false`) from there on: {one.asked_whole}")
            for name, one in made
            if one.asked_whole
        ]
        lines += filter(None, (visible_line(drafts_line(arm)) for arm in self.run.arms))
        lines += map(visible_line, spent_lines(self.run.arms, self.run.judging))
        for arm in self.run.arms:
            found = arm.footprint.left_out if arm.footprint else {}
            named = [f"{name} ({count})" for name, count in found.items()]
            more = [f"and {len(named) - LEFT_OUT_SHOWN} more"] if len(named) > LEFT_OUT_SHOWN else []
            if named:
                all_ = counted(sum(found.values()), "tensor")
                shown = ", ".join([*named[:LEFT_OUT_SHOWN], *more])
                lines.append(
                    visible_line(f"{arm.name}: {all_} of its files left out, no answer rests on them: {shown}")
                )
        return (*lines, *self.memory)

    @property
    def memory(self) -> tuple[str, ...]:
        """Lines of the most memory that was held while each arm ran, where that was measured."""
        made = {visible_line(arm.name): arm.footprint.generation for arm in self.run.arms if arm.footprint}
        kinds = {
            "most memory of its process, libraries and loading included": {
                name: one.peak for name, one in made.items()
            },
            "most memory of its GPU": {name: one.device_peak for name, one in made.items()},
        }
        return tuple(
            f"{what}: {', '.join(f'{name} {size_text(size)}' for name, size in held.items() if size)}"
            for what, held in kinds.items()
            if any(held.values())
        )

    @property
    def four_arm(self) -> FourArm | None:
        """Which arm to serve, where that was asked."""
        return next((verdict.four_arm for verdict in self.verdicts if verdict.four_arm is not None), None)

    @property
    def settled_by_choice(self) -> bool:
        """An arm was chosen to replace the baseline, if a person agrees: what the others did not pass fails nothing."""
        return self.four_arm is not None and self.exit in (Exit.APPROVE, Exit.REVIEW)

    @property
    def exit(self) -> Exit:
        """The true code of all verdicts, of four arms that of the choice; 13 for a run that is not complete."""
        codes = {verdict.exit for verdict in self.verdicts} if self.four_arm is None else {self.four_arm.exit}
        return next((code for code in EXIT_ORDER if code in codes), Exit.INFRASTRUCTURE)

    def lines(self) -> list[str]:
        """One plain line a variant: name, verdict, reason; and one for the choice among four arms."""
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
    """The report of a run, by default the newest, its stored evidence checked. UsageError: no such run.

    source: where the gate file lies today; by default its text as the run kept it says where the rules stand.
    verdicts: in place of those that the store has.
    """
    with open_store(url, create=False) as store:
        found = run_id or queries.latest_run(store)
        run = queries.checked_run(store, found)
        run = replace(run, verdicts=verdicts or run.verdicts)
        judged = [one.verdict for one in run.verdicts if one.verdict.exit != Exit.INTEGRITY and not run.pruned]
        variants = [verdict.variant for verdict in judged]  # of damaged evidence, or none, nothing is drawn
        sets = {item.name for item in run.evalsets}
        of = {verdict.variant: queries.judged_by(verdict, sets) for verdict in judged}
        return Report(
            run=run,
            flips={
                variant: queries.flipped_cases(store, found, variant, of[variant], direction="lost", limit=FLIPS_SHOWN)
                for variant in variants
            },
            lost={variant: queries.count_flipped_cases(store, found, variant, of[variant])["lost"] for variant in of},
            flip_counts={variant: queries.flip_counts(store, found, variant) for variant in variants},
            drift={variant: queries.drift_by_position(store, found, variant) for variant in variants},
            trajectories={
                variant: told for variant in variants if (told := queries.trajectories(store, found, variant))
            },
            readings={variant: told for variant in variants if (told := queries.readings(store, found, variant))},
            source=source or stored_source(run.gate_file, run.policy),
        )


def _declares(arm: queries.ArmLine) -> str:
    """What is known of a served arm's server, and by whom."""
    if arm.spec.served is None or not arm.spec.served.command:
        return f"{arm.name}: {arm.weights}, which declares and nobody here checked: {arm.declared}"
    files = arm.spec.served.weights
    held = f" over model files of sha256 {files[:12]}" if files else ""
    told = "its command, and what it declares and nobody here checked"
    return f"{arm.name}: {arm.weights}{held}; {told}: {arm.declared}"
