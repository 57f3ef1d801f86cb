from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import pytest

from tests.depth import DEEP
from tests.harness.lm_eval_tasks import TASKS, write_tasks

DOCUMENTS = 24


@pytest.fixture(scope="session")
def folder(tmp_path_factory) -> Path:
    """Tasks of lm-eval's; the first document of `text` exceeds the shipped model's context of 1,024 tokens."""
    return write_tasks(tmp_path_factory.mktemp("tasks"), DOCUMENTS, long_text=24)


@pytest.fixture(scope="session")
def evaluated(folder):
    """`evaluated(model)`: what lm-eval says of a model on all tasks."""
    pytest.importorskip("lm_eval")
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    def evaluate(model) -> dict[str, Any]:
        manager = TaskManager(include_path=str(folder), include_defaults=False)
        with contextlib.chdir(folder):
            found = simple_evaluate(
                model=model, tasks=list(TASKS), task_manager=manager, bootstrap_iters=0, limit=None if DEEP else 6
            )
        assert found is not None
        return found

    return evaluate


@pytest.fixture(scope="session")
def theirs(evaluated):
    """What lm-eval says of the shipped model by its own model class."""
    from lm_eval.models.huggingface import HFLM

    from qualgate.refmodel import PATH

    return evaluated(HFLM(pretrained=str(PATH), dtype="float32", device="cpu", batch_size=8))


@pytest.fixture(scope="session", autouse=True)
def _offline():
    with pytest.MonkeyPatch.context() as patch:
        for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
            patch.setitem(os.environ, name, "1")
        yield
