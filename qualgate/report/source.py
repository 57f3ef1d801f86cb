"""Lines of rules, variants and the four arms in the gate file: hosts show a finding beside a line of a file."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path

import yaml

from qualgate.records import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The gate file's path, and the lines that findings point at."""

    path: str = "gate.yaml"  # relative to the checkout
    lines: dict[str, int] = field(default_factory=dict)  # Rule.id → line, from 1; unknown ones are absent
    variants: dict[str, int] = field(default_factory=dict)  # name → line
    arms: int | None = None  # of the four arms

    def line(self, rule: str) -> int | None:
        """Return the line of the rule with this id."""
        return self.lines.get(rule)

    def variant(self, name: str) -> int | None:
        """Return the line of the variant with this name."""
        return self.variants.get(name)


def stored_source(gate_file: str, policy: Policy) -> Source:
    """Find the lines in the gate file's text as stored with the run; its rules are in the policy's order."""
    try:
        root = yaml.compose(gate_file, yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError):
        return Source()
    gate = _value(root, "gate")
    against = [_value(_value(gate, "against"), name) for name in policy.references]
    lists = [_value(section, "rules") for section in (gate, *against)]
    rule_nodes = [rule for rules in lists if isinstance(rules, yaml.SequenceNode) for rule in rules.value]
    if len(rule_nodes) != len(policy.rules):
        rule_nodes = []
    variants = _lines(_value(root, "variants"))
    # Without a section for the arms each variant declares its own; findings on all four then go beside `both`.
    both_line = variants.get(policy.four_arm.both) if policy.four_arm else None
    return Source(
        lines={
            rule.id: rule_node.start_mark.line + 1 for rule, rule_node in zip(policy.rules, rule_nodes, strict=False)
        },
        variants=variants,
        arms=_lines(root).get("four_arm", both_line),
    )


def source_of(path: Path, policy: Policy) -> Source:
    """Find the lines in a gate file on disk, whose rules were loaded with their lines."""
    try:
        source = stored_source(path.read_text(encoding="utf-8"), policy)
    except (OSError, UnicodeError):  # gone since it was loaded
        source = Source()
    return replace(source, path=_in_checkout(path), lines={rule.id: rule.line for rule in policy.rules if rule.line})


def _lines(node: yaml.Node | None) -> dict[str, int]:
    """Return the line of each key of a mapping."""
    if not isinstance(node, yaml.MappingNode):
        return {}
    return {str(key.value): key.start_mark.line + 1 for key, _ in node.value}


def _value(node: yaml.Node | None, name: str) -> yaml.Node | None:
    if not isinstance(node, yaml.MappingNode):
        return None
    return next((value for key, value in node.value if key.value == name), None)


def _in_checkout(path: Path) -> str:
    """Return the path relative to the job's checkout or the current folder; the bare name if it is outside."""
    root = Path(os.environ.get("GITHUB_WORKSPACE") or os.environ.get("CI_PROJECT_DIR") or Path.cwd())
    absolute = path.absolute()
    return absolute.relative_to(root).as_posix() if absolute.is_relative_to(root) else absolute.name
