"""Every command, in the order of `qualgate --help`."""

from __future__ import annotations

import typer

from qualgate.cli import (
    again,
    cluster,
    comparing,
    config,
    db,
    deciding,
    drafting,
    drift,
    evalsets,
    intake,
    judging,
    loading,
    looking,
    making,
    nightly,
    reviewing,
    scoring,
    service,
    signing,
    starting,
    watching,
)
from qualgate.cli.help import Plain

HELP = {"help_option_names": ["-h", "--help"]}
COMMANDS = (
    starting.init,
    judging.demo,
    judging.run,
    judging.plan,
    nightly.nightly,
    nightly.trend,
    comparing.compare,
    deciding.gate,
    deciding.report,
    cluster.submit,
    cluster.status,
    cluster.wait,
    cluster.cancel,
    loading.load,
    looking.runs,
    looking.answers,
    looking.flips,
    looking.diff,
    reviewing.label,
    reviewing.labels,
    reviewing.preferences,
    again.again,
    intake.intake,
    scoring.score,
    scoring.rescore,
    drift.drift,
    service.dashboard,
    signing.attest,
    signing.verify,
    watching.metrics,
    making.inspect,
    service.doctor,
    making.quantize,
)
GROUPS = {
    "config": config.config_app,
    "evalset": evalsets.evalset_app,
    "draft": drafting.draft_app,
    "db": db.db_app,
    "audit": signing.audit_app,
    "key": signing.key_app,
    "people": reviewing.people_app,
}


def add_commands(app: typer.Typer) -> None:
    """Add every command and every group of commands."""
    for command in COMMANDS:
        app.command()(command)
    for name, group in GROUPS.items():
        app.add_typer(group, name=name)
    for group in (app, *GROUPS.values()):
        for registered in group.registered_commands:
            registered.cls, registered.context_settings = Plain, HELP
