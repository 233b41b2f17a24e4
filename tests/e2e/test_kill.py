"""kill -9 of dvc and the trainer in mid-training: the next `dvc repro` ends with the same bytes."""

import os
import random
import signal
import time

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
RUN = "experiments/X1-pretraining/run-cloud"
OUTPUTS = [f"{RUN}/checkpoint/model.safetensors", f"{RUN}/metrics.json", f"{RUN}/curve.csv"]
KILLS = 3
# Without the option DVC would fetch the finished stage from its run-cache, and prove nothing.
REPRO = ("dvc", "repro", "--no-run-cache")


def newest_state(project):
    """The name of the last state that the training stage saved, or None."""
    return max((folder.name for folder in (project.root / ".scratch/train").glob("*/step-*")), default=None)


def wait_for_another_state(project, process, known, seconds=60):
    stop = time.monotonic() + seconds
    while newest_state(project) in (None, known):
        if time.monotonic() > stop or process.poll() is not None:
            pytest.fail("the trainer saved no further state")
        time.sleep(0.01)


@pytest.mark.parametrize("who", ["everything", "dvc alone"])
def test_a_killed_study_resumes_to_the_same_bytes(smoke_copy, who):
    weights = smoke_copy.read(OUTPUTS[0])
    smoke_copy.replace("experiments/profiles/smoke.yaml", "checkpoint_every: 50", "checkpoint_every: 10")
    smoke_copy.run("dvc", "repro", "train")
    assert smoke_copy.read(OUTPUTS[0]) == weights, "the rhythm of checkpoints changes no bit"
    expected = [smoke_copy.read(path) for path in OUTPUTS]

    smoke_copy.run("git", "checkout", "-q", "dvc.lock")  # as if this run had never been made
    rng, known = random.Random(0), newest_state(smoke_copy)
    for _ in range(KILLS):
        process = smoke_copy.start(*REPRO, "train")
        wait_for_another_state(smoke_copy, process, known)
        time.sleep(rng.uniform(0, 0.1))
        known = newest_state(smoke_copy)
        if who == "everything":
            os.killpg(process.pid, signal.SIGKILL)
        else:
            os.kill(process.pid, signal.SIGKILL)
        process.wait()
        if who == "dvc alone":
            break  # its trainer goes on; the next one must wait for it

    resumed = smoke_copy.run(*REPRO, "train")
    if who == "everything":
        assert "resuming at step" in resumed.stdout
    else:
        assert "waiting for it to end" in resumed.stderr
    assert [smoke_copy.read(path) for path in OUTPUTS] == expected
