import pytest

from attmask.cli import main, parse
from attmask.commands.arguments import without_processes


def test_the_processes_are_launched_with_all_other_words() -> None:
    words = ["pretrain", "images", "--processes", "4", "seed=3", "--out", "4"]
    assert without_processes(words) == ["pretrain", "images", "seed=3", "--out", "4"]
    assert without_processes(["resume", "run", "--processes=2"]) == ["resume", "run"]
    assert parse(words).processes == 4
    assert parse(["resume", "run"]).processes == 1


def test_processes_that_a_launcher_started_launch_no_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert main(["pretrain", ".", "--processes", "2"]) == 1
    assert capsys.readouterr().err == (
        "attmask: --processes 2 was given to a process that torchrun or srun has launched; use one "
        "of the two\n"
    )


@pytest.mark.parametrize("number", ["0", "-1", "two"])
def test_a_number_of_processes_that_is_none_is_refused(
    number: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["pretrain", ".", f"--processes={number}"])
    assert f"{number} is not an integer of at least 1" in capsys.readouterr().err
