import struct
from pathlib import Path

import numpy as np
import pytest

from x1_pretrain.scaling.figure import draw
from x1_pretrain.scaling.fit import infer


def size_of(path: Path) -> tuple[int, int]:
    header = path.read_bytes()[:24]
    assert header.startswith(b"\x89PNG")
    return struct.unpack(">II", header[16:24])


def test_the_same_study_gives_the_same_bytes_without_software_or_date(tiny_study, tmp_path: Path):
    for name in ("a.png", "b.png"):
        draw(tiny_study, tmp_path / name)
    content = (tmp_path / "a.png").read_bytes()
    assert content == (tmp_path / "b.png").read_bytes()
    assert b"Software" not in content and b"tEXt" not in content and b"tIME" not in content
    assert size_of(tmp_path / "a.png") == (1430, 611)


@pytest.mark.filterwarnings("error")
def test_runs_without_an_optimum_or_an_isoflop_set_are_drawn_too(runs_of, quick, tmp_path: Path):
    N, C = np.array([5e6, 25e6, 100e6]), 1.35e17
    edge = infer(runs_of(N, C / 6 / N, [4.6, 4.4, 4.3]), quick)
    assert edge.isoflop.refused == "outside_range"
    draw(edge, tmp_path / "edge.png")
    scattered = infer(runs_of(N, [1e9, 2e9, 3e9], [4.6, 4.2, 4.0]), quick)
    assert scattered.isoflop is None
    draw(scattered, tmp_path / "scattered.png")
    assert size_of(tmp_path / "scattered.png")[0] == 1430
