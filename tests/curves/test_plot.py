"""Real runs become curves, groups and figures."""

import json
import shutil
from pathlib import Path
from typing import Any

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


def copied(run: Path, to: Path, records: list[dict[str, Any]], *, is_old: bool = False) -> Path:
    """A run with another log; an old one has neither events nor a catalog."""
    shutil.copytree(run, to)
    (to / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    if is_old:
        for file in [*to.glob("events*"), *to.glob("heartbeat*"), to / "metrics.json"]:
            file.unlink()
    return to


def test_a_run_that_has_just_begun_is_drawn_and_not_compared(
    runs: list[Path], tmp_path: Path
) -> None:
    begun = copied(runs[0], tmp_path / "begun", [dict(r) for r in read_metrics(runs[0])][:2])
    found = plot_runs(
        [begun, runs[2]], tmp_path / "a.png", metrics=None, across="epoch", baseline=None
    )
    assert found.savings == []
    assert found.notes == ["begun was not evaluated after its start, so epochs are not compared."]
    empty = copied(runs[0], tmp_path / "empty", [])
    with pytest.raises(UserError, match="no values to draw yet; train them first"):
        plot_runs([empty], tmp_path / "b.png", metrics=None, across="epoch", baseline=None)


def test_an_old_log_without_times_and_events_is_drawn_over_hours(
    runs: list[Path], tmp_path: Path
) -> None:
    records = [{k: v for k, v in r.items() if k != "time"} for r in read_metrics(runs[0])]
    old = copied(runs[0], tmp_path / "old", records, is_old=True)
    plot_runs([old], tmp_path / "a.png", metrics=None, across="hours", baseline=None)
    run = read_curves(old)
    assert run.sessions == []
    assert run.is_finished
    assert run.curves["loss.total"].axis.hours[-1] > 0
    unknown = [{k: v for k, v in r.items() if not k.startswith("speed")} for r in records]
    timeless = copied(runs[0], tmp_path / "timeless", unknown, is_old=True)
    with pytest.raises(UserError, match="no hours in their logs; use --across step"):
        plot_runs([timeless], tmp_path / "b.png", metrics=None, across="hours", baseline=None)


def test_runs_are_compared_by_accuracy_and_never_by_loss(runs: list[Path], tmp_path: Path) -> None:
    found = plot_runs(
        runs, tmp_path / "a.png", metrics=["loss.total"], across="epoch", baseline=None
    )
    assert [each.measure for each in found.savings] == ["k-NN top-1 accuracy (k = 20)"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--across", "days"], "--across days: use epoch, hours or step"),
        (["--out", "a.gif"], "use a name that ends in .png, .svg or .pdf"),
        (["--baseline", "none"], "the baseline none is not among the runs"),
    ],
)
def test_wrong_arguments_are_one_line(
    words: list[str], said: str, runs: list[Path], tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    try:
        status: object = main(["plot", str(runs[0]), "--out", str(tmp_path / "a.png"), *words])
    except SystemExit as ended:
        status = ended.code
    error = capsys.readouterr().err
    assert status not in (0, None)
    assert said in error
    assert error.count("\n") == 1


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
