"""Write rules as lines of a gate file's list of rules."""

from __future__ import annotations

from collections.abc import Sequence

from qualgate.records import Rule

_NOT_WORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}  # YAML reads something else in them


def as_line(rule: Rule) -> str:
    """The rule as an entry of a gate file's list of rules, with a remark where that is another list than the first."""
    parts = [f"metric: {rule.metric}"]
    if rule.evalset is not None:
        parts.append(f"evalset: {_word(rule.evalset)}")
    elif rule.scope != "pooled":
        by = _word(rule.scope)
        parts.append(f"per: {{by: {by}, skip: {rule.skip}}}" if rule.skip else f"per: {by}")
    if rule.where is not None:
        label, _, value = rule.where.partition(":")
        parts.append(f"where: {{{label}: {_word(value)}}}")
    parts += [
        f"{name}: {value:g}"
        for name in ("max_drop", "max_relative_drop", "max", "min", "max_ratio", "percentile")
        if (value := getattr(rule, name)) is not None
    ]
    parts += [f"repeats: {rule.repeats}"] if rule.repeats != "mean" else []
    parts += [f"tier: {rule.tier}"] if rule.tier != "critical" else []
    return f"{{{', '.join(parts)}}}" + (f"  # of `against: {{{rule.against}: …}}`" if rule.against else "")


def rewritten_lines(
    becomes: Sequence[tuple[Rule, list[Rule]]], added: Sequence[Rule], final: Sequence[Rule]
) -> tuple[str, ...]:
    """Lines of the rules to remove, each with its replacements, then the new rules."""
    lines, open_ = [], list(final)
    for rule, new in becomes:
        if new == [rule] and rule in open_:
            open_.remove(rule)
            continue
        lines.append(f"# instead of - {as_line(rule)}")
        for replacement in new:
            if replacement in open_:
                open_.remove(replacement)
                lines.append(f"- {as_line(replacement)}")
    return (*lines, *(f"- {as_line(rule)}  # new" for rule in added if rule in open_))


def _word(text: str) -> str:
    """The text as YAML, quoted if need be."""
    if text.replace("_", "").replace("-", "").isalnum() and text[0].isalpha() and text.lower() not in _NOT_WORDS:
        return text
    shown = (c if c.isprintable() and c not in '"\\' else f"\\U{ord(c):08x}" for c in text)
    return f'"{"".join(shown)}"'
