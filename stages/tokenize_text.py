"""Stage `tokenize`: documents into token shards with their index."""

from x1_pretrain import paths
from x1_pretrain.corpus.shards import write_tokens
from x1_pretrain.corpus.tokenizer import load_tokenizer
from x1_pretrain.deliverables.files import write_json
from x1_pretrain.errors import exit_on_user_error
from x1_pretrain.spending import charged
from x1_pretrain.study import load_study


@exit_on_user_error
@charged("tokenize")
def main() -> None:
    settings = load_study().profile.tokenizer
    tokenizer = load_tokenizer(settings, paths.RAW)
    summary = write_tokens(paths.DOCUMENTS, tokenizer, paths.TOKENS, settings.shard_tokens)
    write_json(paths.TOKENS_SUMMARY, summary)


if __name__ == "__main__":
    main()
