"""Checks of a gate file against the models and evalsets that it names, before anything is generated."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from qualgate import evalsets
from qualgate.config import GateFile
from qualgate.engine.arithmetic import check_arithmetic
from qualgate.engine.check_weights import check_weights
from qualgate.engine.device import choose_device, packs
from qualgate.engine.gpus import check_alike
from qualgate.engine.prompts import Renderer
from qualgate.errors import NotInThisVersion, UsageError
from qualgate.errors.extras import install_command
from qualgate.evalsets.calibration_sets import check_leaks
from qualgate.pipeline.folder_notes import folder_notes
from qualgate.quant.agreement.architecture_keys import architecture_differences
from qualgate.quant.agreement.stop_tokens import by_server
from qualgate.quant.agreement.templates import differing_template
from qualgate.quant.model_folder import ModelFolder
from qualgate.quant.shapes import check_fits
from qualgate.quant.tokenizer_files import differing_beside, tokenizer_difference
from qualgate.records import ArmSpec, Evalset, Prompt, Rule
from qualgate.records.arms import ReadAs
from qualgate.records.metrics import METRICS
from qualgate.text.numbers import counted


def _refuse_on_gpu(arm: ArmSpec, gate: GateFile) -> None:
    """Raise NotInThisVersion for a KV cache or arithmetic other than float32 on a device that runs padded batches: a
    GPU without Triton."""
    if arm.kv_cache != "float32" or arm.arithmetic != "float32":
        if packs(choose_device(gate.devices)):
            return
        option = "`arithmetic: served`" if arm.arithmetic != "float32" else f"`kv_cache: {arm.kv_cache}`"
        raise NotInThisVersion(
            f"{gate.path.name}: {arm.name} is to run with {option}, and models run in padded batches on a GPU "
            "without Triton, which do not have it. Write `workers: {devices: cpu}`, or `float32`, or install it: "
            f"{install_command('kernels')}"
        )


def check_arms(
    gate: GateFile, folders: Mapping[str, ModelFolder], sets: Sequence[Evalset], tell: Callable[[str], None]
) -> None:
    """Check every arm, and report what servers read differently in all folders alike.

    Raises UsageError for an arm whose weights cannot run as requested, that would be asked other questions than the
    baseline, or whose calibration set holds cases of the run or cannot be read by the baseline.
    """
    checked: set[str] = {""}
    if isinstance(gate.devices, tuple):
        check_alike(gate.devices)
    for arm in (gate.baseline, *gate.variants):
        if bool(arm.reads) != bool(gate.baseline.reads):
            by_messages, by_tokens = (arm, gate.baseline) if gate.baseline.reads else (gate.baseline, arm)
            raise UsageError(
                f"{by_messages.name} is asked by messages, which its server puts through a template of its own, and "
                f"{by_tokens.name} by tokens made here: that is not the same question. Give {by_messages.name} the "
                "same `tokenizer: FOLDER`, and it is asked by the same tokens."
            )
        if arm.served is not None:
            if arm.reads:
                check_same_question(arm, folders[arm.reads], folders[gate.baseline.reads])
            continue
        check_weights(arm, folders[arm.model], quantized_baseline=gate.quantized_baseline)
        check_arithmetic(arm, folders[arm.model])
        _refuse_on_gpu(arm, gate)
        check_same_question(arm, folders[arm.model], folders[gate.baseline.model])
        if arm.quantize:
            check_fits(folders[arm.model].shards, arm.quantize)
        learned_by = arm.quantize or arm
        if learned_by.calibration not in checked:
            check_leaks(learned_by, sets)
            check_calibration(learned_by.calibration, folders[gate.baseline.model], "the baseline")
            checked.add(learned_by.calibration)
    for line in folder_notes([(arm.name, folders[arm.reads]) for arm in (gate.baseline, *gate.variants) if arm.reads]):
        tell(line)


def check_same_question(arm: ArmSpec, variant: ModelFolder, baseline: ModelFolder) -> None:
    """Raise UsageError if the arm's folder tokenizes a case differently from the baseline's or ends answers elsewhere:
    such answers are never compared (see `gate.evidence.checks`), so they need not be generated."""
    _check_stops(arm, variant, baseline)
    template, template_remedy = differing_template(variant.files, baseline.files)
    copied = "copy tokenizer.json and tokenizer_config.json from there"
    for part, variant_value, baseline_value, remedy in (
        ("tokenizer", variant.tokenizer_sha256, baseline.tokenizer_sha256, copied),
        (template, variant.template_sha256, baseline.template_sha256, template_remedy),
        ("scaling of positions (rope)", variant.rope, baseline.rope, "copy rope_scaling of config.json from there"),
    ):
        if variant_value != baseline_value:
            key = tokenizer_difference(variant.files, baseline.files) if part == "tokenizer" else ""
            differs = f" ({key})" if key else ""
            raise UsageError(
                f"variant {arm.name}: the {part} in {variant.path} is not that of the baseline {baseline.path}, so the "
                f"two would not be asked the same question and nothing could be compared{differs}. If the variant was "
                f"made from this baseline, {remedy}; else name the baseline that it was made from."
            )
    if name := differing_beside(variant.files, baseline.files):
        raise UsageError(
            f"variant {arm.name}: {name} in {variant.path} is not that of the baseline {baseline.path}, so a server "
            "that reads it in place of tokenizer.json would ask the two other tokens. Copy it from there, or remove "
            "it if no server reads it."
        )


def _check_stops(arm: ArmSpec, variant: ModelFolder, baseline: ModelFolder) -> None:
    """Raise UsageError if variant and baseline stop at different tokens as any server would read their folders. Only
    the server of `read_as` counts if the variant has one; llama.cpp counts only for GGUF folders."""
    variant_stops, baseline_stops = variant.stops_by_server, baseline.stops_by_server
    servers: list[ReadAs] = [name for name in variant_stops if name != "llama.cpp" or variant.header]
    servers = [variant.read_as] if variant.read_as else servers
    differing: list[ReadAs] = [name for name in servers if variant_stops[name] != baseline_stops[name]]
    if not differing and variant.stop_ids != baseline.stop_ids:
        raise UsageError(
            f"variant {arm.name}: {variant.path} is read as {variant.read_as or 'all servers'} would read it and the "
            f"baseline {baseline.path} as {baseline.read_as or 'all servers'} would, so their answers would end at "
            "different tokens. Write the same `read_as` for both arms."
        )
    if not differing:
        return
    agreeing: list[ReadAs] = [name for name in servers if name not in differing]
    either = f"; or write `read_as: {agreeing[0]}` for both arms if they are served by it alone" if agreeing else ""
    raise UsageError(
        f"variant {arm.name}: the set of stop tokens in {variant.path} is not that of the baseline {baseline.path} as "
        f"{', '.join(differing)} would read it: {by_server({name: variant_stops[name] for name in differing})} against "
        f"{by_server({name: baseline_stops[name] for name in differing})}. Its answers would end elsewhere, and "
        "nothing could be compared. If the variant was made from this baseline, copy generation_config.json from "
        f"there, and the eos_token_id of config.json{either}."
    )


def with_config_differences(gate: GateFile, folders: Mapping[str, ModelFolder]) -> GateFile:
    """Return the gate file with each variant's architecture differences, see `check_same_architecture`."""
    if gate.baseline.served is not None:
        return gate
    baseline = folders[gate.baseline.model]
    variants = (
        arm
        if arm.served is not None or arm.model == gate.baseline.model
        else replace(arm, config_differences=check_same_architecture(arm, folders[arm.model], baseline))
        for arm in gate.variants
    )
    return replace(gate, variants=tuple(variants))


def check_same_architecture(arm: ArmSpec, variant: ModelFolder, baseline: ModelFolder) -> tuple[str, ...]:
    """Return the architecture changes between variant and baseline, in words.

    Raises UsageError for a change that the arm does not declare as intended.
    """
    changes = architecture_differences(variant, baseline)
    refused = () if arm.another_model else [change for change in changes if not change.named_in(arm.allow_config)]
    if refused:
        keys = ", ".join(dict.fromkeys(change.key.rpartition(".")[2] for change in refused))
        raise UsageError(
            f"variant {arm.name}: {variant.path / 'config.json'} is of another architecture than the baseline's, "
            f"{baseline.path}: {'; '.join(change.said for change in refused[:8])}"
            f"{'; …' if len(refused) > 8 else ''}. No quantizer changes that, and short cases do not show what it "
            f"does. Copy these values from the baseline's config.json; where they are meant, write `allow_config: "
            f"[{keys}]` beside the variant's `model`, or `another_model: true` if it was pruned or distilled."
        )
    return tuple(change.said for change in changes)


def check_calibration(cases: str, folder: ModelFolder, who: str) -> None:
    """Raise UsageError for a case of the calibration set `cases` that `who`, the model in `folder`, cannot read."""
    learned = evalsets.read(Path(cases).with_suffix(".yaml"))
    try:
        Renderer(folder.files).render(learned.cases)
    except UsageError as error:
        raise UsageError(f"the calibration set {learned.path} cannot be read by {who}: {error}") from None


def check_rules(gate: GateFile, sets: Sequence[Evalset]) -> None:
    """Raise UsageError for a rule on an evalset, a label or a metric that no case of this run has."""
    names = {item.name for item in sets}
    for rule in gate.policy.rules:
        where = f"{gate.path}:{rule.line}"
        if rule.evalset is not None and rule.evalset not in names:
            raise UsageError(
                f"{where}: rule on evalset {rule.evalset!r}, which this gate file does not run. It runs: "
                f"{', '.join(sorted(names))}."
            )
        rule_sets = [item for item in sets if rule.evalset in (None, item.name)]
        _check_labels(rule, rule_sets, where)
        scored, metric = {metric for item in rule_sets for metric in item.metrics}, METRICS[rule.metric]
        if metric.approves and not metric.everywhere and rule.metric not in scored:
            elsewhere = " `qualgate intake` judges it of lm-eval's logs." if metric.kind == "likelihood" else ""
            raise UsageError(
                f"{where}: no case of {rule.evalset or 'any evalset here'} is scored by {rule.metric!r}. "
                f"Scored here: {', '.join(sorted(scored)) or 'nothing'}.{elsewhere}"
            )


def _check_labels(rule: Rule, rule_sets: Sequence[Evalset], where: str) -> None:
    """Raise UsageError for a label in the rule's `where` or `scope: tag:` that no case of its sets has. where: the
    gate file and line, for the message."""
    rule_labels = [rule.where] if rule.where else []
    rule_labels += [rule.scope] if rule.scope.startswith("tag:") else []
    labels = {label for item in rule_sets for case in item.cases for label in case.labels}
    for rule_label in rule_labels:
        if not any(
            label == rule_label or (rule_label == rule.scope and label.startswith(f"{rule_label}:")) for label in labels
        ):
            raise UsageError(
                f"{where}: no case of {rule.evalset or 'any evalset here'} has the {rule_label!r} that the rule names."
            )


def check_lengths(folder: ModelFolder, prompts: Sequence[Prompt]) -> None:
    """Raise UsageError for prompts that do not fit the model's context with their answers.

    A variant with the baseline's tokens is checked too: its context may be shorter.
    """
    limit = folder.files.context_length
    too_long = [
        f"{prompt.key.evalset}/{prompt.key.case_id} ({before} + {after})"
        for prompt in prompts
        for before, after in _lengths(prompt)
        if limit is not None and before + after > limit
    ]
    if too_long:
        remainder = f" and {len(too_long) - 10} more" if len(too_long) > 10 else ""
        raise UsageError(
            f"{counted(len(too_long), 'prompt with its max_new_tokens does', 'prompts with their max_new_tokens do')} "
            f"not fit the {limit} tokens of context of "
            f"{folder.path}: {', '.join(too_long[:10])}{remainder}. Lower max_new_tokens, shorten or remove these "
            "cases, or use a model with a longer context."
        )


def _lengths(prompt: Prompt) -> Iterator[tuple[int, int]]:
    """Yield (tokens of the context, tokens after it that the model reads or writes)."""
    if not prompt.requests:
        yield len(prompt.token_ids), prompt.max_new_tokens
    for windows in prompt.requests:
        for before, after in windows:
            yield len(before), len(after) - 1  # the last token is weighed and never read


def check_repeats(gate: GateFile, prompts: Sequence[Prompt]) -> None:
    """Raise UsageError if `repeats` asks for several answers that would all be equal."""
    greedy = sorted({prompt.key.evalset for prompt in prompts if not prompt.sampling.drawn})
    if gate.repeats > 1 and greedy:
        raise UsageError(
            f"{gate.path}: `repeats: {gate.repeats}` asks for several answers to a case, and those of "
            f"{', '.join(greedy)} are all equal: nothing is drawn where choices or texts are read, or where lm-eval's "
            "task does not sample. Judge them by a gate file without `repeats`."
        )


def check_same_head(variant: ModelFolder, baseline: ModelFolder) -> None:
    """Raise UsageError if the output heads differ in size: their drift would have no meaning."""
    variant_size, baseline_size = variant.vocabulary, baseline.vocabulary
    if variant_size is not None and baseline_size is not None and variant_size != baseline_size:
        raise UsageError(
            f"{variant.path}: its output head has {variant_size} entries, that of the baseline {baseline.path} has "
            f"{baseline_size}, so their distributions cannot be compared. Use checkpoints with the same output head."
        )
