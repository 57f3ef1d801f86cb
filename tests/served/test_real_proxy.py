"""A real LiteLLM proxy before two real servers: whoever answers is named, and answers are stored as they were given.

    QUALGATE_SERVERS_LITELLM=PROGRAM QUALGATE_SERVERS_LLAMACPP=PYTHON pytest -m servers tests/served/test_real_proxy.py

PROGRAM is `litellm` of `pip install "litellm[proxy]"`, PYTHON as in test_real_servers.py. The proxy routes, falls back,
balances, caches and limits; `worse` is the reference model in two bits.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from qualgate.errors import Exit
from qualgate.records import ArmSpec, Served
from qualgate.served.launch import running
from tests.benchmarks.questions import MODEL
from tests.command_line import qualgate
from tests.served.by_hand import by_hand, stored
from tests.served.test_real_servers import SERVERS, rounded, serving

pytestmark = pytest.mark.servers

CASES = 12
UNCACHED = {"cache": {"no-cache": True}}
LIMITED = "sk-two-a-minute"
KEYS = f"""
from litellm.proxy._types import UserAPIKeyAuth

async def allowed(request, api_key):
    limits = {{"rpm_limit": 2}} if api_key == {LIMITED!r} else {{}}
    return UserAPIKeyAuth(api_key=api_key or "sk-any", **limits)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Two arms behind the proxy, by the names that they ask for. says: of the report or the error."""

    baseline: str
    variant: str
    exit: Exit
    says: str
    cached: bool = False
    noise: bool = False
    key: str = ""
    budget: dict[str, str] | None = None


SCENES = {
    "each by its name": Scene(baseline="support", variant="worse", exit=Exit.BLOCK, says="fell"),
    "by aliases": Scene(baseline="prod", variant="prod-worse", exit=Exit.BLOCK, says="look whether that is meant"),
    "two names of one": Scene(baseline="support", variant="twin", exit=Exit.UNDECIDED, says="which baseline asks for"),
    "a fallback": Scene(baseline="worse", variant="flaky", exit=Exit.UNDECIDED, says="answered as a fallback"),
    "in turns": Scene(baseline="other", variant="half", exit=Exit.UNDECIDED, says="several models answered"),
    "a cache": Scene(
        baseline="support", variant="worse", exit=Exit.UNDECIDED, says="came out of a gateway's cache", cached=True,
        noise=True,
    ),
    "a cache that forgets": Scene(
        baseline="one", variant="two", exit=Exit.UNDECIDED, says="no case was asked", cached=True
    ),
    "a limit": Scene(
        baseline="support", variant="worse", exit=Exit.INFRASTRUCTURE, says="requests_per_minute", key=LIMITED,
        budget={"patience": "30s"},
    ),
}  # fmt: skip


def configured(support: str, worse: str) -> dict[str, Any]:
    """LiteLLM's configuration. `flaky` is where nobody listens; `one` and `two` share a cache."""

    def deployment(name: str, model: str, address: str) -> dict[str, Any]:
        told = {"model": f"openai/{model}", "api_base": address, "api_key": "none"}
        return {"model_name": name, "litellm_params": told}

    return {
        "model_list": [
            *(deployment(name, "support", support) for name in ("support", "half", "one", "other")),
            *(deployment(name, "worse", worse) for name in ("worse", "half", "two")),
            deployment("flaky", "flaky", "http://127.0.0.1:9/v1"),
        ],
        "router_settings": {
            "num_retries": 0, "disable_cooldowns": True, "fallbacks": [{"flaky": ["support"]}],
            "model_group_alias": {"prod": "support", "prod-worse": "worse", "twin": "support"},
            "caching_groups": [["one", "two"]],
        },
        "litellm_settings": {"cache": True, "cache_params": {"type": "local"}},
        "general_settings": {"custom_auth": "keys.allowed", "master_key": "sk-master-of-this-test-alone"},
    }  # fmt: skip


@pytest.fixture(scope="module")
def addresses(tmp_path_factory) -> Iterator[dict[str, str]]:
    """Of the two servers by their models' names, and of the proxy before them."""
    program, llamacpp = os.environ.get("QUALGATE_SERVERS_LITELLM", ""), SERVERS["llamacpp F32"]
    if not (program and llamacpp.program):
        pytest.skip("QUALGATE_SERVERS_LITELLM and QUALGATE_SERVERS_LLAMACPP name no proxy and no server")
    folder = tmp_path_factory.mktemp("proxied")
    shutil.copytree(MODEL, folder / "support")
    rounded(folder / "worse", levels=2)
    with ExitStack() as entered:
        patch = entered.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
        found = {}
        for name in ("support", "worse"):
            command = f"{llamacpp.started_by(folder / name)} {name}"
            arm = entered.enter_context(serving(replace(llamacpp, model=name), command, folder))
            assert arm.served is not None
            found[name] = arm.served.endpoint
        (folder / "keys.py").write_text(KEYS)
        (folder / "proxy.yaml").write_text(json.dumps(configured(found["support"], found["worse"])))
        serve = Served(command=f"{program} --config {folder / 'proxy.yaml'} --host 127.0.0.1 --port {{port}}")
        proxy = ArmSpec(name="proxy", model="support", served=serve)
        started = entered.enter_context(running(proxy, folder, lambda: False))
        assert started is not None
        assert started.served is not None
        yield {**found, "proxy": started.served.endpoint}


@pytest.fixture(scope="module")
def cases() -> list[dict[str, Any]]:
    lines = (files("qualgate_evalsets") / "json_extract.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines[:CASES]]


def written(folder: Path, scene: Scene, proxy: str, cases: list[dict[str, Any]]) -> None:
    # One at a time: of sixteen requests at once LiteLLM lets more through than its limit.
    keyed = {"api_key_env": "PROXY_KEY", "concurrency": 1} if scene.key else {}
    more = keyed if scene.cached else {**keyed, "extra_body": UNCACHED}
    rules = [{"metric": "json.schema", "max_drop": 0.15}]
    gate = {
        "version": 1,
        "baseline": {"endpoint": proxy, "model": scene.baseline, **more},
        "variants": {"v": {"endpoint": proxy, "model": scene.variant, **more}},
        "evalsets": ["./few.yaml"],
        "gate": {"rules": rules, **({} if scene.noise else {"noise_floor": False})},
        "store": "sqlite:///run.db",
        **({"budget": scene.budget} if scene.budget else {}),
    }
    (folder / "gate.yaml").write_text(json.dumps(gate))
    (folder / "few.yaml").write_text('{"name": "few", "version": "1", "metrics": ["json.schema"]}')
    (folder / "few.jsonl").write_text("".join(f"{json.dumps(case)}\n" for case in cases))


@pytest.mark.parametrize("name", SCENES)
def test_a_verdict_behind_a_real_proxy_is_that_of_who_really_answered(name, addresses, cases, tmp_path):
    scene = SCENES[name]
    written(tmp_path, scene, addresses["proxy"], cases)
    done = qualgate("run", "gate.yaml", cwd=tmp_path, PROXY_KEY=scene.key or "none")
    assert done.returncode == scene.exit, done.stdout + done.stderr
    assert scene.says in done.stdout + done.stderr
    if scene.exit == Exit.BLOCK:
        for arm, model in (("baseline", "support"), ("v", "worse")):
            assert stored(tmp_path, arm) == by_hand(addresses[model], model, cases)
