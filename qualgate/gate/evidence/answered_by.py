"""Find which model answered for a served arm, from its replies and their headers: gateways cache, fall back and
reroute. A gateway that rewrites name, id and time of another model's reply goes unnoticed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from qualgate.gate.remark import DECIDES, Judged, Remark, Remarks, no_choice
from qualgate.records import NOISE, ArmEvidence
from qualgate.records.arms import BY_FALLBACK, FROM_CACHE, MARKS, SHORT_ID, UNNAMED
from qualgate.text.numbers import counted

# Quantization as model names spell it.
_QUANTIZED = re.compile(
    r"(?<![a-z0-9])(awq|gptq|gguf|fp8|fp4|nvfp4|mxfp4|mxfp8|int4|int8|w4a16|w8a8|w8a16|bnb|exl2|hqq|aqlm|4bit|8bit"
    r"|q[2-8](?:_[k0-9a-z]+)*)(?![a-z0-9])"
)
LEAST_REPEATED, SHARE_REPEATED = 3, 0.05  # answers, and of all of an arm's, that are no coincidence
_MARK = re.compile("|".join(re.escape(mark.format("#")).replace(r"\#", ".*") + "$" for mark in MARKS))
_VERSION = re.compile(r"[-@:_](latest|v?\d{4}[-\d]*|sha256.*)")


def answerer_remarks(decision: Judged) -> Remarks:
    """Make a verdict undecided (12) where several models, another arm's model or a cache answered for the arm or one
    that it is held against. A single unexpected name only adds a note."""
    evidence, remarks = decision.evidence, dict[str, Remark]()
    beside = [arm for arm in evidence.variants if arm.name == evidence.baseline.name + NOISE]
    beside += [arm for arm in evidence.variants if arm.name in decision.policy.references]
    others = [arm for arm in (evidence.baseline, *evidence.variants) if "@" not in arm.name]
    for verdict in decision.sound:
        chosen = [arm for arm in evidence.variants if verdict.four_arm or arm.name == verdict.variant]
        both = list({arm.name: arm for arm in (evidence.baseline, *beside, *chosen)}.values())
        faults = [
            fault for arm in both for fault in (*_from_cache(arm), *_wrong_models(arm, others), *_repeated_replies(arm))
        ]
        faults += [fault for arm in both[1:] for fault in _same_replies(arm, others)]
        notes = [note for arm in both for note in _notes_on_names(arm, others)]
        if faults:
            answer = no_choice(verdict, faults[0])
            remarks[verdict.variant] = Remark(lines=tuple(faults), withholds=DECIDES, answer=answer)
        elif notes:
            remarks[verdict.variant] = Remark(lines=tuple(notes), place="first")
    return remarks


def is_alike(requested: str, answered: str) -> bool:
    """Whether a reply's name is the requested one, apart from owner and letters' case, or a version of it."""
    own, name = _short(requested), _short(answered)
    return name == own or _is_version(name, own) or _is_version(own, name)


def _plain(name: str) -> str:
    """The name without the mark that gateway headers added."""
    return _MARK.sub("", name)


def _short(name: str) -> str:
    """A model's name without its owner and its letters' case, which gateways change."""
    return _plain(name).lower().strip().rstrip("/").rpartition("/")[2]


def _is_version(name: str, own: str) -> bool:
    return bool(own) and name.startswith(own) and bool(_VERSION.fullmatch(name[len(own) :]))


def _unexpected_names(arm: ArmEvidence) -> dict[str, int]:
    """Count the replies by each name that is neither the requested one nor allowed."""
    own = _short(arm.asked_for)
    names = arm.generation.answered_by
    return {
        name: count
        for name, count in names
        if _plain(name) not in (*arm.answered_by, UNNAMED) and (_short(name) != own or name.endswith(BY_FALLBACK))
    }


def _from_cache(arm: ArmEvidence) -> Iterator[str]:
    if hits := sum(count for name, count in arm.generation.answered_by if name.endswith(FROM_CACHE)):
        yield (
            f"{counted(hits, 'reply', 'replies')} of {arm.name} came out of a gateway's cache, by its headers: given "
            "before, maybe to another question or by other weights. Turn the cache off for these runs"
        )


def _wrong_models(arm: ArmEvidence, arms: Iterable[ArmEvidence]) -> Iterator[str]:
    """Yield faults of unexpected names: a fallback, another arm's model, a model without the quantization that was
    asked for, one address for two arms, or several models. Each says how to allow the name.
    """
    strange, requested = _unexpected_names(arm), _short(arm.asked_for)
    others = {_short(other.asked_for): other.name for other in arms if other.asked_for} if requested else {}
    for name, count in strange.items():
        replies = counted(count, "reply names", "replies name")
        how = f"{arm.name} asked for {arm.asked_for}, and {replies} {_plain(name)}, which"
        meant = f"If that is meant: `answered_by: [{_plain(name)}]`"
        missing_words = sorted(set(_QUANTIZED.findall(requested)) - set(_QUANTIZED.findall(_short(name))))
        if name.endswith(BY_FALLBACK):
            yield f"{how} answered as a fallback, by the gateway's headers. {meant}"
        elif (other := others.get(_short(name))) is not None:
            yield f"{how} {other} asks for: a gateway or its cache answered with another model. {meant}"
        elif missing_words and requested.startswith(_short(name)):
            yield f"{how} lacks its {missing_words[0]}: did the model that it was made from answer? {meant}"
        elif same := [other.name for other in arms if _is_shared(arm, other, name)]:
            yield f"{how} answered for {same[0]} too: one address sends both to one model. {meant}"
    yield from _several_models(arm, {name: count for name, count in strange.items() if _short(name) not in others})


def _several_models(arm: ArmEvidence, replies_by_name: Mapping[str, int]) -> Iterator[str]:
    """Yield a fault if replies under different names show that several models answered.

    replies_by_name: unexpected name → replies. One alias, or one versioned name beside the requested one, is no fault.
    """
    requested, names = _short(arm.asked_for), dict(arm.generation.answered_by)
    short_names, probed = {_short(name) for name in names}, {_short(name) for name in arm.answered_probes}
    others = sorted({_plain(name) for name in replies_by_name})
    is_alias = len(short_names) == 1 or any(
        short_names == {requested, kind} and _is_version(kind, requested) for kind in short_names
    )
    unnamed = UNNAMED in short_names and len(short_names) > 1
    if (others and not is_alias) or unnamed or (probed and any(_short(name) not in probed for name in others)):
        names_and_counts = ", ".join(f"{name} {names[name]:,} times" for name in sorted(names))
        yield (
            f"{arm.name} asked for {arm.asked_for}, and its replies name {names_and_counts}: several models answered. "
            f"Ask the server without fallbacks, or allow them: `answered_by: [{', '.join(others or [UNNAMED])}]`"
        )


def _is_shared(arm: ArmEvidence, other: ArmEvidence, name: str) -> bool:
    """Whether one address, or one deployment behind a gateway, answers both arms by this name."""
    names = dict(other.generation.answered_by)
    at_one = name != _plain(name) or (arm.address != "" and arm.address == other.address)
    return other.name != arm.name and _short(other.asked_for) != _short(arm.asked_for) and name in names and at_one


def _same_replies(arm: ArmEvidence, arms: Iterable[ArmEvidence]) -> Iterator[str]:
    """Yield a fault for each arm with which this arm shares replies, id and text alike: a cache answered."""
    for other in arms:
        both = _replies(arm) & _replies(other) if other.name != arm.name else set[str]()
        if other.address != arm.address:  # two servers that count their replies give the same short ids
            both = {reply for reply in both if not reply.endswith(SHORT_ID)}
        if both:
            fake = "the noise floor is none, and " if arm.name.endswith(NOISE) else ""
            yield (
                f"{counted(len(both), 'reply', 'replies')} of {arm.name} and of {other.name} are the same, with id and "
                f"text: {fake}a cache between qualgate and the servers answered. Turn it off for these runs"
            )


def _repeated_replies(arm: ArmEvidence) -> Iterator[str]:
    """Yield a fault if a share of the arm's answers are replies that it had before, with id and text: a cache answered.

    Ids that come with several texts prove nothing: they are the time of a reply, or a batch's.
    """
    counts = Counter(unit.reply for unit in arm.units if unit.reply and not unit.reply.endswith(SHORT_ID))
    if not 1 < len({reply[:8] for reply in counts}) == len(counts):
        return
    repeated = counts.total() - len(counts)
    if repeated >= max(LEAST_REPEATED, SHARE_REPEATED * len(arm.units)):
        yield (
            f"{counted(repeated, 'answer')} of {arm.name} repeat an earlier reply, with id and text: a cache between "
            "qualgate and the servers answered. Turn it off for these runs"
        )


def _replies(arm: ArmEvidence) -> set[str]:
    """Hashes of the arm's replies with a unique id: some servers give all replies the same id."""
    replies = {unit.reply for unit in arm.units if unit.reply}
    ids = Counter(reply[:8] for reply in replies)
    return {reply for reply in replies if ids[reply[:8]] == 1}


def _notes_on_names(arm: ArmEvidence, arms: Iterable[ArmEvidence]) -> Iterator[str]:
    """Note replies whose name neither contains the requested one nor is allowed, or that another arm's replies have
    too.
    """
    for name in _unexpected_names(arm):
        others = [other for other in arms if _short(other.asked_for) != _short(arm.asked_for)]
        shared = [other.name for other in others if name in dict(other.generation.answered_by)]
        if arm.asked_for and (_short(arm.asked_for) not in _short(name) or shared):
            also = f", as those of {shared[0]} do" if shared else ""
            named = f"its replies name {_plain(name)}{also}"
            yield f"{arm.name} asked for {arm.asked_for}; {named}: look whether that is meant"
