"""Find contradictions between parts of a gate file that are each valid alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from qualgate import evalsets
from qualgate.config.against import check_against, placed_rules
from qualgate.config.budget import as_price
from qualgate.config.model import GateFileModel
from qualgate.config.rules import BOUNDS
from qualgate.config.served import server_at
from qualgate.documents import Document, Fault, nearest, quote
from qualgate.records import LOSSY, ExternalCases, LmEvalTask, SetRef
from qualgate.records.metrics import JUDGE, METRICS, OF_DISTRIBUTIONS, PEOPLE

ROLES = ("quantization", "speculation", "both")


def roles(model: GateFileModel) -> dict[str, list[str]]:
    """Role → variants that claim it by `arm:`."""
    by_role: dict[str, list[str]] = {}
    for name, variant in model.variants.items():
        if variant.arm is not None:
            by_role.setdefault(variant.arm, []).append(name)
    return by_role


def _name(ref: SetRef) -> str:
    if isinstance(ref, ExternalCases):
        return f"name: {ref.name}"
    return f"lm_eval: {ref.task}" if isinstance(ref, LmEvalTask) else ref


def contradictions(document: Document, model: GateFileModel) -> Iterator[Fault]:
    """Yield the faults between parts of a gate file, each with its line."""
    names: dict[str, SetRef] = {}
    for index, ref in enumerate(model.evalsets):
        name = evalsets.name_of(ref)
        if name in names:
            yield document.fault(
                ("evalsets", index), f"the evalset {quote(name)} twice ({_name(names[name])} and {_name(ref)})"
            )
        names.setdefault(name, ref)
    first: dict[tuple[object, ...], tuple[int, float]] = {}
    for place, rule in placed_rules(model):
        groups = any(isinstance(ref, LmEvalTask) for ref in model.evalsets)  # what they hold the plan will know
        if rule.evalset is not None and rule.evalset not in names and not groups:
            yield document.fault(
                (*place, "evalset"), f"evalset {quote(rule.evalset)} is not one this file runs: {', '.join(names)}"
            )
        # Two tiers may bound one metric; within one tier a second bound repeats or contradicts the first.
        limit = next(name for name in BOUNDS if getattr(rule, name) is not None)
        key = (rule.metric, rule.scope, rule.evalset, rule.percentile, rule.tier, rule.label, rule.repeats, limit)
        key = (*place[:-1], *key)
        if key in first:
            line, bound = first[key]
            word = "repeats" if bound == rule.bound else "contradicts"
            yield document.fault(place, f"this rule on {rule.metric} {word} the one on line {line}")
        first.setdefault(key, (document.line(place), rule.bound))
        if METRICS[rule.metric].kind == "cost" and model.prices is None:
            yield document.fault(place, f"a rule on {rule.metric} needs a price table; add `prices: FILE`")
        if rule.metric == "goodput" and model.slo is None:
            yield document.fault(place, "a rule on goodput needs limits; add for example `slo: {ttft: 0.5, e2e: 10}`")
        if rule.metric == "stability.rerun" and not model.noise_floor:
            yield document.fault(place, "a rule on stability.rerun needs a second run of the baseline; add "
                                 "`noise_floor: true` under `gate`")  # fmt: skip
        if model.gate.stop == "early" and rule.per and rule.per.skip:
            yield document.fault((*place, "per"), "`skip: below_floor` needs all answers; `stop: early` ends before")
    if model.gate.stop == "early" and model.gate.noise_floor:
        yield document.fault(
            ("gate", "stop"), "`stop: early` ends at other cases for each arm, and a noise floor needs them all"
        )
    yield from _check_drift(document, model)
    yield from _check_approvals(document, model)
    yield from _check_judge(document, model)
    yield from _check_roles(document, model)
    yield from _check_servers(document, model)
    yield from check_against(document, model)
    for place, rule in placed_rules(model):
        needed = rule.repeats.removeprefix("pass^")
        if needed.isdigit() and int(needed) > model.generation.repeats:
            yield document.fault(
                (*place, "repeats"),
                f"`repeats: {rule.repeats}` needs {needed} answers to each case, and `generation.repeats` is "
                f"{model.generation.repeats}",
            )
    yield from _check_budget(document, model)
    critical = any(rule.tier == "critical" and METRICS[rule.metric].approves for rule in model.gate.rules or ())
    judged = any(METRICS[rule.metric].kind == "judged" for rule in model.gate.rules or ())
    if not critical and model.gate.nel_policy is None:
        why = "a win alone approves nothing" if judged else "no critical rule on quality, so nothing could be approved"
        yield document.fault(("gate", "rules"), f"{why}; add one such as {{metric: exact_match, max_drop: 0.02}}")


def _check_approvals(document: Document, model: GateFileModel) -> Iterator[Fault]:
    if model.gate.approvals > 1 and model.gate.review != "always":
        yield document.fault(
            ("gate", "approvals"), "several people are asked only where a person is: add `review: always`"
        )


def _check_drift(document: Document, model: GateFileModel) -> Iterator[Fault]:
    """Check that what needs every answer's drift has it."""
    if model.generation.drift == 1:
        return
    for index, rule in enumerate(model.gate.rules or ()):
        if rule.metric in OF_DISTRIBUTIONS:
            yield document.fault(
                ("gate", "rules", index),
                f"a rule on {rule.metric} needs the drift of all cases; take the rule or `generation.drift` out",
            )
    if model.baseline.prompt_logprobs is not None:
        yield document.fault(
            ("generation", "drift"), "`prompt_logprobs` reads every answer of a served arm; take one of the two out"
        )


def _check_judge(document: Document, model: GateFileModel) -> Iterator[Fault]:
    """Check that a judge and its rules come together, and nothing stops before all answers."""
    rules = [index for index, rule in enumerate(model.gate.rules or ()) if rule.metric == JUDGE]
    yield from _check_people(document, model)
    if rules and model.judge is None:
        yield document.fault(
            ("gate", "rules", rules[0]),
            "a rule on judge.win needs a judge; add `judge: {endpoint: …, model: …, rubric: …, labels: FILE}`",
        )
    if model.judge is None:
        return
    if not rules:
        yield document.fault(
            ("judge",), "no rule asks this judge; add {metric: judge.win, max_drop: 0.05}, or leave `judge` out"
        )
    if model.gate.stop == "early":
        message = (
            "`stop: early` ends before all answers are there, and a judge is asked behind them; take one of the two"
        )
        yield document.fault(("gate", "stop"), message)
    if model.four_arm is not None or len(roles(model)) == len(ROLES):
        yield document.fault(("judge",), "a judge among four arms", planned=True)


def _check_people(document: Document, model: GateFileModel) -> Iterator[Fault]:
    """Check that people compare whole lists of two arms."""
    rules = [index for index, rule in enumerate(model.gate.rules or ()) if rule.metric == PEOPLE]
    if not rules and model.gate.reviewers > 1:
        yield document.fault(
            ("gate", "reviewers"), "no rule asks people; add {metric: people.win, max_drop: 0.05}, or leave it out"
        )
    if rules and model.gate.stop == "early":
        message = "`stop: early` ends before all answers are there, and people compare them all; take one of the two"
        yield document.fault(("gate", "stop"), message)
    if rules and (model.four_arm is not None or len(roles(model)) == len(ROLES)):
        yield document.fault(("gate", "rules", rules[0]), "a rule on people.win among four arms", planned=True)


def _check_roles(document: Document, model: GateFileModel) -> Iterator[Fault]:
    """Check that each role has one variant, on which section and variants agree."""
    by_role, declared = roles(model), {role: getattr(model.four_arm, role, None) for role in ROLES}
    for role, variants in by_role.items():
        if len(variants) > 1:
            yield document.fault(("variants", variants[1], "arm"), f"two variants are {role}: {', '.join(variants)}")
        elif declared[role] not in (None, variants[0]):
            message = f"{variants[0]} says that it is {role}, and four_arm names {quote(declared[role])}"
            yield document.fault(("variants", variants[0], "arm"), message)
    role_of: dict[str, str] = {}
    for role, name in declared.items():
        if name is None:
            if model.four_arm is not None and role not in by_role:
                yield document.fault(("four_arm",), f"`four_arm.{role}` is missing: which variant is it?")
            continue
        if name not in model.variants:
            yield document.fault(("four_arm", role), f"no variant {quote(name)}{nearest(name, model.variants)}")
        elif name in role_of:
            yield document.fault(("four_arm", role), f"{quote(name)} is {role_of[name]} already; the arms are three")
        role_of.setdefault(name, role)
    arms = {role: declared[role] or next(iter(by_role.get(role, ())), None) for role in ROLES}
    yield from _check_declared_drafting(document, model, arms)
    yield from _check_speculation(document, model, arms)


def _check_servers(document: Document, model: GateFileModel) -> Iterator[Fault]:
    """Check that no two arms are one model of one server, which is `noise_floor`'s task, and that variants made from
    the baseline's weights have a local baseline."""
    name_of: dict[tuple[object, ...], str] = {}
    for name, arm in (("baseline", model.baseline), *model.variants.items()):
        if model.baseline.is_served and not arm.is_served:
            yield document.fault(
                ("variants", name), f"the baseline is served, and {name} would be generated here: serve it too "
                "(`endpoint` or `serve`)"
            )  # fmt: skip
        if not arm.is_served:
            continue
        extras = str(arm.extra_body), str(arm.extra_headers), str(arm.extra_query)
        identity = (server_at(arm.endpoint), arm.serve, arm.model, *extras)
        if identity in name_of:
            yield document.fault(
                ("variants", name),
                f"{name} and {name_of[identity]} are the same model of the same server; to measure its noise, write "
                "`gate: {noise_floor: true}`",
            )
        name_of.setdefault(identity, name)


def _check_budget(document: Document, model: GateFileModel) -> Iterator[Fault]:
    """Check that the budget applies to served arms and has the prices that it needs."""
    if model.budget is None:
        return
    arms = (("baseline", model.baseline), *model.variants.items())
    own_prices = {name: arm.price for name, arm in arms if arm.is_served}
    if model.judge is not None:
        own_prices["the judge"] = model.judge.price
    if not own_prices:
        yield document.fault(("budget",), "`budget` bounds what servers are asked, and no arm here is served")
        return
    if model.budget.max_cost is None:
        return
    prices = {name: as_price(price, model.budget) for name, price in own_prices.items()}
    if unpriced := [name for name, price in prices.items() if price is None]:
        yield document.fault(
            ("budget", "max_cost"),
            f"`max_cost` needs the price of {', '.join(unpriced)}: add `price: {{prompt: …, answer: …}}` (of a million "
            "tokens) there, or to `budget` for all of them",
        )
    elif not any(price and (price.prompt or price.answer) for price in prices.values()):
        yield document.fault(("budget", "max_cost"), "every price is 0, so `max_cost` would never be reached")


def _check_declared_drafting(
    document: Document, model: GateFileModel, arms: Mapping[str, str | None]
) -> Iterator[Fault]:
    """Check that declared drafting belongs to an arm that speculates. arms: role → its variant."""
    drafting = [name for role, name in arms.items() if role != "quantization" and name is not None]
    if model.four_arm is None or len(drafting) < 2:  # which arm is missing is said already
        return
    for name in model.four_arm.drafting or ():
        if name in drafting:
            continue
        what = "no variant"
        if name in model.variants:
            what = "the arm that is quantized alone" if name == arms["quantization"] else "none of the arms"
        message = f"{quote(name)} is {what}, and only arms that speculate draft: {', '.join(drafting)}"
        yield document.fault(("four_arm", "drafting", name), message + nearest(name, drafting))


def _check_speculation(document: Document, model: GateFileModel, arms: Mapping[str, str | None]) -> Iterator[Fault]:
    """Yield faults of arms that speculate here against their role or `parity`. arms: role → its variant, None if
    unknown.
    """
    for role, name in arms.items():
        variant = model.variants.get(name or "")
        if variant is None or variant.speculation is None:
            continue
        place = ("variants", str(name), "speculation")
        if role == "quantization":
            yield document.fault(place, f"{name} is the arm that is quantized alone, and it speculates; that is `both`")
        if role == "speculation" and variant.quantize is not None:
            yield document.fault(place, f"{name} is the arm that speculates alone, and it is quantized; that is `both`")
        if role == "both" and variant.quantize is None and variant.model is None:
            message = f"{name} is the arm that does both, and its weights are the baseline's: add `quantize` or `model`"
            yield document.fault(place, message)
        if model.four_arm is not None or None not in arms.values():
            yield from _check_parity(document, model, str(name), variant.speculation.rule)


def _check_parity(document: Document, model: GateFileModel, name: str, rule: str) -> Iterator[Fault]:
    """Yield a fault if the acceptance rule of variant `name` does not keep what `parity` promises."""
    parity = model.four_arm.parity if model.four_arm is not None else "identical"
    if rule in LOSSY:
        holds, effect = parity == "lossy", "changes the distribution of answers; write `four_arm: {parity: lossy}`"
    else:
        holds = parity != "identical" or rule == "keyed" or not model.generation.temperature
        effect = "draws other tokens of the same distribution; write `four_arm: {parity: sampled}`"
    if not holds:
        promised = {"identical": "the target's own tokens", "sampled": "answers of the same distribution"}[parity]
        yield document.fault(
            ("variants", name, "speculation", "rule"),
            f"`parity: {parity}` promises {promised}, and `rule: {rule}` of {name} {effect}, or `rule: keyed`",
        )
