"""Write docs/reference/ from the code: `python -m docs.generate`. A test compares the pages with this output."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import typer
from pydantic import BaseModel

from docs.formulas import SPECULATION
from qualgate.cli import app
from qualgate.cli.doctor import SERVED
from qualgate.config.arms import Baseline, DraftingEntry, FourArmEntry, Variant
from qualgate.config.budget import BudgetEntry, PriceEntry
from qualgate.config.evalset_refs import EXTERNAL_KEYS, EXTERNAL_SCHEMA, LM_EVAL_KEYS, LM_EVAL_SCHEMA
from qualgate.config.judge import JudgeEntry
from qualgate.config.load import LoadEntry
from qualgate.config.model import GateFileModel, Generation, Workers
from qualgate.config.nightly import DigestEntry, Hook, MailEntry, NightlyGate, NightlyModel, ScheduleEntry
from qualgate.config.prices import PriceFile
from qualgate.config.rules import Gate, Per, QuarantineEntry, RuleEntry, SloEntry, Where
from qualgate.config.speculation import CascadeEntry, DraftEntry, SpeculationEntry
from qualgate.documents import plain_number
from qualgate.evalsets import CalibrationFile, EvalsetFile
from qualgate.quant.agreement.config_keys import BOOKKEEPING, READ
from qualgate.quant.agreement.table import NAMES, READINGS, VERSIONS
from qualgate.quant.recipes import BITS, OPTIONS
from qualgate.records.metrics import METRICS, Metric

PAGES = Path(__file__).parent / "reference"
MADE = "<!-- Made by `python -m docs.generate` from the code; edit it there. -->"

# Heading, the model whose keys it lists, and an example.
SECTIONS: tuple[tuple[str, type[BaseModel], str], ...] = (
    ("The whole file", GateFileModel, ""),
    ("baseline", Baseline, "baseline: {model: ./models/support, dtype: bfloat16}"),
    ("variants", Variant, "variants:\n  int8: {quantize: int8}\n  awq:  {model: ./models/support-awq}"),
    ("variants.NAME.speculation", SpeculationEntry, "variants:\n"
     "  drafted: {speculation: {draft: ngram}}\n"
     "  both:    {quantize: int4, speculation: {draft: {quantize: mxfp4}, tokens: 5}}"),
    ("variants.NAME.speculation.draft", DraftEntry,
     "variants:\n  drafted: {speculation: {draft: {model: ./models/support-small, quantize: int8}}}"),
    ("variants.NAME.speculation.draft.under", CascadeEntry,
     "variants:\n  drafted: {speculation: {draft: {quantize: mxfp4, under: {draft: ngram, tokens: 8}}, tokens: 4}}"),
    ("generation", Generation, "generation: {temperature: 0.7, seed: 5, repeats: 4}"),
    ("gate", Gate, "gate:\n  alpha: 0.05\n  rules: [{metric: exact_match, max_drop: 0.02}]\n  max_age: 7d"),
    ("gate.rules", RuleEntry, "gate:\n  rules:\n    - {metric: exact_match, max_drop: 0.02}\n"
     "    - {metric: exact_match, per: evalset, max_drop: 0.05}\n    - {metric: latency.tpot, max_ratio: 1.25}"),
    (
        "gate.rules.per", Per,
        "gate: {rules: [{metric: exact_match, per: {by: task, skip: below_floor}, max_drop: 0.1}]}",
    ),
    ("gate.rules.where", Where, "gate: {rules: [{metric: exact_match, where: {tag: german}, max_drop: 0.05}]}"),
    ("gate.quarantine", QuarantineEntry, "gate:\n  rules: [{metric: exact_match, max_drop: 0.02}]\n  quarantine:\n"
     "    - {case: c-17, evalset: support, owner: ana, expires: 2026-12-31, reason: two references are right}"),
    ("slo", SloEntry, "slo: {ttft: 0.5, e2e: 10}"),
    ("judge", JudgeEntry,
     "judge:\n  endpoint: http://127.0.0.1:8100/v1\n  model: judge-70b\n  rubric: The answer that helps is "
     "better.\n  labels: labels.jsonl\ngate:\n  rules:\n    - {metric: exact_match, max_drop: 0.02}\n    - {metric: "
     "judge.win, max_drop: 0.05}"),
    ("load", LoadEntry,
     "load:\n  concurrency: [1, 4, 16]\n  rate: [2, 8]\n  seconds: 60\n  warmup: 10\n  cooldown: 10"),
    ("budget", BudgetEntry,
     'variants: {prod: {endpoint: "http://127.0.0.1:8000/v1", model: prod}}\n'
     "budget: {max_tokens_total: 2000000, max_cost: 5, currency: EUR, price: {prompt: 0.15, answer: 0.6}}"),
    ("budget.price", PriceEntry,
     'variants:\n  prod: {endpoint: "http://127.0.0.1:8000/v1", model: prod, price: {prompt: 0.15, answer: 0.6}}'),
    ("four_arm", FourArmEntry, "four_arm: {parity: identical, min_saving: 0.05}"),
    ("four_arm.drafting.NAME", DraftingEntry,
     "four_arm: {drafting: {speculation: {proposed: 120000, accepted: 84000}}}"),
    ("workers", Workers, "workers: {count: 2, devices: auto}"),
)  # fmt: skip
FILES: tuple[tuple[str, type[BaseModel], str], ...] = (
    ("A price table", PriceFile, 'version: "2026-11"\ncurrency: EUR\nprompt_token: 0.0000002\noutput_token: 0.000001'),
    ("An evalset's NAME.yaml", EvalsetFile, 'name: support\nversion: "1"\nmetrics: [exact_match, json.schema]'),
    ("A calibration set's NAME.yaml", CalibrationFile, 'name: ours\nversion: "1"\nkind: calibration'),
)
NIGHTLY: tuple[tuple[str, type[BaseModel], str], ...] = (
    ("The whole file", NightlyModel, ""),
    ("schedule", ScheduleEntry, ""),
    ("gates.NAME", NightlyGate, ""),
    ("digest", DigestEntry, ""),
    ("digest.slack, digest.webhook", Hook, ""),
    ("digest.mail", MailEntry, ""),
)
LIMITS = {"minimum": "from", "exclusiveMinimum": "over", "maximum": "to", "exclusiveMaximum": "below"}
WORDS = {"string": "text", "integer": "whole number", "number": "number", "boolean": "`true` or `false`",
         "object": "mapping", "array": "list"}  # fmt: skip


def pages() -> dict[str, str]:
    """Return each page of docs/reference/ by file name."""
    return {
        "gate-file.md": _gate_file(),
        "nightly-file.md": _nightly_file(),
        "metrics.md": _metrics(),
        "commands.md": _commands(),
        "platforms.md": _platforms(),
        "folders.md": _folders(),
    }


def _page(title: str, lead: str, lines: Iterable[str]) -> str:
    return "\n".join((MADE, "", f"# {title}", "", lead, "", *lines)).rstrip() + "\n"


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    head = list(head)
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', '&#124;') for cell in row)} |"
    yield ""


# ------------------------------------------------------------------------------------------------ the gate file


def _gate_file() -> str:
    lead = (
        "Every key of a gate file, and of the files it names. An unknown key, a misspelt metric, a duplicate key or a "
        "contradiction is refused with its line and the nearest right name (exit 64). `qualgate config check "
        "gate.yaml` checks a file, `qualgate config schema` prints the JSON Schema for your editor."
    )
    lines: list[str] = []
    for name, model, example in SECTIONS:
        lines += _section(f"`{name}`" if model is not GateFileModel else name, model, example)
        if model is Variant:
            lines += _recipe()
        if model is CascadeEntry:  # the last of the arms'
            lines += _lm_eval()
            lines += _external()
    lines += ["# The files it names", ""]
    for name, model, example in FILES:
        lines += _section(name, model, example)
    return _page("The gate file, key by key", lead, lines)


def _nightly_file() -> str:
    lead = (
        "Every key of a nightly file, which `qualgate nightly` reads; see [nights](../nightly.md). What is unknown or "
        "contradicts itself is refused with its line and the nearest right name (exit 64)."
    )
    lines: list[str] = []
    for name, model, example in NIGHTLY:
        lines += _section(f"`{name}`" if model is not NightlyModel else name, model, example)
    return _page("The nightly file, key by key", lead, lines)


def _section(title: str, model: type[BaseModel], example: str) -> Iterator[str]:
    yield from (f"## {title}", "")
    if model.__doc__:
        yield from (" ".join(model.__doc__.split()), "")
    if example:
        yield from ("```yaml", example, "```", "")
    schema = model.model_json_schema()
    properties = (schema if "properties" in schema else schema["$defs"][model.__name__])["properties"]
    yield from _table(
        ("key", "meaning", "what it may be", "default", "example"),
        (
            (f"`{key}`", *_meaning(field.description or "", allowed(properties[key]), _default(field)))
            for key, field in model.model_fields.items()
        ),
    )
    if later := getattr(model, "later", ()):
        yield from (f"Not in this version, and refused as such: {_listed(later)}.", "")


def _recipe() -> Iterator[str]:
    yield from ("## `variants.NAME.quantize`", "")
    yield f"A method's name alone, or a mapping with `method` and options. Methods: {_listed(BITS)}."
    yield from (
        "",
        "```yaml",
        "variants:\n  gptq: {quantize: {method: gptq, bits: 4, calibration: calibration}}",
        "```",
        "",
    )
    yield from _table(
        ("key", "meaning", "of the methods", "values", "example"),
        (
            (f"`{key}`", meaning, _listed(option.methods), _listed(map(_word, option.values)) or "–", example)
            for key, option in OPTIONS.items()
            for meaning, example in [parts(option.meaning)]
        ),
    )


def _lm_eval() -> Iterator[str]:
    yield from ("## `evalsets`: a task of lm-eval's", "")
    yield from ("Needs the extra [`harness`](../getting-started.md#extras).", "")
    yield from ("```yaml", "evalsets: [{lm_eval: gsm8k, filter: strict-match, limit: 200}]", "```", "")
    yield from _keys({key: description for key, (_, description) in LM_EVAL_KEYS.items()}, LM_EVAL_SCHEMA)


def _external() -> Iterator[str]:
    yield from ("## `evalsets`: cases that others hold", "", "Of [score files](../score-files.md) alone.", "")
    yield from ("```yaml", "evalsets: [{name: support, cases: external}]", "```", "")
    yield from _keys(EXTERNAL_KEYS, EXTERNAL_SCHEMA)


def _keys(descriptions: dict[str, str], schema: dict[str, Any]) -> Iterator[str]:
    yield from _table(
        ("key", "meaning", "what it may be", "example"),
        (
            (f"`{key}`", meaning, allowed(schema["properties"][key]), example)
            for key, text in descriptions.items()
            for meaning, example in [parts(text)]
        ),
    )


def parts(description: str) -> tuple[str, str]:
    """Split a key's description, "Meaning. Example: `key: value`", into meaning and example."""
    meaning, _, example = " ".join(description.split()).partition(" Example: ")
    return meaning, example


def _meaning(description: str, may_be: str, default: str) -> tuple[str, ...]:
    meaning, example = parts(description)
    return meaning, may_be, default, example


def _default(field: Any) -> str:
    if field.is_required():
        return "needed"
    value = field.get_default(call_default_factory=True)
    if value is None or isinstance(value, BaseModel) or value == []:
        return "–"
    return f"`{_word(value)}`"


def allowed(schema: dict[str, Any]) -> str:
    """Describe in words the values that a JSON Schema allows."""
    if "$ref" in schema or "allOf" in schema:
        return "mapping, see below"
    for key in ("oneOf", "anyOf"):
        if key in schema and "type" not in schema:
            return "; ".join(dict.fromkeys(map(allowed, schema[key])))
    if "const" in schema:
        return f"`{_word(schema['const'])}`"
    if "enum" in schema:
        return "a metric" if schema["enum"] == list(METRICS) else _listed(map(_word, schema["enum"]))
    if "properties" in schema:
        method = schema["properties"].get("method", {}).get("const")
        return "mapping, see below" if method or schema["properties"].keys() & {"lm_eval", "cases"} else "mapping"
    kind = WORDS.get(schema.get("type", ""), "")
    if kind == "list" and "items" in schema:
        return f"list of: {allowed(schema['items'])}"
    limits = " ".join(f"{word} {_number(schema[key])}" for key, word in LIMITS.items() if key in schema)
    special = " or ".join(allowed(option) for option in schema.get("anyOf", ()))
    return " ".join(filter(None, (kind, f"({special})" if special else limits))).strip() or "from … to …"


def _number(value: float) -> str:
    return "2^63" if value == 2**63 else plain_number(value) if isinstance(value, float) else f"{value:,}"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _word(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


# ------------------------------------------------------------------------------------------------------ metrics

KINDS = {
    "quality": "Quality: paired case by case; this kind and the next can approve",
    "likelihood": "Likelihood: perplexities of the same texts in two logs of lm-eval's",
    "drift": "Drift and parity: how far the variant's answers and tokens are from the baseline's",
    "length": "Length of thoughts",
    "latency": "Time",
    "cost": "Cost",
    "service": "Service",
    "arm": "Facts of a whole variant, measured while it was made or loaded",
    "stability": "Stability of answers",
    "judged": "What a judge prefers: paired case by case, and never alone enough to approve",
}
RULE = {"max_drop": "0.02", "max": "0.05", "min": "0.9", "max_ratio": "1.1"}
RULE_OF = {  # where another number makes more sense
    "drift.kl_p99": "0.5",
    "drift.kl_max": "5",
    "drift.top1_agreement": "0.98",
    "drift.length_ratio": "1.2",
    "reasoning.tokens": "1.2",
    "cost_per_accepted_answer": "0.95",
    "memory.weights": "0.6",
    "coverage.strata": "0.5",
    **dict.fromkeys(("lm_eval.word_perplexity", "lm_eval.byte_perplexity", "lm_eval.bits_per_byte"), "1.02"),
    "lm_eval.perplexity": "1.02",
    "stability.sqnr": "20",
    "judge.win": "0.05",
}


def _metrics() -> str:
    lead = (
        "The closed list of metrics a rule may name. `qualgate config metrics` prints it, with `--json` for machines. "
        "A rule sets one of the metric's bounds. *Everywhere* means that a rule may name it for any evalset; other "
        "quality metrics are scored where the evalset names them."
    )
    lines: list[str] = []
    for kind, title in KINDS.items():
        lines += [f"## {title}", ""]
        of_kind = [metric for metric in METRICS.values() if metric.kind == kind]
        lines += _table(("metric", "meaning", "unit", "better", "bounds", "example of a rule"), map(_metric, of_kind))
    lines += [
        "## Speculation",
        "",
        "Told of every arm that our own engine drafts for, by level of a cascade, in `verdicts[].speculated` of the "
        "JSON report. Sums over its answers, with one-sided bounds from 2,000 draws of whole prompts; a value that "
        "cannot be is null, with the reason. No rule can name them in this version.",
        "",
    ]
    rows = ((f"`{number.name}`", number.formula, number.meaning) for number in SPECULATION)
    lines += _table(("number", "formula", "meaning"), rows)
    return _page("Metrics", lead, lines)


def _folders() -> str:
    lead = (
        "What a folder can say twice, and how each server reads it: "
        + ", ".join(f"{NAMES[server]} {version}" for server, version in VERSIONS.items())
        + ". Where servers differ the folder is refused, unless `read_as` of the arm names one of them."
    )
    head = ("of", "where", *NAMES.values(), "source")
    rows = (
        (r.formats, r.situation, *(text or "—" for text in (r.transformers, r.vllm, r.sglang, r.llama_cpp)), r.source)
        for r in READINGS.values()
    )  # fmt: skip
    lines = [*_table(head, rows), "## Keys of a quantization config", ""]
    lines += [
        "Those that decide a reading, by format. Any other is refused, unless it is without a say or allowed.",
        "",
    ]
    lines += _table(("format", "keys"), ((f"`{name}`", _codes(keys)) for name, keys in READ.items() if keys))
    return _page("How servers read a folder", lead, [*lines, f"Without a say: {_codes(BOOKKEEPING)}."])


def _codes(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _metric(metric: Metric) -> tuple[str, ...]:
    bound = metric.bounds[0]
    bounds = _listed(metric.bounds) + (" (everywhere)" if metric.everywhere else "")
    rule = f"`{{metric: {metric.name}, {bound}: {RULE_OF.get(metric.name, RULE[bound])}}}`"
    return f"`{metric.name}`", metric.meaning, metric.unit, metric.better, bounds, rule


# ----------------------------------------------------------------------------------------------------- commands


def _commands() -> str:
    lead = (
        "Every command and option, as `--help` tells them. Where a command has `--json`, machines get what people see."
    )
    root: Any = typer.main.get_command(app)
    lines: list[str] = []
    for name, command in sorted(_leaves(root, "qualgate")):
        lines += [f"## `{name}`", "", " ".join((command.help or "").split()), ""]
        lines += ["```text", f"{name} {_usage(command)}".rstrip(), "```", ""]
        options = [option for option in command.params if option.param_type_name == "option" and not option.hidden]
        if options:
            lines += _table(("option", "meaning", "default"), ((_flags(o), o.help or "", _given(o)) for o in options))
    lines += ["## Exit codes", "", "```text", *(line.strip() for line in (root.epilog or "").splitlines()[2:]), "```"]
    return _page("Commands", lead, lines)


def _leaves(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    below = getattr(command, "commands", None)
    if below is None:
        yield name, command
        return
    for key, child in below.items():
        yield from _leaves(child, f"{name} {key}")


def _usage(command: Any) -> str:
    arguments = [argument for argument in command.params if argument.param_type_name == "argument"]
    shown = [argument.metavar or argument.name.upper() for argument in arguments]
    return " ".join([*shown, "[OPTIONS]"])


def _flags(option: Any) -> str:
    taken = "" if option.is_flag else f" {option.metavar or option.name.upper()}"
    return f"`{option.opts[0]}{taken}`"


def _given(option: Any) -> str:
    return f"`{option.default}`" if option.default not in (None, False, "", []) and not option.is_flag else "–"


# ---------------------------------------------------------------------------------------------------- platforms


def _platforms() -> str:
    lead = (
        "What each operating system serves, as `qualgate doctor` knows it. Only Linux is tested; of the others this is "
        "read from the code."
    )
    rows = ((row.what, row.by, row.macos or "as on Linux", row.windows or "as on Linux") for row in SERVED)
    return _page("What each system serves", lead, _table(("what", "on Linux, by", "on macOS", "on Windows"), rows))


def main() -> None:
    """Write every page of the reference."""
    PAGES.mkdir(exist_ok=True)
    for name, text in pages().items():
        (PAGES / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
