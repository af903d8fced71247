"""What names of networks say."""

from pathlib import Path

import pytest

from attmask.errors import UserError
from attmask.evaluation.network_names import Options, names_of, split_options, split_which


def test_short_names_tell_checkpoints_apart() -> None:
    assert names_of(["runs/high", "runs/low@untrained"]) == ["high", "low@untrained"]
    assert names_of(["a/run", "b/run"]) == ["a/run", "b/run"]


def test_the_network_of_a_run_comes_after_the_at() -> None:
    assert split_which("runs/mine@student") == (Path("runs/mine"), "student")
    assert split_which("runs/mine") == (Path("runs/mine"), None)
    with pytest.raises(UserError, match=r"unknown network 'pupil'; use @teacher, @student"):
        split_which("runs/mine@pupil")


def test_options_come_after_the_at() -> None:
    assert split_options("w.pth@heads=6,positions=size") == ("w.pth", Options("size", 6))
    assert split_options("w.pth@partial=true") == ("w.pth", Options(partial=True))
    assert split_options("runs/mine@student") == ("runs/mine@student", None)
    for wrong in ("heads=0", "heads=many", "positions=round", "partial=1", "layers=3"):
        with pytest.raises(UserError, match="is not an option of a weights file; use positions="):
            split_options(f"w.pth@{wrong}")


def test_a_file_whose_name_has_an_at_is_that_file(tmp_path: Path) -> None:
    for name in ("w@student", "w@heads=6"):
        (tmp_path / name).touch()
        assert split_which(str(tmp_path / name)) == (tmp_path / name, None)
        assert split_options(str(tmp_path / name)) == (str(tmp_path / name), None)
