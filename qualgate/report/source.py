"""Where in the gate file a rule stands: hosts show a finding beside a line of a file."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from qualgate.records import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    path: str = "gate.yaml"  # relative to the checkout
    lines: dict[str, int] = field(default_factory=dict)  # Rule.id → line, from 1

    def line(self, rule: str) -> int:
        return self.lines.get(rule, 1)


def stored_source(gate_file: str, policy: Policy) -> Source:
    """From the gate file's text as the run kept it: its rules stand there in the policy's order."""
    try:
        found = yaml.compose(gate_file, yaml.SafeLoader)
    except yaml.YAMLError:
        return Source()
    rules = _value(_value(found, "gate"), "rules")
    places = rules.value if isinstance(rules, yaml.SequenceNode) else []
    if len(places) != len(policy.rules):
        return Source()
    return Source(lines={rule.id: place.start_mark.line + 1 for rule, place in zip(policy.rules, places, strict=True)})


def source_of(path: Path, policy: Policy) -> Source:
    """From a gate file as it lies there, loaded with its lines."""
    return Source(path=_in_checkout(path), lines={rule.id: max(1, rule.line) for rule in policy.rules})


def _value(node: yaml.Node | None, name: str) -> yaml.Node | None:
    if not isinstance(node, yaml.MappingNode):
        return None
    return next((value for key, value in node.value if key.value == name), None)


def _in_checkout(path: Path) -> str:
    """Relative to the job's checkout, or to here; no more than its name when it lies elsewhere."""
    root = Path(os.environ.get("GITHUB_WORKSPACE") or os.environ.get("CI_PROJECT_DIR") or Path.cwd())
    absolute = path.absolute()
    return absolute.relative_to(root).as_posix() if absolute.is_relative_to(root) else absolute.name
