import pytest

from x1_pretrain.errors import UserError, exit_on_user_error


def test_a_user_error_is_one_line_and_status_2(capsys: pytest.CaptureFixture[str]):
    @exit_on_user_error
    def command() -> None:
        raise UserError("params.yaml.seed: expected a whole number, found 'x'")

    with pytest.raises(SystemExit) as exit_:
        command()
    assert exit_.value.code == 2
    assert capsys.readouterr().err == "error: params.yaml.seed: expected a whole number, found 'x'\n"


def test_a_defect_of_ours_keeps_its_traceback():
    @exit_on_user_error
    def command() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        command()
