"""Real runs become curves, groups and figures."""

from pathlib import Path

import numpy as np
import pytest

from attmask.api import pretrain
from attmask.cli import main
from attmask.curves.groups import band, baseline_group, group_runs, savings_against
from attmask.curves.plot import plot_runs
from attmask.curves.run_curves import read_all, read_curves
from attmask.errors import UserError
from attmask.metric_catalog import read_catalog
from attmask.monitor import read_metrics
from tests.runs import SHORT


@pytest.fixture(scope="module")
def runs(scenes: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two strategies with two seeds each."""
    root = tmp_path_factory.mktemp("runs")
    found = []
    for strategy in ("high", "random"):
        for seed in (0, 1):
            out = root / f"{strategy}-{seed}"
            changes = [*SHORT, f"masking.strategy={strategy}", f"seed={seed}"]
            pretrain(scenes, recipe="tiny", out=out, overrides=changes)
            found.append(out)
    return found


def test_a_run_becomes_curves_over_epochs_hours_and_steps(runs: list[Path]) -> None:
    run = read_curves(runs[0])
    steps, epochs = run.curves["loss.total"], run.curves["knn.top1"]
    records = read_metrics(runs[0])
    assert len(steps.values) == sum("loss.total" in record for record in records)
    assert epochs.axis.epoch[0] == 0
    assert epochs.axis.epoch[-1] == steps.axis.epoch[-1] == run.epochs
    assert steps.axis.step[-1] == 12
    assert np.all(np.diff(steps.axis.hours) >= 0)
    assert 0 < steps.axis.hours[-1] < 1
    assert [session.ended for session in run.sessions] == ["finished"]


def test_every_logged_metric_is_in_the_catalog(runs: list[Path]) -> None:
    keys = {key for record in read_metrics(runs[0]) for key in record}
    assert keys - {"step", "epoch", "time"} == set(read_catalog(runs[0]))
    assert read_curves(runs[0]).known("knn.top1").higher_is_better is True


def test_seeds_of_one_setting_are_a_group_named_after_what_differs(runs: list[Path]) -> None:
    groups = group_runs(read_all(runs))
    assert [group.name for group in groups] == ["strategy=high", "strategy=random"]
    assert [len(group.runs) for group in groups] == [2, 2]
    alone = group_runs(read_all([runs[0], runs[2]]))
    assert [group.name for group in alone] == ["high-0", "random-0"]


def test_a_band_is_the_mean_with_the_lowest_and_the_highest(runs: list[Path]) -> None:
    group = group_runs(read_all(runs))[0]
    found = band(group, "knn.top1", "epoch")
    assert found is not None
    values = np.stack([run.curves["knn.top1"].values for run in group.runs])
    np.testing.assert_allclose(found.mean, values.mean(0))
    np.testing.assert_allclose(found.low, values.min(0))
    np.testing.assert_allclose(found.high, values.max(0))


def test_a_run_against_itself_saves_at_least_nothing(runs: list[Path]) -> None:
    groups = group_runs(read_all(runs))
    found = savings_against(groups[0], groups[0], "knn.top1")
    assert found is not None
    assert all(each.epoch is not None for each in found.reached)
    assert baseline_group(groups, "random-1") is groups[1]
    with pytest.raises(UserError, match="not among the runs"):
        baseline_group(groups, "other")


def test_the_command_writes_the_figure_and_prints_the_sentence(
    runs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "curves.png"
    words = ["plot", *map(str, runs), "--out", str(out), "--baseline", "random-0"]
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert "strategy=random's final" in printed
    assert out.read_bytes().startswith(b"\x89PNG")


def test_hours_and_single_metrics_can_be_drawn(runs: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "a.svg"
    found = plot_runs(runs[:1], out, metrics=["knn.top1"], across="hours", baseline=None)
    assert (found.file, found.savings) == (out, [])


@pytest.mark.parametrize(
    ("metrics", "said"),
    [(["knn.topp1"], "did you mean knn.top1"), (["loss"], "or loss.total")],
)
def test_a_metric_that_is_not_there_is_refused(
    metrics: list[str], said: str, runs: list[Path], tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=said):
        plot_runs(runs, tmp_path / "a.png", metrics=metrics, across="epoch", baseline=None)


def test_a_folder_that_is_no_run_and_a_run_given_twice_are_refused(
    runs: list[Path], tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="holds no run"):
        read_all([tmp_path])
    with pytest.raises(UserError, match="twice"):
        read_all([runs[0], runs[0]])
