"""Where in the gate file a rule, a variant, the four arms stand: hosts show a finding beside a line of a file."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path

import yaml

from qualgate.records import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The gate file's path and the lines of what findings point at."""

    path: str = "gate.yaml"  # relative to the checkout
    lines: dict[str, int] = field(default_factory=dict)  # Rule.id → line, from 1; what is not known is not there
    variants: dict[str, int] = field(default_factory=dict)  # name → line
    arms: int | None = None  # of the four arms

    def line(self, rule: str) -> int | None:
        """Of the rule with this id."""
        return self.lines.get(rule)

    def variant(self, name: str) -> int | None:
        """Of the variant of this name."""
        return self.variants.get(name)


def stored_source(gate_file: str, policy: Policy) -> Source:
    """From the gate file's text as the run kept it: its rules stand there in the policy's order."""
    try:
        found = yaml.compose(gate_file, yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError):
        return Source()
    rules = _value(_value(found, "gate"), "rules")
    places = rules.value if isinstance(rules, yaml.SequenceNode) else []
    if len(places) != len(policy.rules):
        places = []
    variants = _lines(_value(found, "variants"))
    # Where no section names the arms, each variant says its own: what concerns them all is said beside `both`.
    both = variants.get(policy.four_arm.both) if policy.four_arm else None
    return Source(
        lines={rule.id: place.start_mark.line + 1 for rule, place in zip(policy.rules, places, strict=False)},
        variants=variants,
        arms=_lines(found).get("four_arm", both),
    )


def source_of(path: Path, policy: Policy) -> Source:
    """From a gate file as it lies there, whose rules were loaded with their lines."""
    try:
        found = stored_source(path.read_text(encoding="utf-8"), policy)
    except (OSError, UnicodeError):  # gone since it was loaded
        found = Source()
    return replace(found, path=_in_checkout(path), lines={rule.id: rule.line for rule in policy.rules if rule.line})


def _lines(node: yaml.Node | None) -> dict[str, int]:
    """Key → line of a mapping's keys."""
    if not isinstance(node, yaml.MappingNode):
        return {}
    return {str(key.value): key.start_mark.line + 1 for key, _ in node.value}


def _value(node: yaml.Node | None, name: str) -> yaml.Node | None:
    if not isinstance(node, yaml.MappingNode):
        return None
    return next((value for key, value in node.value if key.value == name), None)


def _in_checkout(path: Path) -> str:
    """Relative to the job's checkout, or to here; no more than its name when it lies elsewhere."""
    root = Path(os.environ.get("GITHUB_WORKSPACE") or os.environ.get("CI_PROJECT_DIR") or Path.cwd())
    absolute = path.absolute()
    return absolute.relative_to(root).as_posix() if absolute.is_relative_to(root) else absolute.name
