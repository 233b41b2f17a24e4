"""kill -9 of dvc and the trainer in mid-training: the next `dvc repro` ends with the same weights."""

import os
import random
import signal
import time

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
WEIGHTS = "experiments/X1-pretraining/run-cloud/checkpoint/model.safetensors"


def wait_for_a_checkpoint(project, seconds=60):
    """Until the training stage has saved a state (of this run: there is no scratch before)."""
    stop = time.monotonic() + seconds
    while time.monotonic() < stop:
        if list((project.root / ".scratch/train").glob("*/step-*")):
            return
        time.sleep(0.02)
    pytest.fail("the trainer saved no checkpoint")


@pytest.mark.parametrize("who", ["everything", "dvc alone"])
def test_a_killed_study_resumes_to_the_same_weights(smoke_copy, who):
    expected = smoke_copy.read(WEIGHTS)
    smoke_copy.replace("experiments/profiles/smoke.yaml", "checkpoint_every: 50", "checkpoint_every: 10")
    smoke_copy.run("dvc", "repro", "train")  # the checkpoint's rhythm changes no bit
    assert smoke_copy.read(WEIGHTS) == expected
    rng = random.Random(0)
    for _ in range(2):
        for folder in (smoke_copy.root / ".scratch/train").glob("*/step-*"):
            os.rename(folder, folder.with_name("old-" + folder.name))
        process = smoke_copy.start("dvc", "repro", "-f", "-s", "train")
        wait_for_a_checkpoint(smoke_copy)
        time.sleep(rng.uniform(0, 0.3))
        if who == "everything":
            os.killpg(process.pid, signal.SIGKILL)
        else:
            os.kill(process.pid, signal.SIGKILL)
        process.wait()
    smoke_copy.run("dvc", "repro", "train")
    assert smoke_copy.read(WEIGHTS) == expected
