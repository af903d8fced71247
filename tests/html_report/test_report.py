"""Reports of real runs."""

import json
import re
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from attmask.api import evaluate, report
from attmask.cli import main
from attmask.curves.run_curves import read_all
from attmask.errors import UserError
from attmask.html_report.pictures import NOTHING, Reading
from attmask.html_report.report import MOST_BYTES, payload_of
from tests.html_report import fake_payload
from tests.html_report.reported_run import train


def payload(*runs: Path, data: Path | None = None) -> dict[str, Any]:
    reading_of = partial(Reading.of, device="cpu")
    return payload_of(
        read_all(runs), data=data, baseline=None, title=None, command="", reading_of=reading_of
    )


def stored(page: Path) -> dict[str, Any]:
    found = re.search(r'id="payload">(.*?)</script>', page.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    content: dict[str, Any] = json.loads(found[1])
    return content


def names(value: Any, prefix: str = "") -> set[str]:
    """The names of all fields, without what depends on metrics, classes and cards."""
    if isinstance(value, list):
        return set().union(*(names(each, f"{prefix}[]") for each in value))
    if not isinstance(value, dict) or re.search(r"groups|metrics|series|values$", prefix):
        return {prefix}
    return set().union(*(names(each, f"{prefix}.{key}") for key, each in value.items()))


@pytest.fixture(scope="module")
def both(run: Path, scenes: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    other = tmp_path_factory.mktemp("other") / "random"
    return [run, train(scenes, other, "masking.strategy=random")]


def test_a_real_report_has_the_fields_of_which_the_page_is_tested(
    both: list[Path], scenes: Path
) -> None:
    evaluate(both[0], "knn", data=scenes, workers=0, overrides=["knn.ks=[5]"])
    real, made_up = names(payload(*both)), names(fake_payload.realistic(2))
    allowed = {".runs[].warnings", ".runs[].odd."}  # lists that may be empty
    missing = {name for name in made_up - real if not name.startswith(tuple(allowed))}
    assert missing - {".runs[].map.titles"} == set()
    assert {name for name in real - made_up if not name.startswith(tuple(allowed))} == set()


def test_a_report_is_one_file_in_the_run_that_shares_what_runs_have_in_common(
    both: list[Path], tmp_path: Path
) -> None:
    alone = report(both[0])
    assert alone == both[0] / "report.html"
    together = report(both, out=tmp_path / "deep" / "both.html")
    assert together.stat().st_size < 2 * alone.stat().st_size
    page = stored(together)
    first, second = (run["map"]["sprite"] for run in page["runs"])
    assert first == second
    assert page["shared"][first["shared"]].startswith("data:image/webp")
    assert alone.stat().st_size < MOST_BYTES


def test_epochs_of_kept_checkpoints_and_the_untrained_network_are_shown(run: Path) -> None:
    (shown,) = payload(run)["runs"]
    assert shown["pca"]["epochs"] == [0.0, 1.0, 2.0, 3.0]
    assert [each["title"] for each in shown["neighbours"]["columns"]] == ["untrained", "now"]


def test_what_needs_images_is_left_out_with_the_reason_when_they_are_gone(
    run: Path, tmp_path: Path
) -> None:
    (shown,) = payload(run, data=tmp_path / "gone")["runs"]
    assert {key: shown[key] for key in NOTHING} == NOTHING
    assert shown["warnings"][-1]["text"].startswith("no pictures: there is no")
    assert shown["series"]["knn.top1"]


def test_a_run_without_a_checkpoint_is_reported_with_its_untrained_network(
    run: Path, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"
    shutil.copytree(run, begun, ignore=shutil.ignore_patterns("checkpoints", "report", "metrics*"))
    (shown,) = payload(begun)["runs"]
    assert shown["verdict"]["level"] == "unknown"
    assert shown["pca"]["epochs"] == [0.0]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["RUN", "--out", "a.pdf"], "ends in .html"),
        (["nowhere"], "holds no run"),
        (["RUN", "RUN"], "given twice"),
        (["RUN", "--baseline", "other"], "not among the runs"),
    ],
)
def test_what_cannot_be_reported_is_one_line(
    words: list[str], said: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", *(word.replace("RUN", str(run)) for word in words)]) == 1
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1


def test_a_page_that_cannot_be_written_is_an_error_that_says_why(run: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write"):
        report(run, out=tmp_path / "file" / "page.html")


def test_the_command_says_where_the_page_is(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    assert main(["report", str(run), "--out", str(page), "--title", "Which patches?"]) == 0
    assert capsys.readouterr().out == f"attmask: wrote {page}\n"
    assert stored(page)["title"] == "Which patches?"
