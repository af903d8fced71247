"""`attmask visualize` on the command line: its help and wrong arguments."""

from pathlib import Path

import pytest

from attmask.cli import main


def test_the_help_names_all_kinds_and_strategies(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["visualize", "--help"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    for word in ("attention", "figure1", "neighbours", "--strategies", "low", "--animate"):
        assert word in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--kind", "mask"], "--kind mask: use attention, masks,"),
        (["--ratios", "a"], "a is not a list such as 0.1,0.3"),
        (["--ratios", "0.1,2"], "mask ratio 2 is not between 0 and 1"),
        (["--ratios", "nan"], "is not between 0 and 1"),
        (["--strategies", "high,hi"], "hi is no strategy; use block, random, high, hint or low"),
        (["--indices", "1,x"], "1,x is not a list such as 0,5,9"),
        (["--patch", "3"], "3 is not a row and a column such as 3,7"),
        (["--count", "0"], "not an integer of at least 1"),
        (["--format", "gif"], "--format gif: use png, svg or pdf"),
        (["--animate", "--kind", "masks"], "masks cannot be animated; use attention or pca"),
        ([], "is not a checkpoint; give a run"),
    ],
)
def test_wrong_arguments_are_one_line(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["visualize", str(tmp_path / "run"), str(tmp_path), "--out", str(tmp_path / "out")]
    try:
        status: object = main([*given, *words])
    except SystemExit as ended:
        status = ended.code
    error = capsys.readouterr().err
    assert status not in (0, None)
    assert said in error
    assert error.startswith("attmask: ")
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()
