"""What a gate file may not ask of the models and evalsets it names: refused before anything is generated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from qualgate import evalsets
from qualgate.config import GateFile
from qualgate.engine.arithmetic import check_arithmetic
from qualgate.engine.device import choose_device, packs
from qualgate.engine.gpus import check_alike
from qualgate.engine.load import check_weights
from qualgate.engine.prompts import Renderer
from qualgate.errors import NotInThisVersion, UsageError
from qualgate.errors.extras import install_command
from qualgate.formatting import counted
from qualgate.metrics import METRICS
from qualgate.quant.model_folder import ModelFolder
from qualgate.quant.shapes import check_fits
from qualgate.quantize.calibration_sets import check_leaks
from qualgate.records import ArmSpec, Evalset, Prompt, Rule


def _refuse_on_gpu(arm: ArmSpec, gate: GateFile) -> None:
    if arm.kv_cache != "float32" or arm.arithmetic != "float32":
        if packs(choose_device(gate.devices)):
            return
        asked = "`arithmetic: served`" if arm.arithmetic != "float32" else f"`kv_cache: {arm.kv_cache}`"
        raise NotInThisVersion(
            f"{gate.path.name}: {arm.name} is to run with {asked}, and models run in padded batches on a GPU "
            "without Triton, which do not have it. Write `workers: {devices: cpu}`, or `float32`, or install it: "
            f"{install_command('kernels')}"
        )


def check_arms(gate: GateFile, folders: Mapping[str, ModelFolder], sets: Sequence[Evalset]) -> None:
    """Raise UsageError for an arm whose weights cannot be run as it asks, that would be asked other questions than the
    baseline, or whose calibration knows the cases or cannot be read by the baseline."""
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


def check_same_question(arm: ArmSpec, variant: ModelFolder, baseline: ModelFolder) -> None:
    """Raise UsageError where arm's folder makes other tokens of a case than the baseline's, or ends answers elsewhere:
    its answers are never compared (see `gate.evidence.checks`), so they need not be generated."""
    for what, ours, theirs, file in (
        ("tokenizer", variant.tokenizer_sha256, baseline.tokenizer_sha256, "tokenizer.json and tokenizer_config.json"),
        ("chat template", variant.template_sha256, baseline.template_sha256, "chat_template.jinja"),
        ("set of stop tokens", variant.stop_ids, baseline.stop_ids, "generation_config.json"),
        ("scaling of positions (rope)", variant.rope, baseline.rope, "rope_scaling of config.json"),
    ):
        if ours != theirs:
            raise UsageError(
                f"variant {arm.name}: the {what} in {variant.path} is not that of the baseline {baseline.path}, so the "
                "two would not be asked the same question and nothing could be compared. If the variant was made from "
                f"this baseline, copy {file} from there; else name the baseline that it was made from."
            )


def check_calibration(cases: str, folder: ModelFolder, who: str) -> None:
    """Raise UsageError for a case of the calibration set in the file `cases` that `who`, the model in `folder`, cannot
    read."""
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
        judged = [item for item in sets if rule.evalset in (None, item.name)]
        _check_labels(rule, judged, where)
        scored, metric = {metric for item in judged for metric in item.metrics}, METRICS[rule.metric]
        if metric.kind == "quality" and not metric.everywhere and rule.metric not in scored:
            raise UsageError(
                f"{where}: no case of {rule.evalset or 'any evalset here'} is scored by {rule.metric!r}. "
                f"Scored here: {', '.join(sorted(scored))}."
            )


def _check_labels(rule: Rule, judged: Sequence[Evalset], where: str) -> None:
    wanted = [rule.where] if rule.where else []
    wanted += [rule.scope] if rule.scope.startswith("tag:") else []
    labels = {label for item in judged for case in item.cases for label in case.labels}
    for wish in wanted:
        if not any(label == wish or (wish == rule.scope and label.startswith(f"{wish}:")) for label in labels):
            raise UsageError(
                f"{where}: no case of {rule.evalset or 'any evalset here'} has the {wish!r} that the rule names."
            )


def check_lengths(folder: ModelFolder, prompts: Sequence[Prompt]) -> None:
    """Raise UsageError for prompts that do not fit the model's context with their answers.

    Asked of a variant that shares the baseline's tokens too: its own context may be shorter.
    """
    limit = folder.files.context_length
    too_long = [
        f"{prompt.key.evalset}/{prompt.key.case_id} ({before} + {after})"
        for prompt in prompts
        for before, after in _lengths(prompt)
        if limit is not None and before + after > limit
    ]
    if too_long:
        more = f" and {len(too_long) - 10} more" if len(too_long) > 10 else ""
        raise UsageError(
            f"{counted(len(too_long), 'prompt with its max_new_tokens does', 'prompts with their max_new_tokens do')} "
            f"not fit the {limit} tokens of context of "
            f"{folder.path}: {', '.join(too_long[:10])}{more}. Lower max_new_tokens, shorten or remove these "
            "cases, or use a model with a longer context."
        )


def _lengths(prompt: Prompt) -> Iterator[tuple[int, int]]:
    """Tokens of the context and of what follows it that the model has to read or write."""
    if not prompt.requests:
        yield len(prompt.token_ids), prompt.max_new_tokens
    for windows in prompt.requests:
        for before, after in windows:
            yield len(before), len(after) - 1  # the last token is weighed and never read


def check_repeats(gate: GateFile, prompts: Sequence[Prompt]) -> None:
    """Raise UsageError where answers are repeated that are equal."""
    greedy = sorted({prompt.key.evalset for prompt in prompts if not prompt.sampling.drawn})
    if gate.repeats > 1 and greedy:
        raise UsageError(
            f"{gate.path}: `repeats: {gate.repeats}` asks for several answers to a case, and those of "
            f"{', '.join(greedy)} are all equal: nothing is drawn where choices or texts are read, or where lm-eval's "
            "task does not sample. Judge them by a gate file without `repeats`."
        )


def check_same_head(variant: ModelFolder, baseline: ModelFolder) -> None:
    """Raise UsageError where the two heads have another number of entries: their drift would have no meaning."""
    ours, theirs = variant.vocabulary, baseline.vocabulary
    if ours is not None and theirs is not None and ours != theirs:
        raise UsageError(
            f"{variant.path}: its output head has {ours} entries, that of the baseline {baseline.path} has {theirs}, "
            "so their distributions cannot be compared. Use checkpoints with the same output head."
        )
