"""Several GPUs, named by a gate file, on a machine whose driver is a script."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from qualgate.engine.device import choose_device
from qualgate.engine.gpus import as_environment, check_alike, gpus_of, together
from qualgate.errors import UsageError

SMI = """#!/bin/sh
case "$1" in
  --id=0|--id=1) echo "NVIDIA H100 80GB HBM3, 81559 MiB";;
  --id=2|--id=GPU-7) echo "NVIDIA A100-SXM4-40GB, 40960 MiB";;
  *) echo "No devices were found"; exit 6;;
esac
"""


@pytest.fixture(autouse=True)
def driver(tmp_path, monkeypatch):
    file = tmp_path / "nvidia-smi"
    file.write_text(SMI)
    file.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return file


def test_gpus_of_one_kind_may_share_a_run():
    check_alike([(0,), (1,)])
    check_alike([(0, 1)])


@pytest.mark.parametrize(
    ("devices", "said"),
    [
        ([(0,), (2,)], r"unlike kinds \(0: NVIDIA H100 80GB HBM3, 81559 MiB; 2: NVIDIA A100-SXM4-40GB, 40960 MiB\)"),
        ([(0, 5)], r"GPU 5 of `workers\.devices` is not there: nvidia-smi says 'No devices were found'"),
    ],
)
def test_unlike_ones_and_one_that_is_not_there_are_refused(devices, said):
    with pytest.raises(UsageError, match=said):
        check_alike(devices)


def test_those_that_the_environment_leaves_are_counted_from_0(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2, GPU-7")
    assert gpus_of([(0,), (1,)]) == ("2", "GPU-7")
    assert gpus_of([(1, 0)]) == ("GPU-7,2",)
    check_alike([(1,), (0,)])
    with pytest.raises(UsageError, match="names GPU 2, and CUDA_VISIBLE_DEVICES=2, GPU-7 leaves 2"):
        gpus_of([(2,)])


def test_a_process_is_told_how_many_it_has_to_itself(monkeypatch):
    assert together() == 1
    for gpus, count in (("3", 1), ("2,GPU-7", 2)):
        for name, value in as_environment(gpus).items():
            monkeypatch.setenv(name, value)
        assert (together(), os.environ["CUDA_VISIBLE_DEVICES"]) == (count, gpus)


def test_without_a_driver_the_plan_says_what_to_write(driver, monkeypatch):
    driver.unlink()
    monkeypatch.setenv("PATH", str(driver.parent))
    with pytest.raises(UsageError, match=r"cannot be looked at: nvidia-smi gives .*Write `devices: auto`"):
        check_alike([(0,)])


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="this machine has a GPU")
def test_named_gpus_are_never_silently_a_cpu():
    assert choose_device("auto") == "cpu"
    with pytest.raises(UsageError, match="names GPUs, and none can be used here"):
        choose_device(((0,), (1,)))
