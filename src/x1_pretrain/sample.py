"""Text from the trained checkpoint, as it is written:

python -m x1_pretrain.sample "The function returns"
python -m x1_pretrain.sample FILE:prompt.txt --samples 3 --temperature 0.7 --top-k 50 --seed 1
"""

import argparse
import codecs
import sys
from collections.abc import Iterable, Iterator
from itertools import islice, takewhile
from pathlib import Path

import torch

from x1_pretrain import paths
from x1_pretrain.checkpoint import load_model
from x1_pretrain.corpus.loader import Tokens
from x1_pretrain.corpus.tokenizer import GPT2Tokenizer, load_saved_tokenizer
from x1_pretrain.errors import UserError, exit_on_user_error
from x1_pretrain.inference.document import calibration_tokens
from x1_pretrain.inference.formats import FORMATS, converted
from x1_pretrain.inference.generate import Sampling, continuation
from x1_pretrain.model import GPT

FILE = "FILE:"
LARGEST_SEED = 2**63 - 1


def prompt_ids(prompt: str | None, tokenizer: GPT2Tokenizer, seq_len: int) -> list[int]:
    """End-of-text, with which every document begins, then the prompt's tokens. Raises `UserError`."""
    if prompt is None:
        return [tokenizer.eot]
    if prompt.startswith(FILE):
        path = Path(prompt.removeprefix(FILE))
        try:
            prompt = path.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise UserError(f"prompt: {path} cannot be read as UTF-8 text ({error})") from error
    if not prompt:
        raise UserError("prompt: it is empty; give some text, or leave it out to begin a new document")
    ids = [tokenizer.eot, *tokenizer.encode(prompt)]
    if len(ids) > seq_len:
        raise UserError(
            f"prompt: it has {len(ids) - 1} tokens, the model was trained on contexts of {seq_len}, of which "
            f"end-of-text takes one; shorten it to {seq_len - 1} tokens"
        )
    return ids


def pieces(ids: Iterable[int], tokenizer: GPT2Tokenizer) -> Iterator[str]:
    """The text of ids as it comes; a character that several tokens make waits for the last of them."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    for token in ids:
        if text := decoder.decode(tokenizer.bytes_of(token)):
            yield text
    yield decoder.decode(b"", final=True)


def continued(
    model: GPT, ids: list[int], eot: int, sampling: Sampling, seed: int, new_tokens: int
) -> Iterator[int]:
    """At most `new_tokens` ids that follow `ids`; the end of the document ends them."""
    prompt_BT = torch.tensor([ids], device=model.cos_TS.device)
    drawn = (next_B.item() for next_B in continuation(model, prompt_BT, sampling.with_seed(seed)))
    return takewhile(lambda token: token != eot, islice(drawn, new_tokens))


def load(arguments: argparse.Namespace) -> tuple[GPT, GPT2Tokenizer]:
    """The model in its number format on its device, and its tokenizer. Raises `UserError`."""
    checkpoint, tokens_dir = arguments.checkpoint, arguments.tokens
    if not (checkpoint / "model.json").is_file():
        raise UserError(
            f"--checkpoint {checkpoint}: no checkpoint is there; run `dvc repro train`, or `dvc pull` where "
            "somebody pushed one"
        )
    if arguments.device == "cuda" and not torch.cuda.is_available():
        raise UserError("--device: cuda was asked for but torch sees no GPU; use cpu")
    model, card = load_model(checkpoint)
    tokenizer = load_saved_tokenizer(tokens_dir)
    if tokenizer.name != card["tokenizer"] or tokenizer.n_vocab != model.n_vocab:
        raise UserError(
            f"--tokens {tokens_dir}: its tokenizer is {tokenizer.name}, the checkpoint was trained with "
            f"{card['tokenizer']}; name the folder of tokens that it was trained on"
        )
    model = model.to(arguments.device).eval()
    if arguments.format != "fp32":
        calibration_BT = torch.empty(0, dtype=torch.long)
        if arguments.format == "int4":
            calibration_BT = calibration_tokens(Tokens(tokens_dir), model.seq_len)
        model = converted(model, arguments.format, calibration_BT.to(arguments.device)).model
    return model, tokenizer


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sample", description="text from the trained checkpoint")
    add = parser.add_argument
    add("prompt", nargs="?", help="text, or FILE:<path>; without it a new document is begun")
    add("--samples", type=int, default=1, help="how many, each with the next seed (default: 1)")
    add("--max-new-tokens", type=int, default=200, help="of each; the end of a document ends it (200)")
    add("--temperature", type=float, default=0.8, help="0: the likeliest token each time (default: 0.8)")
    add("--top-k", type=int, help="draw among the k likeliest tokens only; default: all")
    add("--seed", type=int, default=0, help="of the first sample (default: 0)")
    add("--format", choices=FORMATS, default="fp32", help="number format of the weights (default: fp32)")
    add("--device", choices=("cpu", "cuda"), default="cpu")
    add("--checkpoint", type=Path, default=paths.CHECKPOINT, help=f"default: {paths.CHECKPOINT}")
    add("--tokens", type=Path, default=paths.TOKENS, help=f"folder with its tokenizer ({paths.TOKENS})")
    return parser


@exit_on_user_error
def main(argv: list[str] | None = None) -> None:
    arguments = _parser().parse_args(argv)
    sampling = Sampling(arguments.temperature, arguments.top_k)
    for option in ("samples", "max_new_tokens"):
        if getattr(arguments, option) < 1:
            name = option.replace("_", "-")
            raise UserError(f"--{name}: {getattr(arguments, option)} is too few; use 1 or more")
    seeds = range(arguments.seed, arguments.seed + arguments.samples)
    if seeds[0] < 0 or seeds[-1] > LARGEST_SEED:
        raise UserError(f"--seed: {arguments.seed} is out of range; use 0 to 2^63 - 1")
    model, tokenizer = load(arguments)
    ids = prompt_ids(arguments.prompt, tokenizer, model.seq_len)
    for seed in seeds:
        sys.stdout.write(tokenizer.decode(ids[1:]))
        new = continued(model, ids, tokenizer.eot, sampling, seed, arguments.max_new_tokens)
        for piece in pieces(new, tokenizer):
            sys.stdout.write(piece)
            sys.stdout.flush()
        print("\n---" if seed != seeds[-1] else "")


if __name__ == "__main__":
    main()
