"""SGLang's own `/generate`, which lists log-probs of a prompt's tokens where its OpenAI API does not.

It lies beside the API: for `http://HOST/v1` at `http://HOST/generate`. The format is that of SGLang 0.5.23
(`LogprobResultProcessor`, `detokenize_logprob_tokens`): from `logprob_start_len` on, no log-prob at the first place.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Any

from pydantic import model_validator

from qualgate.served.replies import Choice, Completed, Count, Ranked, Reply, Token, Usage

PATH = "/generate"
Listed = tuple[float | None, Token, Any]  # nats, the token, its text or null


def reading(tokens: Sequence[int], begins: int, likeliest: int) -> dict[str, Any]:
    """Return the body of a request that reads tokens, and lists those from `begins` on with the likeliest at each."""
    return {
        "input_ids": list(tokens),
        "sampling_params": {"temperature": 0.0, "max_new_tokens": 0},
        "return_logprob": True,
        "logprob_start_len": begins - 1,  # whose own log-prob is missing
        "top_logprobs_num": likeliest,
    }


def address(endpoint: str, path: str) -> str:
    """Return the address of a request."""
    base = endpoint.rstrip("/")
    return (base.removesuffix("/v1") if path == PATH else base) + path


class Meta(Reply):
    """Data beside the text; the lists run from one place to the prompt's last."""

    prompt_tokens: Count
    completion_tokens: Count = 0
    input_token_logprobs: list[Listed]
    input_top_logprobs: list[list[Listed] | None]

    @model_validator(mode="after")
    def _of_one_text(self) -> Meta:
        if not 0 < len(self.input_token_logprobs) == len(self.input_top_logprobs) <= self.prompt_tokens:
            raise ValueError("lists of unlike lengths")
        return self


class Generated(Reply):
    """An answer of `/generate`, whole."""

    text: str
    meta_info: Meta

    def completed(self, sent: Sequence[int]) -> Completed:
        """Convert to OpenAI's form with vLLM's lists. sent: the tokens to be read."""
        meta = self.meta_info
        tokens = sent[-len(meta.input_token_logprobs) :] if len(sent) == meta.prompt_tokens else repeat(0)
        listed = zip(meta.input_token_logprobs, meta.input_top_logprobs, tokens, strict=False)
        lists = [_place(given, likeliest, token) for given, likeliest, token in listed]
        before = [None] * (meta.prompt_tokens - len(lists))
        return Completed(
            choices=[Choice(text=self.text, finish_reason="length", prompt_logprobs=[*before, *lists])],
            usage=Usage(prompt_tokens=meta.prompt_tokens, completion_tokens=meta.completion_tokens),
        )


def _place(own: Listed, likeliest: Sequence[Listed] | None, sent: int) -> dict[str, Ranked] | None:
    """Return the ranked tokens of one place; None if the server lists none.

    own: the token that stands there; likeliest: the others; sent: the token as it was sent.

    A token that is not among the likeliest has an unknown rank behind them: two on, since the next would mean the
    likeliest of all unlisted ones. SGLang lists the last token of a vocabulary as 0 (`_process_input_token_logprobs`
    takes it for an image's): a listed 0 means the sent token if no listed token is beyond that.
    """
    if own[0] is None or likeliest is None:
        return None
    ranks = {
        str(token): Ranked(logprob=logprob, rank=rank)
        for rank, (logprob, token, _) in enumerate(likeliest, start=1)
        if logprob is not None
    }
    last = own[1] == 0 and all(token <= sent for _, token, _ in likeliest)
    token_text = str(sent if last else own[1])
    return ranks | ({} if token_text in ranks else {token_text: Ranked(logprob=own[0], rank=len(likeliest) + 2)})
