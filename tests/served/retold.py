"""A stand-in for a real server: it sends again what that one sent, by the conversations in `recorded/`."""

from __future__ import annotations

import json
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from qualgate.served.answer import Gathering
from qualgate.served.replies import Completed
from tests.served.scripted import Reply, Scripted, as_json, scripted, sound

STREAMED = {"stream": True, "stream_options": {"include_usage": True}}
RECORDED = Path(__file__).parent / "recorded"


@contextmanager
def retold(name: str, arm: str) -> Iterator[Scripted]:
    """Answer as the server of `arm` did in the conversations `name`, again and again where it was asked once. A whole
    answer that was asked by a stream alone is put together from that. A case that it was not asked is refused; a probe
    that it was not asked gets the answer of a sound server."""
    pages: dict[str, Reply] = {}
    answers: dict[str, list[Reply]] = defaultdict(list)
    for line in _lines(name, arm):
        sent, received = line["asked"], line["said"]
        body = "".join(text for _, text in received["pieces"]).encode("utf-8", "surrogateescape")
        reply = Reply(body=body, status=received["status"], kind=received["headers"].get("content-type", ""))
        if sent["method"] == "GET":
            pages.setdefault(sent["address"].rpartition("/")[2], reply)
        else:
            answers[_key(sent["body"])].append(reply)

    def answer(body: dict[str, Any]) -> Reply | None:
        replies = answers.get(_key(body), [])
        if not replies and (streamed := answers.get(_key({**body, **STREAMED}), [])):
            return _whole(streamed[0])
        return replies.pop(0) if len(replies) > 1 else next(iter(replies), None)

    models = pages.pop("models")
    metrics = pages.pop("metrics", None)
    [version] = pages.values()
    with scripted(
        models=models,
        version=version,
        otherwise=lambda body: answer(body) or as_json({"error": f"not recorded: {json.dumps(body):.300}"}, 400),
        probes=lambda body: answer(body) or sound(body),
    ) as server:
        server.metrics = metrics
        yield server


def _whole(streamed: Reply) -> Reply:
    gathered = Gathering()
    for event in streamed.body.decode().split("\n\n"):
        if (said := event.removeprefix("data:").strip()) not in ("", "[DONE]"):
            gathered.take(Completed.model_validate_json(said), 0.0)
    found = gathered.answer(0.0)
    calls = [{"id": f"c{at}", "function": {"name": a, "arguments": b}} for at, (a, b) in enumerate(found.calls)]
    usage = {"prompt_tokens": found.prompt_tokens, "completion_tokens": found.completion_tokens}
    message = {"role": "assistant", "content": found.text, "tool_calls": calls or None}
    choice = {"index": 0, "message": message, "finish_reason": "length" if found.finish == "length" else "stop"}
    return as_json({"choices": [choice], "usage": usage})


def _lines(name: str, arm: str) -> Iterator[dict[str, Any]]:
    """The exchanges of the arm's batches and probes, and of its repetition's."""
    with zipfile.ZipFile(RECORDED / f"{name}.zip") as archive:
        for part in archive.namelist():
            if part.partition("/")[0].removesuffix("@aa") == arm:
                lines = map(json.loads, archive.read(part).decode().splitlines())
                yield from (line for line in lines if "said" in line)


def _key(body: dict[str, Any]) -> str:
    return json.dumps(body, sort_keys=True)
