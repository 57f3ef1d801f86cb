"""Who answers for an arm that is served: an address, or a command that starts a server; and what was said of it."""

from __future__ import annotations

from dataclasses import dataclass

CONCURRENCY = 16  # requests at once, where a gate file does not say


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """An arm's server, as the gate file names it. No key is in it: `api_key_env` names where one is found.

    endpoint: the API's address, up to and with its version ("http://127.0.0.1:8000/v1"), "" until a command's server
    listens. command: of `serve:`, with its {port}. tokenizer: a folder whose tokenizer and template make the tokens
    that are sent; "": the server makes them of messages. prompt_logprobs: of how many of the likeliest tokens
    its drift is read, -1: of all, 0: it is not. extra_body: a JSON object's text, "" where nothing is added.
    drafts: it is said to speculate (`arm: speculation` or `both`).
    """

    endpoint: str = ""
    command: str = ""
    engine: str = ""
    tokenizer: str = ""
    api_key_env: str = ""
    concurrency: int = CONCURRENCY
    stream: bool = True
    prompt_logprobs: int = 0
    extra_body: str = ""
    extra_headers: tuple[tuple[str, str], ...] = ()
    drafts: bool = False

    @property
    def label(self) -> str:
        """For people: "vllm (started)", "served at 127.0.0.1:8000"."""
        if self.command:
            return f"{self.engine or 'server'} (started)"
        host = self.endpoint.partition("://")[2].partition("/")[0]
        return f"{self.engine or 'served'} at {host}"
