"""The rules by which a draft is accepted: probabilities in, what is said out.

The target's probabilities are those after its own temperature, cuts and penalties at each position; at temperature 0
all of them are on its likeliest token, and every rule then says what greedy decoding says. A draft's tokens must have
been drawn from exactly `drawn_from`, given the tokens before them, with chances that no rule uses; without it each
token is all that was considered (one-hot), so that it must not depend on any chance of its round. How many are verified
may depend on what came before them, never on the tokens that are left out.

Whatever draft is offered, what the lossless rules say has the target's distribution: `tests/verification/lossless`
enumerates these functions. `typical` and `lenient` change it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch

from qualgate.engine.speculation.accept import Accepted, accepted
from qualgate.engine.speculation.chance import Chance

Rule = Callable[[torch.Tensor, Sequence[int], torch.Tensor | None, Chance], Accepted]
"""target, draft, drawn_from, chance → the tokens said: of the draft the first `count`, then one of the target's own.

target: float64 [drafted + 1, vocabulary], row i behind the first i of the draft; draft: token ids [drafted], none at
all in a plain step; drawn_from: float64 [drafted, vocabulary], or None where the draft was not drawn. `accepted` cuts
what is said at an end token and at the answer's limit: `accepted(draft[:count], tokens, stop_ids, room)`. ValueError:
other shapes or dtypes, a draft token that `drawn_from` gives no probability, a row without any.
"""

LENIENCE = 0.8  # q is multiplied by it before it is compared with p: no token becomes more than 1 / 0.8 as likely
TYPICAL_PROBABILITY, TYPICAL_SHARE = 0.09, 0.3  # epsilon and delta of typical acceptance, Medusa's


def keyed(target: torch.Tensor, draft: Sequence[int], drawn_from: torch.Tensor | None, chance: Chance) -> Accepted:
    """Accept what agrees with the target's own draw at every position. See `Rule`. Lossless.

    A pass of the engine makes these draws itself, from noise by position, and calls `accepted`.
    """
    _check(target, draft, drawn_from)
    return accepted(draft, [chance.token(row) for row in target], (), len(target))


def speculative_sampling(
    target: torch.Tensor, draft: Sequence[int], drawn_from: torch.Tensor | None, chance: Chance
) -> Accepted:
    """A token is accepted with probability min(1, p / q), one-hot p; at the first that is not, one is drawn of
    max(0, p - q). See `Rule`. Lossless. Leviathan et al. 2211.17192, Chen et al. 2302.01318."""
    return _token_by_token(target, draft, drawn_from, chance, 1.0)


def lenient(target: torch.Tensor, draft: Sequence[int], drawn_from: torch.Tensor | None, chance: Chance) -> Accepted:
    """Speculative sampling that accepts with min(1, p / (0.8 q)), the lenience of Leviathan et al. (A.5). See `Rule`.
    Changes the distribution: any token may become up to 1.25 times as likely."""
    return _token_by_token(target, draft, drawn_from, chance, LENIENCE)


def block_verification(
    target: torch.Tensor, draft: Sequence[int], drawn_from: torch.Tensor | None, chance: Chance
) -> Accepted:
    """Verify the draft as a whole, which accepts at least as many tokens in the mean as token by token. See `Rule`.
    Lossless.

    Sun et al. 2403.10444, algorithm 2. The share w of a prefix is min(1, w p / q) of the one a token shorter. At
    least this prefix is kept with probability w, so this very one, where no longer one is, with R / (R + 1 - w), R
    being the sum of max(0, w p - q) behind it, of which the next token is drawn. Longest first: no chance is drawn in
    vain.
    """
    _check(target, draft, drawn_from)
    shares = [1.0]
    for index in range(len(draft)):
        shares.append(min(1.0, shares[-1] * _ratio(target, draft, drawn_from, index)))
    if not draft or chance.accepts(shares[-1]):
        return _said(draft, len(draft), target[-1], chance)
    for count in reversed(range(len(draft))):
        residual = _residual(target, draft, drawn_from, count, shares[count])
        mass = residual.cumsum(0)[-1].item()  # in order: threads change no bit of it
        refused = 1.0 - shares[count]
        if count == 0 or mass + refused == 0.0 or chance.accepts(mass / (mass + refused)):
            return _said(draft, count, residual if mass > 0.0 else target[count], chance)
    raise AssertionError("a draft of no token is always accepted")


def typical(target: torch.Tensor, draft: Sequence[int], drawn_from: torch.Tensor | None, chance: Chance) -> Accepted:
    """A token is accepted if p > min(0.09, 0.3 exp(-H)), H the entropy of p in nats; then one is drawn of p. See
    `Rule`. Changes the distribution. Cai et al. 2401.10774."""
    _check(target, draft, drawn_from)
    count = 0
    for row, token in zip(target, draft, strict=False):
        entropy = -torch.xlogy(row, row).sum()
        if not row[token] > (TYPICAL_SHARE * (-entropy).exp()).clamp(max=TYPICAL_PROBABILITY):
            break
        count += 1
    return _said(draft, count, target[count], chance)


def overlap(target: torch.Tensor, draft: Sequence[int], drawn_from: torch.Tensor | None) -> torch.Tensor:
    """float64 [drafted]: Σ min(p, q) at each place of the draft, the chance that speculative sampling accepts its token
    if those before it were (Leviathan et al., theorem 3.5); of a one-hot draft the target's probability of it."""
    _check(target, draft, drawn_from)
    if drawn_from is None:
        return target[:-1].gather(1, torch.tensor(draft, dtype=torch.int64)[:, None])[:, 0]
    return torch.minimum(target[:-1], drawn_from).sum(-1)


RULES: Mapping[str, Rule] = {
    "keyed": keyed,
    "speculative_sampling": speculative_sampling,
    "block_verification": block_verification,
    "typical": typical,
    "lenient": lenient,
}
"""By their names in `records.speculation`."""


def _token_by_token(
    target: torch.Tensor, draft: Sequence[int], drawn_from: torch.Tensor | None, chance: Chance, lenience: float
) -> Accepted:
    """Accept tokens one by one, each with the chance min(1, p / (lenience q)), and draw one behind the accepted ones.

    lenience: 1 for the lossless rule, below 1 accepts more.
    """
    _check(target, draft, drawn_from)
    for index in range(len(draft)):
        if not chance.accepts(_ratio(target, draft, drawn_from, index) / lenience):
            residual = _residual(target, draft, drawn_from, index, 1.0)
            # Without a residual p = q but for rounding.
            return _said(draft, index, residual if bool(residual.any()) else target[index], chance)
    return _said(draft, len(draft), target[-1], chance)


def _ratio(target: torch.Tensor, draft: Sequence[int], drawn_from: torch.Tensor | None, index: int) -> float:
    """Return p / q of a token of the draft, in float64: in half precision a small q is 0, and anything would be
    accepted."""
    p = target[index, draft[index]].item()
    if drawn_from is None:
        return p
    q = drawn_from[index, draft[index]].item()
    if not q > 0.0:
        raise ValueError(f"drawn_from: the draft's token {draft[index]} at place {index} has probability {q} there")
    return p / q


def _residual(
    target: torch.Tensor, draft: Sequence[int], drawn_from: torch.Tensor | None, index: int, share: float
) -> torch.Tensor:
    """Return max(0, share p - q) at one index of the draft, float64 [vocabulary].

    Without `drawn_from` q is 1 for the draft's token.
    """
    residual = target[index] * share
    if drawn_from is None:
        residual[draft[index]] = 0.0
        return residual
    return residual.sub_(drawn_from[index]).clamp_(min=0.0)


def _said(draft: Sequence[int], count: int, weights: torch.Tensor, chance: Chance) -> Accepted:
    return Accepted(count, (*draft[:count], chance.token(weights)), False)


def _check(target: torch.Tensor, draft: Sequence[int], drawn_from: torch.Tensor | None) -> None:
    """Raise ValueError for tensors of another dtype or shape than a rule takes."""
    rows = len(draft)
    if target.dtype != torch.float64 or target.dim() != 2 or len(target) != rows + 1:
        raise ValueError(f"target: expected float64 [{rows + 1}, vocabulary], got {target.dtype} {list(target.shape)}")
    if drawn_from is None:
        return
    expected = (rows, target.shape[1])
    if drawn_from.dtype != torch.float64 or tuple(drawn_from.shape) != expected:
        raise ValueError(
            f"drawn_from: expected float64 {list(expected)}, got {drawn_from.dtype} {list(drawn_from.shape)}"
        )
