"""What a run needs at least, and that what cannot fit is refused before anything is loaded."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from qualgate.config import load_gate_file
from qualgate.errors import Exit, UsageError
from qualgate.pipeline.memory import MemoryNeed, check_memory, memory_need
from qualgate.pipeline.plan import make_plan
from qualgate.records import DraftSource, ModelFacts, QuantizeRecipe, Speculation
from qualgate.run import run_gate
from tests.command_line import qualgate
from tests.gated_model import GATE_FILE, write_evalset
from tests.tiny_models import VOCABULARY, save_tiny_model

GIB = 2**30


@pytest.fixture(scope="module")
def gate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("memory")
    save_tiny_model(folder / "model")
    write_evalset(
        folder,
        [{"id": f"c{n}", "prompt": "x" * (10 + n), "max_new_tokens": 30, "answer": "y"} for n in range(3)],
    )
    (folder / "gate.yaml").write_text(GATE_FILE)
    return load_gate_file(folder / "gate.yaml")


def test_weights_and_the_longest_answers_keys_and_values_are_counted(gate):
    plan = make_plan(gate)
    [facts] = plan.models.values()
    # Two layers of keys and values of two heads of 16 numbers.
    assert facts.kept == 2 * 2 * 2 * 16
    arms = tuple(replace(arm, kv_cache="int8", dtype="bfloat16") if arm.name == "same" else arm for arm in plan.arms)
    need = memory_need(replace(plan, arms=arms), workers=3, limit=7)
    assert (need.workers, need.limit) == (3, 7)
    longest = max(len(prompt.token_ids) for job in plan.jobs for prompt in job.prompts) + 30
    assert {name: size // facts.parameters for name, size in need.weights.items()} == {
        "baseline": 4,
        "same": 2,
        "int2": 4,  # read as it is first
    }
    assert need.cache["baseline"] == longest * facts.kept * 4
    assert need.cache["same"] == longest * facts.kept
    served = tuple(replace(arm, arithmetic="served", dtype="bfloat16") for arm in plan.arms)
    assert memory_need(replace(plan, arms=served), workers=1, limit=7).cache["baseline"] == longest * facts.kept * 2


def test_drafts_are_counted_with_their_own_keys_and_values_and_what_they_hold_while_they_are_verified(gate):
    plan = make_plan(gate)
    [(name, facts)] = plan.models.items()
    other = DraftSource(kind="model", model="other")
    made = DraftSource(kind="quantize", quantize=QuantizeRecipe(method="mxfp4", group_size=32))
    for source, kept in ((other, facts.kept + 10), (made, facts.kept)):
        speculation = Speculation(draft=source, tokens=5)
        arms = tuple(replace(arm, speculation=None if arm.is_baseline else speculation) for arm in plan.arms)
        models = {name: facts, "other": replace(facts, kept=10)}
        need = memory_need(replace(plan, arms=arms, models=models), workers=1, limit=7)
        assert need.cache["same"] * facts.kept == need.cache["baseline"] * kept
        assert need.drafts == dict.fromkeys(["same", "int2"], 5 * VOCABULARY * 4)
        assert need.of("same") == need.weights["same"] + need.cache["same"] + 5 * VOCABULARY * 4
        with pytest.raises(UsageError, match="MiB to draft for it"):
            check_memory(need)


def test_sizes_that_no_machine_holds_are_refused_with_a_message(gate):
    config = Path(gate.baseline.model) / "config.json"
    said = config.read_text()
    config.write_text(json.dumps(json.loads(said) | {"head_dim": 10**400}))
    try:
        with pytest.raises(UsageError, match="This run does not fit into memory"):
            make_plan(gate)
    finally:
        config.write_text(said)


def test_a_checkpoint_needs_what_its_files_hold(gate):
    plan = make_plan(gate)
    packed = {name: ModelFacts(method="awq", parameters=10**9, nbytes=5 * 10**8) for name in plan.models}
    need = memory_need(replace(plan, models=packed), workers=1, limit=0)
    assert set(need.weights.values()) == {5 * 10**8}
    assert set(need.cache.values()) == {0}, "its config does not say what a position keeps"


def needed(weights: int, cache: int, workers: int, limit: int) -> MemoryNeed:
    return MemoryNeed(
        weights={"baseline": weights, "other": 1}, cache={"baseline": cache, "other": 1}, workers=workers, limit=limit
    )


@pytest.mark.parametrize("fits", [needed(GIB, GIB, 4, 8 * GIB), needed(GIB, GIB, 4, 0), needed(1, 1, 1, 2)])
def test_what_fits_to_the_byte_or_is_not_known_to_fit_not_is_let_through(fits):
    check_memory(fits)


HELP = [
    (needed(GIB, 0, 4, 3 * GIB), ["baseline needs 1.00 GiB", "each of 4 w", "gives 3.00", "count: 3}"], ["kv_cache"]),
    (needed(GIB, GIB, 1, GIB), ["each of 1 worker,", "`kv_cache: int8`", "a smaller `max_new_"], ["fewer workers"]),
    (replace(needed(3 * GIB, 0, 2, 4 * GIB), gpus=2), ["hold it together, as in `workers: {dev"], ["fewer workers"]),
    (needed(4 * GIB, 0, 2, GIB), ["quantized already (`model: FOLDER`)", "more memory"], ["fewer w", "kv_cache"]),
]  # fmt: skip


@pytest.mark.parametrize(("need", "said", "unsaid"), HELP, ids=["workers", "cache", "gpus", "weights"])
def test_what_does_not_fit_is_refused_with_what_would_help(need, said, unsaid):
    with pytest.raises(UsageError) as refused:
        check_memory(need)
    for words in said:
        assert words in str(refused.value)
    for words in unsaid:
        assert words not in str(refused.value)


def test_plan_and_run_refuse_it_with_64_before_a_store_is_made(gate, monkeypatch):
    monkeypatch.setattr("qualgate.pipeline.memory.memory", lambda device: 1000)
    done = qualgate("plan", "gate.yaml", cwd=gate.path.parent)
    assert done.returncode == Exit.USAGE
    assert "does not fit into memory" in done.stderr
    with pytest.raises(UsageError, match="does not fit into memory"):
        run_gate(gate)
    assert not list(gate.path.parent.glob("*.db*"))


def test_plan_says_what_is_needed_as_text_and_as_json(gate, monkeypatch):
    monkeypatch.setattr("qualgate.pipeline.memory.memory", lambda device: 2 * GIB)
    text = " ".join(qualgate("plan", "gate.yaml", cwd=gate.path.parent).stdout.split())
    assert "Memory: at least 0." in text
    assert "of 2.00 GiB that this machine gives; libraries and work space come on top." in text
    memory = json.loads(qualgate("plan", "gate.yaml", "--json", cwd=gate.path.parent).stdout)["memory"]
    assert memory["limit"] == 2 * GIB
    assert memory["weights"].keys() == memory["cache"].keys() == {"baseline", "same", "int2"}
