"""Plain lines where nobody sees a bar; the time left does not count the compilation."""

import re

from x1_pretrain import progress


def test_lines_are_rare_and_the_time_left_starts_after_the_first_step(monkeypatch, capsys):
    clock = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    with progress.ProgressReport("run", 101) as report:
        clock[0] = 60.0  # the first step compiles for a minute
        report.step(1, "loss 7.000")
        for done in range(2, 102):
            clock[0] += 1.0
            report.step(done, "loss 6.000")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "run step 1/101 loss 7.000"
    left = [int(re.search(r"(\d+) s left", line)[1]) for line in lines[1:]]
    assert left == [85, 70, 55, 40, 25, 10, 0]
