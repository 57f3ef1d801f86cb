"""The row `identity`: whoever answers in place of the model that was asked for, no arm is approved on it in silence;
and honest names, ids and times are no reason to refuse one.

Each way is a whole `qualgate run` before a gateway on a socket. All models here answer right, so that nothing but who
answered can keep a run from its approval. A gateway that writes a new name, id and time over another's reply, and says
nothing in its headers, is not among the ways: nothing in a reply tells then.
"""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from qualgate.errors import Exit
from tests.command_line import qualgate
from tests.gated_model import write_evalset
from tests.served.scripted import scripted
from tests.verification.goals import SERVED
from tests.verification.served.gateways import Body, Gateway, Sent, number, question

CASES, TOOLS_FROM, LONG_FROM = 60, 40, 55
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
TOLD = "look whether that is meant"  # the note of an approval that is not silent
NAMED = ("several models answered", "asks for: a gateway", "a cache between", "gateway's cache", "as a fallback",
         "lacks its", "one address sends both", "a new question, and one reply", TOLD)  # fmt: skip
WHOLE = "answers are asked whole"  # the note of an arm whose stream is not trusted
Act = Callable[[Gateway, Body, Sent], Sent]
When = Callable[[Gateway, Body], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """baseline, variant: what they ask for. addresses: of how many servers; more: keys of the variant's arm; second:
    another variant, and what it asks for; noise: whether the baseline is asked twice."""

    name: str
    act: Act
    baseline: str = "support"
    variant: str = "compact"
    addresses: int = 1
    stream: bool = True
    more: str = ""
    second: str = ""
    noise: bool = False


# -------------------------------------------------------------------------------- when it strikes


def always(gateway: Gateway, body: Body) -> bool:
    return True


def cases(gateway: Gateway, body: Body) -> bool:
    return number(body) >= 0


def some(*numbers: int) -> When:
    return lambda gateway, body: number(body) in numbers


def every(share: int) -> When:
    return lambda gateway, body: next(gateway.count) % share == 0


def late(gateway: Gateway, body: Body) -> bool:
    return number(body) >= 50


def with_tools(gateway: Gateway, body: Body) -> bool:
    return number(body) >= 0 and "tools" in body


def streamed(gateway: Gateway, body: Body) -> bool:
    return bool(body.get("stream"))


def whole(gateway: Gateway, body: Body) -> bool:
    return not body.get("stream")


def long(gateway: Gateway, body: Body) -> bool:
    return number(body) >= 0 and len(question(body)) > 200


def of(model: str, when: When = always) -> When:
    return lambda gateway, body: body["model"] == model and when(gateway, body)


# -------------------------------------------------------------------------------- who answers in its place


def cached(when: When = always, key: Callable[[Body], Any] = question, **over: Any) -> Act:
    """A cache that forgets the model. over: what it writes anew, a value or a function of what was asked and stored."""

    def act(gateway: Gateway, body: Body, own: Sent) -> Sent:
        stored = gateway.first((key(body), body.get("temperature"), body.get("stream")), own)
        if stored is own or not when(gateway, body):
            return own
        return replace(stored, **{name: one(own, stored) if callable(one) else one for name, one in over.items()})

    return act


def asked_name(own: Sent, stored: Sent) -> Any:
    return own.model


def new_id(own: Sent, stored: Sent) -> Any:
    return own.id


def new_time(own: Sent, stored: Sent) -> Any:
    return stored.created + 7


def instead(name: Any, when: When = always, model: str = "compact", **over: Any) -> Act:
    """Another model answers for one; name: what its reply calls it, or a function of the gateway."""

    def act(gateway: Gateway, body: Body, own: Sent) -> Sent:
        if body["model"] != model or not when(gateway, body):
            return own
        return replace(own, model=name(gateway) if callable(name) else name, **over)

    return act


def headed(when: When = always, model: str = "compact", **headers: str) -> Act:
    """The body tells nothing, the headers do."""
    return instead(model, when, model, headers=headers)


def litellm(route: Callable[[Gateway, Body], tuple[str, str, str]]) -> Act:
    """route: the model behind the name, its deployment, and how many fallbacks came before."""

    def act(gateway: Gateway, body: Body, own: Sent) -> Sent:
        name, deployment, fallbacks = route(gateway, body)
        headers = {"x-litellm-model-name": name, "x-litellm-model-id": deployment * 16,
                   "x-litellm-attempted-fallbacks": fallbacks}  # fmt: skip
        return replace(own, headers=headers)

    return act


def renamed(**names: str) -> Act:
    """Each arm's replies name what is given for it."""
    return lambda gateway, body, own: replace(own, model=names.get(body["model"].replace("-", "_"), own.model))


def written(**over: Any) -> Act:
    """Every reply has these, values or functions of gateway, body and reply."""

    def act(gateway: Gateway, body: Body, own: Sent) -> Sent:
        return replace(own, **{name: one(gateway, body, own) if callable(one) else one for name, one in over.items()})

    return act


def once(gateway: Gateway, body: Body, own: Sent) -> Sent:
    """A cache that knows the model: only the same arm meets it."""
    return gateway.first((body["model"], question(body), body.get("temperature"), body.get("seed")), own)


REWRITTEN: dict[str, Any] = {"model": asked_name, "created": new_time, "id": new_id}
DEPLOYED = {"support": ("openai/support-up", "aa01", "0"), "compact": ("openai/compact-up", "bb02", "0")}

BY_ANOTHER: Sequence[Way] = (
    Way(name="cache as it is", act=cached()),
    Way(name="cache as it is, whole", act=cached(), stream=False),
    Way(name="cache that names the one asked for", act=cached(model=asked_name)),
    Way(name="cache with a new time", act=cached(created=new_time)),
    Way(name="cache with a new time and name", act=cached(model=asked_name, created=new_time)),
    Way(name="cache with a new id", act=cached(id=new_id)),
    Way(name="cache without a name", act=cached(model=None)),
    Way(name="cache that cuts a stream anew", act=cached(model=asked_name, cut=4)),
    Way(name="cache that trims texts", act=cached(model=asked_name, text=lambda own, stored: f" {stored.text}\n")),
    Way(name="cache that meets half", act=cached(every(2), model=asked_name)),
    Way(name="cache that meets one of fifty", act=cached(every(50), model=asked_name)),
    Way(name="cache that meets one late case", act=cached(some(57), model=asked_name)),
    Way(name="cache that meets the first case", act=cached(some(0), model=asked_name)),
    Way(name="cache of cases alone", act=cached(cases, model=asked_name)),
    Way(name="cache of streams alone", act=cached(streamed, model=asked_name)),
    Way(name="cache of whole replies alone", act=cached(whole, model=asked_name), stream=False),
    Way(name="cache of questions with tools alone", act=cached(with_tools, model=asked_name)),
    Way(name="cache of long prompts alone", act=cached(long, model=asked_name)),
    Way(name="cache by meaning: another case's reply",
        act=cached(cases, key=lambda body: number(body) // 2, model=asked_name)),
    Way(name="cache by the address alone", act=cached(key=lambda body: 0)),
    Way(name="cache with short ids and times", act=lambda gateway, body, own: cached(model=asked_name)(
        gateway, body, replace(own, id=f"chatcmpl-{next(gateway.count)}", created=1))),
    Way(name="cache between two variants", second="third", act=lambda gateway, body, own: own if body["model"] ==
        "support" else cached(model=asked_name)(gateway, body, own)),
    Way(name="cache before two addresses", addresses=2, act=cached(model=asked_name)),
    Way(name="the A/A arm out of a cache", act=once, noise=True),
    Way(name="one case of the A/A arm out of a cache", act=lambda gateway, body, own: once(gateway, body, own)
        if number(body) == 41 else own, noise=True),
    Way(name="all written anew, x-cache", act=cached(cases, headers={"X-Cache": "HIT"}, **REWRITTEN)),
    Way(name="all written anew, Cloudflare", act=cached(cases, headers={"cf-aig-cache-status": "HIT"}, **REWRITTEN)),
    Way(name="all written anew, Portkey", act=cached(cases, headers={"x-portkey-cache-status": "HIT"}, **REWRITTEN)),
    Way(name="all written anew, Helicone", act=cached(cases, headers={"Helicone-Cache": "HIT"}, **REWRITTEN)),
    Way(name="all written anew, LiteLLM", act=cached(cases, headers={"x-litellm-cache-key": "6de3"}, **REWRITTEN)),
    Way(name="GPTCache", act=cached(model=..., id=..., created=new_time, more={"gptcache": True})),
    Way(name="stale answers of the same name", act=headed(cases, **{"x-cache-status": "Hit"})),
    Way(name="fallback for all", act=instead("other-model-fallback")),
    Way(name="fallback for all, whole", act=instead("other-model-fallback"), stream=False),
    Way(name="fallback to the baseline", act=instead("support")),
    Way(name="fallback for half", act=instead("other", every(2))),
    Way(name="fallback for half to a like name", act=instead("compact-lite", every(2))),
    Way(name="fallback for a third to the baseline", act=instead("support", every(3))),
    Way(name="fallback for late cases", act=instead("other", late)),
    Way(name="fallback for one case", act=instead("other", some(31))),
    Way(name="fallback for all cases, none of the probes", act=instead("compact-large", cases)),
    Way(name="fallback for questions with tools", act=instead("other", with_tools)),
    Way(name="fallback for long prompts", act=instead("other", long)),
    Way(name="fallback for streams", act=instead("other", streamed)),
    Way(name="fallback for whole replies", act=instead("other", whole), stream=False),
    Way(name="the baseline's name in other letters", act=instead("Support")),
    Way(name="the baseline's name with an owner", act=instead("openai/support")),
    Way(name="the baseline's dated name", act=renamed(support="support-2026-08-06", compact="support-2026-08-06")),
    Way(name="an adapter's base", variant="sql-lora", baseline="meta/Llama-3", act=instead("meta/Llama-3",
        model="sql-lora")),
    Way(name="a name without its quantization", variant="llama-3-awq", act=instead("llama-3", model="llama-3-awq")),
    Way(name="an alias that moves on during the run", act=lambda gateway, body, own: replace(
        own, model=f"{own.model}-2026-{'11' if number(body) >= 30 else '08'}-06")),
    Way(name="three models in turn", act=instead(lambda gateway: ("a", "b", "c")[next(gateway.count) % 3])),
    Way(name="no name for half", act=instead(None, lambda gateway, body: number(body) % 2 == 1)),
    Way(name="another name in the first piece", act=instead("compact", names=("other", "compact"))),
    Way(name="another name in the last pieces", act=instead("compact", names=("compact", "other"))),
    Way(name="the other variant's name", second="third", act=instead("third")),
    Way(name="LiteLLM balances two models", act=litellm(lambda gateway, body: DEPLOYED[
        ("support", "compact")[next(gateway.count) % 2] if body["model"] == "compact" else "support"])),
    Way(name="LiteLLM falls back for all", act=litellm(lambda gateway, body: ("openai/other", "cc", "1")
        if body["model"] == "compact" else DEPLOYED["support"])),
    Way(name="LiteLLM falls back for one", act=litellm(lambda gateway, body: ("openai/compact-up", "cc", "1")
        if body["model"] == "compact" and number(body) == 44 else DEPLOYED[body["model"]])),
    Way(name="LiteLLM sends both to one deployment", act=litellm(lambda gateway, body: DEPLOYED["support"])),
    Way(name="Kong names another", act=headed(every(2), **{"X-Kong-LLM-Model": "openai/other"})),
    Way(name="Cloudflare falls back", act=headed(late, **{"cf-aig-step": "1"})),
    Way(name="Helicone falls back", act=headed(late, **{"Helicone-Fallback-Index": "2"})),
    Way(name="a fallback that is not the one allowed", more="answered_by: [compact-2]",
        act=instead(lambda gateway: ("compact-2", "compact-3")[next(gateway.count) % 2])),
)  # fmt: skip

HONEST: Sequence[Way] = (
    Way(name="names as asked", act=written()),
    Way(name="whole", act=written(), stream=False),
    Way(name="A/A", act=written(), noise=True),
    Way(name="dated names", act=renamed(support="support-2026-08-06", compact="compact-2026-07-18")),
    Way(name="dated names of four digits", act=renamed(support="support-0613", compact="compact-1106")),
    Way(name="dated in streams alone", act=lambda gateway, body, own: replace(
        own, model=own.model + "-2026-08-06" * bool(body.get("stream")))),
    Way(name="an owner asked for", baseline="openai/support", variant="openai/compact",
        act=written(model=lambda gateway, body, own: own.model.rpartition("/")[2])),
    Way(name="an owner in replies", act=written(model=lambda gateway, body, own: f"openai/{own.model}")),
    Way(name="two owners", variant="openrouter/acme/compact", act=instead("acme/compact",
        model="openrouter/acme/compact")),
    Way(name="other letters", baseline="Acme/Support", variant="Acme/Compact",
        act=written(model=lambda gateway, body, own: own.model.lower())),
    Way(name="an adapter", baseline="meta/Llama-3", variant="sql-lora", act=written()),
    Way(name="paths", baseline="/models/support", variant="/models/compact-awq", act=written()),
    Way(name="paths with a slash behind", baseline="/models/support/", variant="/models/compact/",
        act=written(model=lambda gateway, body, own: own.model.rstrip("/"))),
    Way(name="paths in replies", act=written(model=lambda gateway, body, own: f"/srv/{own.model}")),
    Way(name="a GGUF's file in replies", act=written(
        model=lambda gateway, body, own: f"/srv/{own.model}.Q4_K_M.gguf")),
    Way(name="the first of several served names", act=renamed(compact="production")),
    Way(name="latest", act=written(model=lambda gateway, body, own: f"{own.model}:latest")),
    Way(name="a region", act=written(model=lambda gateway, body, own: f"us.{own.model}")),
    Way(name="a router's suffix", act=written(model=lambda gateway, body, own: f"{own.model}:fireworks-ai")),
    Way(name="a digest", act=written(model=lambda gateway, body, own: f"{own.model}@sha256:9f2c")),
    Way(name="a provider's account", act=written(
        model=lambda gateway, body, own: f"accounts/fireworks/models/{own.model}")),
    Way(name="blanks around a name", act=written(model=lambda gateway, body, own: f" {own.model} ")),
    Way(name="Azure's deployments", baseline="prod-full", variant="prod-mini",
        act=renamed(prod_full="gpt-4o-2024-08-06", prod_mini="gpt-4o-mini-2024-07-18")),
    Way(name="Azure's first piece", act=lambda gateway, body, own: replace(own, names=("", own.model))),
    Way(name="one constant name at two addresses", addresses=2, act=written(model="gpt-3.5-turbo")),
    Way(name="one name at two addresses", variant="support", addresses=2, act=written()),
    Way(name="one dated name at two addresses", variant="support", addresses=2,
        act=written(model="support-2026-08-06")),
    Way(name="a constant id", act=written(id="chatcmpl-0")),
    Way(name="a long constant id", act=written(id=f"chatcmpl-{uuid.uuid5(uuid.NAMESPACE_DNS, 'x').hex}")),
    Way(name="an empty id", act=written(id="")),
    Way(name="a null id", act=written(id=None), noise=True),
    Way(name="no id", act=written(id=...)),
    Way(name="a number as id", act=written(id=7)),
    Way(name="time 0", act=written(created=0)),
    Way(name="no time", act=written(created=...)),
    Way(name="a constant time", act=written(created=1_700_000_000), noise=True),
    Way(name="a time in floats", act=written(created=lambda gateway, body, own: own.created + 0.25)),
    Way(name="counts as ids at two addresses", addresses=2,
        act=written(id=lambda gateway, body, own: f"cmpl-{next(gateway.count)}", created=1)),
    Way(name="ids of three digits", act=written(id=lambda gateway, body, own: f"chatcmpl-{hash(own.id) % 999}")),
    Way(name="one fingerprint", act=written(more={"system_fingerprint": "fp_1"})),
    Way(name="fingerprints that change", act=written(
        more=lambda gateway, body, own: {"system_fingerprint": f"fp_{next(gateway.count) % 3}"})),
    Way(name="replies without a name", act=written(model=...)),
    Way(name="a null name", act=written(model=None)),
    Way(name="a number as name", act=written(model=3)),
    Way(name="two names, allowed", more="answered_by: [a, b]",
        act=instead(lambda gateway: ("a", "b")[next(gateway.count) % 2])),
    Way(name="the baseline's name, allowed", more="answered_by: [support]", act=instead("support")),
    Way(name="a cache that knows the model", act=once),
    Way(name="cached tokens of the prompt", act=written(more={"prompt_tokens_details": {"cached_tokens": 2}})),
    Way(name="caches that miss", act=written(headers={"X-Cache": "Miss from edge", "cf-cache-status": "DYNAMIC"})),
    Way(name="a provider that changes", act=written(
        more=lambda gateway, body, own: {"provider": f"p{next(gateway.count) % 3}"})),
    Way(name="LiteLLM", act=litellm(lambda gateway, body: DEPLOYED[body["model"]]), noise=True),
    Way(name="LiteLLM before one name at two addresses",
        act=litellm(lambda gateway, body: ("openai/m", DEPLOYED[body["model"]][1], "0"))),
    Way(name="LiteLLM balances replicas", act=litellm(lambda gateway, body: (
        DEPLOYED[body["model"]][0], f"{body['model'][0]}{next(gateway.count) % 2}00", "0"))),
    Way(name="Cloudflare's first step", act=written(headers={"cf-aig-step": "0"})),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What a run came to. named: its report says who else answered."""

    way: str
    honest: bool
    exit: int
    named: bool
    said: str

    @property
    def holds(self) -> bool:
        return self.exit == Exit.APPROVE if self.honest else self.named and self.exit in (Exit.APPROVE, Exit.UNDECIDED)


def measure(quick: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rounds and the row. quick: every twelfth way."""
    step = 12 if quick else 1
    rounds = [judged(way, honest=ways is HONEST) for ways in (BY_ANOTHER, HONEST) for way in ways[::step]]
    others, honest = ([one for one in rounds if one.honest is kind] for kind in (False, True))
    told = {
        "ways": len(others),
        "approved in silence": sum(one.exit == Exit.APPROVE and not one.named for one in others),
        "not named": sum(not one.holds for one in others),
        "honest": len(honest),
        "refused": sum(not one.holds for one in honest),
    }
    few = f"{len(rounds)} runs" if quick else None
    met = all(one.holds for one in rounds) and min(len(BY_ANOTHER), len(HONEST)) >= 40
    return [asdict(one) for one in rounds], [SERVED.row("identity", told, met=met, few=few)]


def judged(way: Way, *, honest: bool) -> Judged:
    """A run behind the gateway."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        gateway = Gateway(way.act)
        kept = gateway if not honest else None  # at two honest addresses each has its own memory
        servers = [
            stack.enter_context(scripted(otherwise=one, probes=one))
            for one in (kept or Gateway(way.act) for _ in range(way.addresses))
        ]
        for server in servers:
            server.models = replace(server.models, body=_models(way))
        write_evalset(folder, [_case(at) for at in range(CASES)], "chats")
        (folder / "gate.yaml").write_text(_gate(way, [one.address for one in servers]))
        done = qualgate("run", "gate.yaml", cwd=folder)
    said = " ".join((done.stdout + done.stderr).split())
    named = any(words in said for words in NAMED)
    if way.stream and WHOLE in said and not named:  # then the streams of this way were never read
        return Judged(way=way.name, honest=honest, exit=-1, named=False, said=said[-1500:])
    holds = done.returncode == Exit.APPROVE if honest else named
    return Judged(way=way.name, honest=honest, exit=done.returncode, named=named, said="" if holds else said[-1500:])


def _models(way: Way) -> bytes:
    names = ", ".join(f'{{"id": "{one}"}}' for one in (way.baseline, way.variant, way.second) if one)
    return f'{{"data": [{names}]}}'.encode()


def _case(at: int) -> dict[str, Any]:
    text = f"question {at}" + " of many words" * (20 if at >= LONG_FROM else 0)
    row = {"id": f"c-{at:03d}", "messages": [{"role": "user", "content": text}], "max_new_tokens": 8, "task": "plain"}
    return row | ({"tools": [TOOL]} if at >= TOOLS_FROM else {}) | {"answer": f"answer {at}"}


def _gate(way: Way, addresses: Sequence[str]) -> str:
    stream, noise = str(way.stream).lower(), str(way.noise).lower()
    second = f"  w: {{endpoint: '{addresses[0]}', model: '{way.second}'}}\n" if way.second else ""
    return (
        f"version: 1\nbaseline: {{endpoint: '{addresses[0]}', model: '{way.baseline}', stream: {stream}}}\n"
        f"variants:\n  v: {{endpoint: '{addresses[-1]}', model: '{way.variant}', stream: {stream}, {way.more}}}\n"
        f"{second}evalsets: [./chats.yaml]\n"
        f"gate: {{noise_floor: {noise}, rules: [{{metric: exact_match, max_drop: 0.10}}]}}\n"
        "workers: {count: 1}\nstore: sqlite:///qualgate.db\n"
    )
