"""`attmask evaluate` as a user runs it: a trained run, several tasks, tables, several processes."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
import timm
from safetensors.torch import save_file

from attmask.api import evaluate, pretrain
from attmask.cli import main
from attmask.evaluation.datasets.pictures import Pictures
from attmask.evaluation.loading import load_model
from attmask.evaluation.reporting.card import read_cards
from tests.evaluation.object_reports import objects_of
from tests.runs import SHORT, environment

SMALL = ("linear-cached.epochs=2", "fewshot.shots=[1,2]", "--workers", "0")


@pytest.fixture(scope="module")
def run(scenes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("evaluate") / "run"
    pretrain(scenes, recipe="tiny", out=out, overrides=[*SHORT, "monitor.knn_every_epochs=0"])
    return out


def said(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, str, str]:
    try:
        status = main([str(word) for word in words])
    except SystemExit as end:
        status = int(end.code or 0)
    shown = capsys.readouterr()
    return status, shown.out, shown.err


def test_two_networks_by_several_tasks_are_one_table_in_every_format(
    run: Path, scenes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outs = [tmp_path / f"table{ending}" for ending in (".json", ".md", ".csv", ".tex")]
    tasks = ("knn", "fewshot", "linear-cached", "clustering", "recall", "quality")
    status, out, _ = said(
        capsys, "evaluate", run, f"{run}@untrained", *tasks, "--data", scenes, *SMALL,
        *[word for file in outs for word in ("--out", file)],
    )  # fmt: skip
    assert status == 0
    for task in tasks:
        assert f"{task} (version " in out
    cards = json.loads(outs[0].read_text())
    assert len(cards) == 12
    assert {card["checkpoint"] for card in cards} == {"run", "run@untrained"}
    assert len({card["hashes"]["network"] for card in cards}) == 2
    assert outs[1].read_text().startswith("| task | metric | key | unit | run | run@untrained |")
    assert outs[2].read_text().splitlines()[1].startswith("knn,top-1 accuracy (k = 20),knn.top1,%,")
    assert outs[3].read_text().startswith(r"\begin{tabular}")
    assert len(list((run / "evaluations").glob("*.json"))) == 12
    assert any((run / "features").iterdir())


def test_files_are_written_before_anything_is_printed(
    run: Path, scenes: Path, tmp_path: Path
) -> None:
    file = tmp_path / "table.md"
    words = ["evaluate", run, "knn", "--data", scenes, "--workers", "0", "--out", file]
    process = subprocess.Popen(
        [sys.executable, "-m", "attmask", *map(str, words)],
        env={**environment(), "PYTHONIOENCODING": "ascii"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.close()  # nobody reads what it prints
    _, err = process.communicate(timeout=120)
    assert b"Traceback" not in err
    assert file.read_text().startswith("| task | metric | key | unit | run |")


def test_the_function_gives_what_the_command_prints(
    run: Path, scenes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("evaluate", run, "knn", "--data", scenes, "--workers", "0", "--json")
    status, out, _ = said(capsys, *words, "knn.ks=[3,5]")
    (card,) = evaluate(run, "knn", data=scenes, overrides=["ks=[3,5]"], workers=0)
    assert status == 0
    assert json.loads(out)[0]["metrics"] == [asdict(metric) for metric in card.metrics]
    assert card.protocol["ks"] == [3, 5]


def test_two_processes_measure_what_one_does(run: Path, scenes: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run", ignore=shutil.ignore_patterns("features", "evaluations"))
    port = 31_000 + os.getpid() % 2_000
    words = ["evaluate", str(tmp_path / "run"), "knn", "linear-cached", "objects"]
    words += [
        "--data",
        str(scenes),
        "--workers",
        "0",
        "linear-cached.epochs=2",
        "--out",
        str(tmp_path / "two.json"),
    ]
    workers = [
        subprocess.Popen(
            [sys.executable, "-m", "attmask", *words],
            env={
                **environment(),
                "WORLD_SIZE": "2",
                "RANK": str(rank),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    spoken = [worker.communicate(timeout=120) for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0], spoken
    assert spoken[1][0] == ""
    two = read_cards(tmp_path / "two.json")
    tasks = ["knn", "linear-cached", "objects"]
    one = evaluate(run, tasks, data=scenes, overrides=["epochs=2"], workers=0)
    for ours, theirs in zip(one, two, strict=True):
        assert theirs.processes == 2
        assert theirs.values == pytest.approx(ours.values, abs=1e-4)


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (("RUN", "knnn", "--data", "DATA"), "there is no task 'knnn'; did you mean knn"),
        (("RUN", "knn", "fewshto", "--data", "DATA"), "no task 'fewshto'; did you mean fewshot"),
        (("RUN", "nowhere", "knn", "--data", "DATA"), "nowhere is not a checkpoint"),
        (("RUN", "quality", "--data", "DATA", "--seed", "-1"), "is not an integer of at least 0"),
        (("RUN", "--data", "DATA"), "no task was given"),
        (("knn", "--data", "DATA"), "no checkpoint was given for knn"),
        (("nowhere", "knn", "--data", "DATA"), "nowhere is not a checkpoint; give a run"),
        (("RUN", "knn", "--data", "nowhere"), "there is no nowhere"),
        (("RUN", "knn"), "the following arguments are required: --data"),
        (("RUN", "knn", "--data", "DATA", "knn.kss=3"), "did you mean knn.ks"),
        (
            ("RUN", "knn", "--data", "DATA", "--out", "a.xls"),
            "unknown extension; use .json",
        ),
        (
            ("RUN", "knn", "--data", "DATA", "--out", "a.png"),
            "add the task classify, occlusion, segment-linear, segment-knn, segment-upernet, "
            "detect-cascade or video",
        ),
        (("RUN", "recall-cub", "--data", "DATA"), "images.txt"),
        (("RUN", "retrieval-roxford", "--data", "DATA"), "gnd_roxford5k.pkl"),
        (("RUN", "backgrounds", "--data", "RUN"), "original"),
        (("RUN", "knn", "--data", "clustering=DATA"), "is for clustering, which is not among knn"),
    ],
)
def test_a_wrong_word_is_one_line_with_what_to_do(
    run: Path,
    scenes: Path,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    wrong: str,
) -> None:
    named = {"RUN": str(run), "DATA": str(scenes)}
    status, out, err = said(capsys, "evaluate", *(named.get(word, word) for word in words))
    lines = [line for line in err.splitlines() if line.startswith("attmask: ")]
    assert (status, out, len(lines)) == (1, "", 1)
    assert wrong.replace("DATA", str(scenes)) in lines[0] or wrong in lines[0]


NEEDS = {
    "scikit-learn": (("linear-cached", "clustering"), "needs scikit-learn"),
    "images of a class": (("knn", "fewshot", "fewshot.shots=[100]"), "100 images per class"),
    "the reference network": (
        ("knn", "occlusion", "occlusion.reference=nowhere"),
        "nowhere is not a checkpoint",
    ),
    "the classifier file": (
        ("knn", "occlusion", "occlusion.reference=RUN", "occlusion.classifier=nowhere"),
        "the classifier nowhere",
    ),
    "blocks": (
        ("knn", "recall", "recall.readout.blocks=9"),
        "blocks=9 is more than the network has",
    ),
    "whole patches": (("knn", "linear", "linear.image_size=33"), "not a multiple of patch size 8"),
    "clusters": (("knn", "clustering", "clustering.clusters=999"), "clusters=999 is more than"),
    "masks": (("knn", "objects", "--data", "objects=FLAT"), "has a mask; wanted SPLIT/CLASS/ID"),
    "another checkpoint": (("BAD", "knn"), "bad.safetensors is damaged or not a safetensors file"),
}


@pytest.mark.parametrize("need", NEEDS)
def test_what_is_missing_is_said_before_anything_is_measured(
    need: str,
    run: Path,
    scenes: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words, line = NEEDS[need]
    (tmp_path / "bad.safetensors").write_bytes(b"no weights")
    shutil.copytree(scenes / "val", tmp_path / "flat")
    named = {"RUN": run, "BAD": tmp_path / "bad.safetensors"}
    words = tuple(
        word.replace("RUN", str(run)).replace("FLAT", str(tmp_path / "flat"))
        if "=" in word
        else str(named.get(word, word))
        for word in words
    )
    if need == "scikit-learn":
        monkeypatch.setitem(sys.modules, "sklearn", None)
    cache = tmp_path / "cache"
    status, out, err = said(
        capsys, "evaluate", run, *words, "--data", scenes, "--cache", cache, "--workers", "0"
    )
    lines = [text for text in err.splitlines() if text.startswith("attmask: ")]
    assert (status, out, len(lines)) == (1, "", 1)
    assert line in lines[0]
    assert not cache.exists(), "no image was read"


def test_a_task_that_fails_does_not_hide_the_results_of_the_others(
    scenes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    vit = timm.create_model("vit_tiny_patch16_224", num_classes=0, img_size=32, depth=1)
    save_file(vit.state_dict(), tmp_path / "good.safetensors")
    broken = {name: tensor * 1e25 for name, tensor in vit.state_dict().items()}  # overflows
    save_file(broken, tmp_path / "broken.safetensors")
    status, out, err = said(
        capsys, "evaluate", tmp_path / "broken.safetensors", tmp_path / "good.safetensors", "knn",
        "--data", scenes, "--workers", "0", "--cache", tmp_path / "cache",
        "--out", tmp_path / "cards.json", "--out", tmp_path / "table.md",
    )  # fmt: skip
    lines = [text for text in err.splitlines() if text.startswith("attmask: ")]
    assert status == 1
    assert len(lines) == 1
    assert lines[0].startswith(
        "attmask: knn on broken.safetensors failed: the features of broken.safetensors"
    )
    assert "top-1 accuracy (k = 20)" in out
    assert "good.safetensors: file, 1 blocks of width 192, 3 heads, patch 16" in out
    (card,) = json.loads((tmp_path / "cards.json").read_text())
    assert card["checkpoint"] == "good.safetensors"
    assert "| good.safetensors |" in (tmp_path / "table.md").read_text()


def test_any_checkpoint_can_say_what_is_hidden(run: Path, scenes: Path) -> None:
    step = sorted((run / "checkpoints").iterdir())[-1]
    references = {
        "trained": str(run),
        "step": str(step),
        "student": f"{run}@student",
        "untrained": f"{run}@untrained",
    }
    found = {
        name: evaluate(
            run,
            "occlusion",
            data=scenes,
            overrides=[f"reference={reference}", "ratios=[0.5]", "epochs=1"],
            workers=0,
        )[0].details["reference"]
        for name, reference in references.items()
    }
    assert found["trained"] == found["step"]
    assert len(set(found.values())) == 3


def test_the_picture_of_a_task_shows_all_checkpoints(
    run: Path, scenes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("occlusion", "knn", "--data", scenes, "--workers", "0", "--out", tmp_path / "both.png")
    quick = (f"reference={run}", "ratios=[0,0.5]", "occlusion.epochs=1")
    status, _, err = said(capsys, "evaluate", run, f"{run}@untrained", *words, *quick)
    assert status == 0, err
    assert (tmp_path / "both.png").read_bytes().startswith(b"\x89PNG")


def test_objects_are_measured_on_any_checkpoint(
    run: Path, scenes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("objects", "--data", scenes, "--workers", "0", "--out", tmp_path / "cards.json")
    status, out, _ = said(capsys, "evaluate", run, f"{run}@untrained", *words, "objects.ratio=0.4")
    assert status == 0
    assert "attention on the object" in out
    trained, untrained = read_cards(tmp_path / "cards.json")
    assert trained.values != untrained.values
    model = load_model(run)
    expected = objects_of(
        model.backbone,
        Pictures().open(scenes).images,
        image_size=32,
        data=model.data,
        ratio=0.4,
    )
    found = trained.values
    assert found["objects.attention"] == pytest.approx(100 * expected.attention_on_object)
    assert found["objects.lift"] == pytest.approx(expected.lift)
    for name, share in expected.object_hidden.items():
        assert found[f"objects.hidden_{name}"] == pytest.approx(100 * share)
    (card,) = evaluate(run, "objects", data=scenes, overrides=["max_images=3"], workers=0)
    assert card.images == {"images": 3}
    status, out, err = said(capsys, "evaluate", run, "objects", "--data", tmp_path / "nowhere")
    assert (status, out) == (1, "")
    assert err.splitlines()[-1].startswith("attmask: there is no ")
