"""Identity of a served arm: from the gate file, and from what its server declares of itself."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from qualgate.errors import close_names
from qualgate.quant.agreement.sampling_defaults import sampling_defaults
from qualgate.quant.model_folder import ModelFolder
from qualgate.records import ArmIdentity, ArmSpec
from qualgate.records.identity import content_hash, own_version, sha256_text
from qualgate.records.served import OMIT
from qualgate.served.engines import loads_what_it_is_asked, version_at
from qualgate.served.faults import ADDRESS, UNLISTED, ModelGone, NotServed
from qualgate.served.replies import Models, Version

if TYPE_CHECKING:
    from qualgate.served.client import Client

MOST_NAMED = 300  # characters of a model's name and root
THE_SERVERS_OWN = "the server's own"  # tokenizer, template, stop tokens, unseen by us


async def declared(client: Client, arm: ArmSpec) -> str:
    """Return what the server declares to serve as the arm's model: "support-awq, root ./support-awq; vllm 0.32.0".

    NotServed if it does not serve a model of that name, or sends no list of models.
    """
    if arm.served and not arm.served.list_models:
        return f"{arm.model[:MOST_NAMED]}, which is not looked up; {await _engine(client, arm)}"
    models = await client.get("/models", Models)
    if models is None:
        raise NotServed(f"{arm.name}: there is no /models at {_address(arm)}. {ADDRESS}. {UNLISTED}.")
    names = [entry.id for entry in models.data]
    if arm.model not in names and arm.served and loads_what_it_is_asked(arm.served.engine):
        return f"{arm.model[:MOST_NAMED]}, which it does not list; {await _engine(client, arm)}"
    if arm.model not in names:
        near = close_names(arm.model, names)
        known = f"did you mean {near[0]!r:.80}?" if near else f"it serves {', '.join(names[:5])!r:.200}"
        if not names:
            known = f"it lists none. Of `transformers serve`, say `engine: transformers`. {UNLISTED}."
        if any("*" in name for name in names):
            known = f"it lists {', '.join(names[:5])!r:.200}, which is no model's name. {UNLISTED}."
        raise ModelGone(f"{arm.name}: {_address(arm)} serves no model {arm.model!r}; {known}")
    model = next(entry for entry in models.data if entry.id == arm.model)
    root = f", root {model.root}" if model.root not in (None, model.id) else ""
    model_name = f"{model.id}{root}"[:MOST_NAMED]  # behind which no version is hidden, however long it is
    return f"{model_name}; {await _engine(client, arm)}"


async def only_model(client: Client, name: str, option: str) -> str:
    """Return the one model that the server lists. NotServed if it does not list exactly one; the message names some,
    and the option to choose one."""
    models = await client.get("/models", Models)
    if models is None:
        raise NotServed(f"{name}: there is no /models at that address. {ADDRESS}.")
    names = list(dict.fromkeys(entry.id for entry in models.data))
    if len(names) != 1:
        listed = f"{len(names)} models ({', '.join(names[:5])!r:.200})" if names else "no model"
        raise NotServed(f"{name}: its server lists {listed}; {option} NAME says which is asked.")
    return names[0]


async def _engine(client: Client, arm: ArmSpec) -> str:
    """Return engine and version as declared, "vllm 0.32.0"; without a version if the server reports none."""
    served = arm.served
    assert served is not None, "asked of served arms alone"
    try:
        version = await client.get(version_at(served.engine), Version, of_host=True)
    except NotServed:  # not every server has one, and some have a page for people at every address
        version = None
    name = served.engine or (version.engine if version and version.engine else "engine not told")
    return f"{name} {version.version}" if version else name


def identify_served(
    arm: ArmSpec, folder: ModelFolder | None, sampling: dict[str, Any], declaration: str
) -> ArmIdentity:
    """Return a served arm's identity. folder: of its tokenizer, None if the server tokenizes. declaration: see
    `declared`; "" for a server that is not running yet."""
    served = arm.served
    assert served is not None, "asked of served arms alone"
    not_known_here = sha256_text(THE_SERVERS_OWN)
    config: list[Any] = [served.engine, served.stream, served.extra_body, list(map(list, served.extra_headers))]
    config += [dict(served.parameters)] * bool(served.parameters)
    config += [{"extra_query": dict(served.extra_query)}] * bool(served.extra_query)
    stops: dict[str, Any] = {"stop_ids": folder.stop_ids if folder else THE_SERVERS_OWN}
    if folder and (defaults := sampling_defaults(folder.files)):
        stops["defaults"] = defaults  # which its server applies where a request leaves them unset
    if left_out := [name for name, to in served.parameters if to == OMIT and name in ("temperature", "top_p", "seed")]:
        stops["left out"] = left_out
    if folder and folder.rope:
        stops["rope"] = folder.rope
    return ArmIdentity(
        weights=content_hash(
            ["served", served.command or served.endpoint, arm.model] + [served.weights] * bool(served.weights)
        ),
        config=content_hash(config + [served.prompt_logprobs] * bool(served.prompt_logprobs)),
        tokenizer=folder.tokenizer_sha256 if folder else not_known_here,
        template=folder.template_sha256 if folder else not_known_here,
        sampling=content_hash({**sampling, **stops}),
        engine=f"served, asked by qualgate {own_version()}",
        served=served.started(os.environ) or declaration,
    )


def _address(arm: ArmSpec) -> str:
    return arm.served.endpoint if arm.served else ""
