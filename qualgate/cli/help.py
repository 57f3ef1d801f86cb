"""Help pages: commands in groups, the most needed first, and values named as people know them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from typer.core import TyperCommand, TyperGroup

from qualgate.errors import close_names

GROUPS = {
    "Start here": ("init", "plan", "run", "config", "doctor", "demo"),
    "Judge": ("gate", "score", "rescore", "compare", "intake", "nightly", "trend", "preferences"),
    "Look": ("runs", "report", "answers", "flips", "diff", "again", "drift", "dashboard", "label", "labels"),
    "Sign": ("people", "key", "audit", "attest", "verify"),
    "Load": ("load",),
    "Operate": ("db", "submit", "status", "wait", "cancel", "metrics"),
    "Develop": ("evalset", "inspect", "quantize", "draft"),
}
_VALUES = {str: "TEXT", list[str]: "TEXT", int: "N", float: "X", Path: "PATH", list[Path]: "PATH"}


class Grouped(TyperGroup):
    """The program's command group: lists commands by `GROUPS`, and those in no group last."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write each group as a section of its own."""
        grouped = {name for names in GROUPS.values() for name in names}
        ungrouped = {"Others": tuple(name for name in self.list_commands(ctx) if name not in grouped)}
        width = max(map(len, self.list_commands(ctx)))
        for title, names in (GROUPS | ungrouped).items():
            rows = []
            for name in names:
                command = self.get_command(ctx, name)
                if command is not None and not command.hidden:
                    rows.append((f"{name:<{width}}", command.get_short_help_str(formatter.width - width - 6)))
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


class Plain(TyperCommand):
    """A command whose options show TEXT, N or PATH unless they set a metavar."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        for option in self.params:
            kind = getattr(getattr(option, "type_descriptor", None), "annotation", None)
            if option.metavar is None and kind in _VALUES and option.param_type_name == "option":
                option.metavar = _VALUES[kind]


def suggest_option(error: Any) -> None:
    """Add the command's nearest option to the parser's error on an unknown one."""
    context = getattr(error, "ctx", None)
    if context is None or not (hasattr(error, "option_name") and hasattr(error, "possibilities")):
        return
    options = (option for option in context.command.params if not getattr(option, "hidden", False))
    names = (name for option in options for name in option.opts if name.startswith("--"))
    nearest = close_names(error.option_name, names, cutoff=0.7)
    error.possibilities = None
    if nearest:
        error.message += f". Did you mean {nearest[0]}?"
