"""Benchmark `speculation`: what drafts gain, against our own plain engine and against others that speculate.

ML-SpecQD (2503.13565) on two cores: a bfloat16 target, its own MXFP4 cast for a draft, and something cheaper that
drafts for that. The target is the reference model widened (`widened`): its answers, in weights that no cache holds.
Every way answers the same prompts in turns, one sequence at a time where nothing else is said, and all must say the
same tokens as plain decoding: one that does not meets no goal. Ratios to our own plain engine are of seconds a token
after the first, what a draft reads of prompts counted in; those to others are of whole answers.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from math import exp, log
from pathlib import Path
from statistics import mean
from typing import Any, Literal

import torch

from qualgate.engine.device import Device
from qualgate.engine.loaded import LoadedArm
from qualgate.engine.parted import parted
from qualgate.store.bulk import uncollected
from tests.benchmarks import assisted, bits, cells, turns, verify_cost, vllm_peer
from tests.benchmarks.goals import SPECULATION
from tests.benchmarks.pass_times import kinds, pass_times
from tests.benchmarks.race import MOST_UNLIKE, Contender, race, shown, standing
from tests.benchmarks.speculating import Level, answered, drafted, fates, short
from tests.benchmarks.speculation_ground import Ground, Size
from tests.benchmarks.turns import Gain, Turns

AT_LEAST = {
    "specqd_1": 2.0, "specqd_2": 2.7, "assistant": 1.3, "lookup": 1.3, "vllm_ngram": 1.2, "vllm_draft": 1.2,
}  # fmt: skip
NEAR, OF_CELLS = 0.10, 0.90
STEADY = 0.03  # of plain's ratio to itself: on a machine that varies by more no gain is claimed
OVER_BEST, OF_PLAIN = 1.05, 0.98
TWO_LEVELS = ("both", "small under")  # n-grams, or the un-widened model, under the self-draft
TOKENS = 7  # γ of a self-draft: eight rows to verify, which is what the kernels take at a time
BATCHES = (1, 4, 16)
GPU: Device = "cuda"
ON_GPU = (1, 4, 16, 64, 256)  # batches there
LONGEST = 64  # tokens of an answer in a cell
LOOKED_UP = (3, 10)  # tokens that transformers' prompt lookup is tried with
VLLM_NGRAM = {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4}

FULL = Size(per_task=25, of_peers=8, of_cells=16, of_bits=25, of_costs=15, rounds=3)
QUICK = Size(per_task=2, of_peers=1, of_cells=4, of_bits=2, of_costs=3, rounds=1)

Found = tuple[list[dict[str, Any]], dict[str, Any]]  # rounds and a row


def run(quick: bool, only: Sequence[str] = ()) -> dict[str, Any]:
    """All rows, or those of `only`. About 20 minutes of two idle cores; quick: 4 minutes."""
    return measured(QUICK if quick else FULL, only)


def measured(size: Size, only: Sequence[str] = ()) -> dict[str, Any]:
    """The result of so much measuring."""
    few = None if size == FULL else f"{size.per_task} prompts a task"
    with tempfile.TemporaryDirectory() as work:
        ground = Ground(Path(work), size)
        parts = {id: partial(measure, ground) for id, measure in _parts().items()}
        rounds, rows = vllm_peer.measured_rows(SPECULATION, parts, only, _missing)
    return SPECULATION.result(rounds=[{"threads": torch.get_num_threads()}, *rounds], rows=rows, few=few)


def _missing(id: str) -> str:
    """Why a row cannot be measured on this machine; "" where it can."""
    if id == "gpu_spec":
        return "" if torch.device(GPU).type != "cuda" or torch.cuda.is_available() else "torch sees no GPU here"
    return vllm_peer.missing() if id.startswith("vllm") else ""


def _parts() -> dict[str, Callable[[Ground, str], Found]]:
    return {
        "target_bandwidth": _verify_cost,
        "verify": _verify_cost,
        "specqd_1": _specqd,
        "specqd_2": _specqd,
        "law": _law,
        "control": _control,
        "assistant": _assistant,
        "lookup": _lookup,
        "vllm_ngram": _vllm,
        "vllm_draft": _vllm,
        "bits": _bits,
        "gpu_spec": _gpu_spec,
    }


def _verify_cost(ground: Ground, id: str) -> Found:
    found = ground.once("verify cost", lambda: verify_cost.costs(ground.size.of_costs))
    if id == "verify":
        return [one.shown for one in found], verify_cost.verify(SPECULATION, found)
    return [], verify_cost.target_bandwidth(SPECULATION, found)


def _specqd(ground: Ground, id: str) -> Found:
    raced = ground.once("specqd", lambda: _specqd_race(ground))
    other, narrow = ground.once("reference", lambda: _reference(ground, raced))
    gains = {name: turns.gain(raced, name, "plain", "decoding") for name in ("mxfp4", "ngram", "small", *TWO_LEVELS)}
    way = "mxfp4" if id == "specqd_1" else max(TWO_LEVELS, key=lambda name: gains[name].ratio)
    unlike, cases = turns.unlike(raced, way, "plain"), sum(map(len, raced.values()))
    again = turns.gain(raced, "again", "plain", "decoding")
    met = gains[way].ratio >= AT_LEAST[id] and not unlike and other <= MOST_UNLIKE * cases
    met = met and abs(again.ratio - 1) <= STEADY
    row = SPECULATION.row(id, gains[way].ratio, met=met, spread=list(gains[way].interval)) | {
        "tasks": dict(gains[way].by_task),
        "whole_answers": asdict(turns.gain(raced, way, "plain")),
        "plain_against_itself": asdict(again),
        "drafts": [one.shown for one in fates(ground.told[way])],
        "target": f"the reference model widened {ground.widened[1]} times",
        "unwidened_drafts": narrow,
        "cases": cases,
        "cases_with_other_tokens": unlike,
        "cases_widened_otherwise": other,
    }
    if id == "specqd_1":
        return turns.shown("specqd", raced), row | {"costs": _costs(ground)}
    return [], row | {"by": way, "crossover": {name: asdict(one) for name, one in gains.items()}}


def _specqd_race(ground: Ground) -> Turns:
    plain, packed, small = ground.target(), ground.target("mxfp4"), ground.reference("mxfp4")
    ways = {
        "plain": plain,
        "mxfp4": drafted(plain, Level(by=packed, tokens=TOKENS)),
        "ngram": drafted(plain, Level(by="ngram")),
        "small": drafted(plain, Level(by=small)),
        "both": drafted(plain, Level(by=packed), Level(by="ngram")),
        "small under": drafted(plain, Level(by=packed), Level(by=small)),
        "again": plain,
    }
    contenders = {name: ground.answers(name, arm) for name, arm in ways.items()}
    return turns.in_turns("speculation, specqd", contenders, ground.prompts(ground.size.per_task))


def _costs(ground: Ground) -> dict[str, Any]:
    """Of the self-draft's step and of verifying its tokens, in plain passes."""
    times = pass_times(ground.target(), ground.target("mxfp4"), (1,), (0, 2, TOKENS))
    plain = times.seconds(1, 0)
    return {
        "draft_step": times.drafting(1, TOKENS) / TOKENS / plain,
        "verify": times.seconds(1, TOKENS) / plain,
        "plain_pass_seconds": plain,
    }


def _reference(ground: Ground, raced: Turns) -> tuple[int, dict[str, Any]]:
    """Prompts that the un-widened model answers with other tokens than the widened one; what of its self-draft's tokens
    it accepts."""
    arm, unlike, found = ground.reference(), 0, []
    speculating = drafted(arm, Level(by=ground.reference("mxfp4"), tokens=TOKENS))
    for task, prompts in ground.prompts(ground.size.per_task).items():
        told = answered(speculating, prompts)
        found.append(told)
        unlike += sum(said != one["plain"].tokens for said, one in zip(told.tokens, raced[task], strict=True))
    return unlike, fates(found)[0].shown


def _law(ground: Ground, id: str) -> Found:
    found, times = ground.once("cells", lambda: _cells(ground))
    share = cells.within(found, NEAR)
    off = sorted(one.foretold / one.gain for one in found if one.foretold is not None)
    unlike = sum(one.unlike for one in found)
    row = SPECULATION.row(id, share, met=share >= OF_CELLS and not unlike, spread=[off[0], off[-1]])
    return [{"cells": [one.shown for one in found], "seconds": times}], row | {
        "cells": len(off),
        "within_twice_that": cells.within(found, 2 * NEAR),
        "answers_with_other_tokens": unlike,
    }


def _cells(ground: Ground) -> tuple[list[cells.Cell], list[dict[str, Any]]]:
    prompts = {task: short(mine, LONGEST) for task, mine in ground.prompts(ground.size.of_cells).items()}
    target, packed, narrow = ground.target(), ground.target("mxfp4"), ground.reference()
    small = _ways(narrow, {cells.MODEL: ground.reference("mxfp4"), "ngram": "ngram"}, cells.TOKENS)
    ways = _ways(target, {cells.MODEL: packed, "ngram": "ngram"}, (*cells.TOKENS, cells.AUTO))
    batches = [batch for batch in BATCHES if batch <= ground.size.of_cells]
    fate, passes = cells.fates(small, prompts, batches), partial(kinds, target, packed, lengths=(0, *cells.TOKENS))
    turns = 2 * ground.size.rounds - 1
    with uncollected():
        found, of = cells.measure({cells.PLAIN: target} | ways, prompts, batches, fate, passes, turns)
    return found, [one.times[cells.MODEL].shown for one in of]


def _ways(
    target: LoadedArm, drafts: dict[str, LoadedArm | Literal["ngram"]], lengths: Sequence[int]
) -> dict[cells.Way, LoadedArm]:
    return {(by, one): drafted(target, Level(by=drafts[by], tokens=one)) for by in drafts for one in lengths}


def _control(ground: Ground, id: str) -> Found:
    found, _ = ground.once("cells", lambda: _cells(ground))
    over = cells.against_best(found)
    raced = _unpaid(ground)
    against = {name: turns.gain(raced, name, "plain", "seconds") for name in ("mxfp4", "int2")}
    unlike = sum(turns.unlike(raced, name, "plain") for name in against)
    over_all = exp(mean(map(log, over.values())))
    worst = min(one.ratio for one in against.values())
    met = over_all >= OVER_BEST and worst >= OF_PLAIN and not unlike
    measured = {"over_best_fixed": over_all, "of_plain_where_it_does_not_pay": worst}
    return turns.shown("control", raced), SPECULATION.row(id, measured, met=met) | {
        "over_best_fixed": over,
        "of_plain": {name: asdict(one) for name, one in against.items()},
        "plain_against_itself": asdict(turns.gain(raced, "again", "plain", "seconds")),
        "drafts": {name: [one.shown for one in fates(ground.told[f"unpaid {name}"])] for name in against},
        "cases_with_other_tokens": unlike,
    }


def _unpaid(ground: Ground) -> Turns:
    """The un-widened target, beside whose passes a draft's are not cheap, with drafts that are right and that are
    wrong."""
    plain = ground.reference()
    ways = {
        "plain": plain,
        "mxfp4": drafted(plain, Level(by=ground.reference("mxfp4"))),
        "int2": drafted(plain, Level(by=ground.reference("int2"))),
        "again": plain,
    }
    contenders = {name: ground.answers(f"unpaid {name}", arm) for name, arm in ways.items()}
    return turns.in_turns("speculation, control", contenders, ground.prompts(ground.size.per_task))


def _assistant(ground: Ground, id: str) -> Found:
    """A small draft: the un-widened model in MXFP4; and the target's own cast."""
    target = ground.target()
    theirs = assisted.Assisted(ground.widened[0], target.stop_ids)
    ways = {
        "small": ground.answers("small", drafted(target, Level(by=ground.reference("mxfp4"), tokens=TOKENS))),
        "own": ground.answers("own", drafted(target, Level(by=ground.target("mxfp4"), tokens=TOKENS))),
        "their_small": theirs.by_model(ground.dequantized("reference")),
        "their_own": theirs.by_model(ground.dequantized("widened")),
        "their_plain": theirs.alone(),
    }
    for name in ("their_small", "their_own", "their_plain"):
        ways[name](ground.warming)
    raced = turns.in_turns("speculation, assistant", ways, ground.prompts(ground.size.of_peers))
    gains = {name: turns.gain(raced, name, f"their_{name}") for name in ("small", "own")}
    return turns.shown("assistant", raced), _of_peer(id, raced, gains)


def _lookup(ground: Ground, id: str) -> Found:
    target = ground.target()
    theirs = assisted.Assisted(ground.widened[0], target.stop_ids)
    lookups = [theirs.by_lookup(tokens) for tokens in LOOKED_UP]
    best = assisted.fastest(lookups, [ground.warming])
    ways = {
        "lookup": ground.answers("lookup", drafted(target, Level(by="ngram"))),
        "their_lookup": lookups[best],
        "their_plain": theirs.alone(),
    }
    ways["their_plain"](ground.warming)
    raced = turns.in_turns("speculation, lookup", ways, ground.prompts(ground.size.of_peers))
    row = _of_peer(id, raced, {"lookup": turns.gain(raced, "lookup", "their_lookup")})
    return turns.shown("lookup", raced), row | {"their_tokens": LOOKED_UP[best]}


def _of_peer(id: str, raced: Turns, gains: dict[str, Gain]) -> dict[str, Any]:
    """The row of a race with a peer. gains: by what drafts, of which the least counts."""
    least = min(gains, key=lambda name: gains[name].ratio)
    cases = sum(map(len, raced.values()))
    unlike = {name: turns.unlike(raced, name, f"their_{name}") for name in gains}
    met = gains[least].ratio >= AT_LEAST[id] and max(unlike.values()) <= MOST_UNLIKE * cases
    return SPECULATION.row(id, gains[least].ratio, met=met, spread=list(gains[least].interval)) | {
        "by": {name: asdict(one) for name, one in gains.items()},
        "theirs_against_their_plain": {name: turns.gain(raced, f"their_{name}", "their_plain").ratio for name in gains},
        "cases": cases,
        "cases_with_other_tokens": unlike,
    }


def _vllm(ground: Ground, id: str) -> Found:
    """vLLM in bfloat16, of which it has kernels on CPUs; its draft is the un-widened model in MXFP4, dequantized."""
    target, prompts = ground.target(), ground.prompts(ground.size.of_peers)
    if id == "vllm_ngram":
        mine, how = drafted(target, Level(by="ngram")), dict(VLLM_NGRAM)
    else:
        mine = drafted(target, Level(by=ground.reference("mxfp4"), tokens=TOKENS))
        draft = str(ground.dequantized("reference"))
        how = {"method": "draft_model", "model": draft, "num_speculative_tokens": TOKENS}
    ours = Contender(answer=lambda task: [answered(mine, [one]).tokens[0] for one in prompts[task]])
    more = {"max_num_seqs": 1, "speculative_config": how}
    with vllm_peer.serving(ground.widened[0], "bfloat16", prompts, ground.work, more) as vllm:
        rounds = race(f"speculation, {id}", {"ours": ours, "vllm": vllm.contender}, list(prompts), ground.size.rounds)
    stood = standing(rounds, "ours", "vllm")
    met = stood.ratio >= AT_LEAST[id] and stood.unlike <= MOST_UNLIKE * stood.cases
    row = SPECULATION.row(id, stood.ratio, met=met, spread=[min(stood.ratios), max(stood.ratios)])
    where = dict[str, Any]()
    for laps, task in ((laps, task) for one in rounds for task, laps in one.items()):
        where |= parted(target, prompts[task], laps["ours"].said, laps["vllm"].said)
    return shown(id, rounds), row | stood.shown | {"vllm": vllm.version, "parted": where}


def _bits(ground: Ground, id: str) -> Found:
    target, prompts = ground.reference(), ground.prompts(ground.size.of_bits)
    found = {
        name: bits.fared(target, ground.reference(recipe), prompts)
        for name, recipe in (bits.FORMATS | bits.KEPT).items()
    }
    kept = bits.keeping(found)
    told = {name: one.shown for name, one in found.items()}
    enough = len(bits.FORMATS) >= 8 and len(prompts) >= 4
    measured = {name: one.worth for name, one in found.items()}
    return [{"bits": told}], SPECULATION.row(id, measured, met=enough) | {
        "keeping_layers_high": kept,
        "helps": [name for name, ratio in kept.items() if ratio > 1],
    }


def _gpu_spec(ground: Ground, id: str) -> Found:
    """On one GPU: the gain of a self-draft and of n-grams by batch, and v(8) of the target in int4."""
    on, batches = Ground(ground.work, ground.size, GPU), [one for one in ON_GPU if one <= 16 * ground.size.of_cells]
    prompts = {task: short(mine, LONGEST) for task, mine in on.prompts(batches[-1]).items()}
    target, int4 = on.target(), pass_times(on.target("int4"), None, batches, (0, TOKENS))
    ways = _ways(target, {cells.MODEL: on.target("mxfp4"), "ngram": "ngram"}, (TOKENS,))
    found, _ = cells.measure({cells.PLAIN: target} | ways, prompts, batches, {}, lambda _: {}, 2)
    gains = {by: {batch: exp(mean(log(one.gain) for one in found if (one.by, one.batch) == (by, batch)))
                  for batch in batches} for by, _ in ways}  # fmt: skip
    unlike = sum(one.unlike for one in found)
    return [{"gpu_cells": [one.shown for one in found]}], SPECULATION.row(id, gains, met=not unlike) | {
        "pays_up_to": {by: max((one for one, gain in of.items() if gain > 1), default=0) for by, of in gains.items()},
        "verify_int4": {batch: int4.seconds(batch, TOKENS) / int4.seconds(batch, 0) for batch in batches},
        "answers_with_other_tokens": unlike,
    }
