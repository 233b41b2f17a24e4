"""Stage `validate`: every deliverable against its schema and against the others."""

from x1_pretrain import paths
from x1_pretrain.deliverables.files import write_json
from x1_pretrain.deliverables.validate import validate
from x1_pretrain.errors import exit_on_user_error


@exit_on_user_error
def main() -> None:
    write_json(paths.VALIDATION, validate())


if __name__ == "__main__":
    main()
