import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import attmask
from attmask import atomic
from attmask.cli import main
from attmask.errors import UserError
from attmask.evaluation.loading import load_model
from attmask.evaluation.model import FrozenModel
from attmask.exporting.as_huggingface import AsHuggingFace
from attmask.exporting.as_timm import AsTimm
from attmask.exporting.export import FormatName, export_checkpoint
from attmask.exporting.probes import probe_images, verify
from attmask.exporting.subject import Outputs, Subject
from attmask.exporting.training import training_lines
from attmask.models.backbone import Backbone
from tests.exporting.networks import by_timm, label_names, network, weights
from tests.models.rotary_networks import eva
from tests.photographs import photographs
from tests.runs import SHORT, changed_copy, guarded_copy


@pytest.fixture(scope="module")
def run(scenes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pre-training of one epoch, evaluated."""
    folder = tmp_path_factory.mktemp("runs") / "pretrained"
    changes = [*SHORT, "schedule.epochs=1"]
    attmask.pretrain(scenes, recipe="tiny", out=folder, overrides=changes)
    attmask.evaluate(folder, "knn", data=scenes, workers=0, overrides=["knn.ks=[5]"])
    return folder


@pytest.fixture(scope="module")
def tuned(run: Path, scenes: Path) -> Path:
    """A fine-tuning of one epoch."""
    folder = run.parent / "tuned"
    short = ("epochs=1", "lr_warmup_epochs=0", "freeze_backbone_epochs=0")
    changes = [*SHORT, *(f"schedule.{change}" for change in short)]
    attmask.finetune(run, scenes, recipe="own", out=folder, overrides=changes)
    return folder


def test_a_run_is_exported_with_its_figure_and_the_lines_that_load_it(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "deep" / "out"
    assert main(["export", str(run), "--format", "timm", "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert "attmask: verified: the largest difference is " in said
    assert f'timm.create_model("local-dir:{out}", pretrained=True)' in said
    assert sorted(file.name for file in out.iterdir()) == [
        "README.md",
        "config.json",
        "evaluations.json",
        "export.json",
        "model.safetensors",
    ]
    assert len({file.stat().st_mode for file in out.iterdir()}) == 1
    record = json.loads((out / "export.json").read_text())
    assert record["format"] == "timm"
    assert record["network"]["sha256"] == load_model(run).digest
    assert all(v < 1e-4 for check in record["verified"] for v in check["differences"].values())


def test_teacher_and_student_are_different_exports(run: Path, tmp_path: Path) -> None:
    for which in ("teacher", "student"):
        attmask.export(f"{run}@{which}", format="timm", out=tmp_path / which)
    both = [load_file(tmp_path / which / "model.safetensors") for which in ("teacher", "student")]
    assert not torch.equal(both[0]["norm.weight"], both[1]["norm.weight"])


def test_a_fine_tuned_run_keeps_its_classifier(tuned: Path, tmp_path: Path) -> None:
    exported = attmask.export(tuned, format="timm", out=tmp_path / "out")
    assert exported.difference < 1e-5
    vit = by_timm(exported.path)
    assert vit.num_classes == 10
    assert "zigzag triangle" in label_names(vit)


def test_the_classifier_is_left_out_if_asked(tuned: Path, tmp_path: Path) -> None:
    attmask.export(tuned, format="timm", out=tmp_path / "out", backbone_only=True)
    assert by_timm(tmp_path / "out").num_classes == 0


def test_the_model_card_tells_data_recipe_scores_and_licence(
    run: Path, scenes: Path, tmp_path: Path
) -> None:
    attmask.export(run, format="timm", out=tmp_path / "out", license="apache-2.0")
    card = (tmp_path / "out" / "README.md").read_text()
    assert card.startswith('---\nlicense: "apache-2.0"\nlibrary_name: timm\n')
    assert "pipeline_tag: image-feature-extraction" in card
    assert f"- Data: {scenes.name}" in card
    assert "Recipe: `tiny` of attmask, with these changes:" in card
    assert "| `schedule.epochs` | 2 | 1 |" in card
    assert "| knn (version" in card
    assert "| 3 | 32 x 32 | cls " in card
    assert str(scenes.parent) not in card
    assert str(scenes.parent) not in (tmp_path / "out" / "export.json").read_text()


def test_the_card_of_a_classifier_has_the_result_of_its_training(
    tuned: Path, tmp_path: Path
) -> None:
    attmask.export(tuned, format="timm", out=tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text()
    assert "pipeline_tag: image-classification" in card
    assert 'license: "other"\nlicense_name: unknown' in card
    assert "No licence was stated" in card
    assert "Fine-tuned (`attmask finetune`) from: pretrained" in card
    assert "Fine-tuning: classify.top1 on val: best" in card


def test_scores_of_other_weights_are_left_out(run: Path, tmp_path: Path) -> None:
    attmask.export(f"{run}@student", format="timm", out=tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text()
    assert "No evaluation of these weights was recorded" in card
    assert "1 result of other weights of the run is left out." in card
    assert not (tmp_path / "out" / "evaluations.json").exists()


def test_an_export_that_differs_is_refused(tmp_path: Path) -> None:
    model = network(tmp_path)
    subject, form, folder = Subject.of(model), AsTimm(), tmp_path / "out"
    folder.mkdir()
    form.write(subject, folder)
    tensors = load_file(folder / "model.safetensors")
    tensors["blocks.1.mlp.fc2.bias"][3] += 0.01
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(UserError, match=r"differs from small by .* in patches|in cls"):
        verify(subject, form.open(subject, folder), other_sizes=False)


@pytest.mark.parametrize(
    ("shift", "scale", "right"),
    [(5e-5, 1.0, True), (2e-4, 1.0, False), (5e-4, 20.0, True), (math.nan, 1.0, False)],
)
def test_a_difference_counts_as_a_share_of_large_values(
    shift: float, scale: float, right: bool, tmp_path: Path
) -> None:
    model = network(tmp_path)
    weights_of_norm = dict(model.backbone.vit.norm.named_parameters())
    with torch.no_grad():
        weights_of_norm["weight"].mul_(scale / 5)  # features have values of about this scale
        weights_of_norm["bias"].zero_()
    subject = Subject.of(model)

    def other(images: Tensor) -> dict[str, Tensor]:
        outputs = Outputs(subject).eval()(images)
        return {**outputs, "patches": outputs["patches"] + shift}

    if right:
        (check, _) = verify(subject, other, other_sizes=False)
        assert check.error < 1e-4
    else:
        with pytest.raises(UserError, match=r"by (0.0002|nan) in patches, whose largest value is"):
            verify(subject, other, other_sizes=False)


def test_nothing_is_left_where_an_export_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    named = weights(tmp_path, reg_tokens=2, mlp_ratio=2.5)
    out = tmp_path / "exports" / "out"
    assert main(["export", named, "--format", "hf", "--out", str(out)]) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "transformers' DINOv2 wants a multiple of 48; use --format timm" in err
    assert not out.exists()
    assert not atomic.is_being_written(out.parent)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--format", "tim", "--out", "x"], "--format tim: use timm, hf, onnx, torch or reference"),
        (["--out", "x"], "--format"),
        (["--format", "timm"], "--out"),
        (["--format", "timm", "--out", "x", "--size", "0"], "0 is not an integer of at least 1"),
    ],
)
def test_wrong_arguments_are_one_line(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["export", "runs/none", *arguments])
    assert ended.value.code == 1
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--format", "timm", "--dynamic-size"], "--dynamic-size is for the formats onnx and"),
        (["--format", "timm", "--size", "33"], "image size 33 is not a multiple of patch size 8"),
    ],
)
def test_impossible_wishes_are_one_line(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(["export", weights(tmp_path), "--out", str(out), *arguments]) == 1
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1
    assert not out.exists()


def test_an_existing_folder_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine").write_text("mine")
    assert main(["export", weights(tmp_path), "--format", "timm", "--out", str(out)]) == 1
    assert capsys.readouterr().err == (
        f"attmask: {out} exists; choose another --out, or remove it\n"
    )
    assert [file.name for file in out.iterdir()] == ["mine"]


def test_an_unknown_format_of_the_api_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no format jax; use timm, hf, onnx"):
        export_checkpoint(weights(tmp_path), tmp_path / "out", "jax")


def test_probe_images_are_the_same_every_time(tmp_path: Path) -> None:
    subject = Subject.of(network(tmp_path, in_chans=5))
    once, again = (probe_images(subject, 2, 40, 32) for _ in range(2))
    assert once.shape == (2, 5, 40, 32)
    assert torch.equal(once, again)
    assert torch.equal(once[:, 0], once[:, 3])


@pytest.mark.parametrize("name", ["timm", "hf"])
def test_rotary_positions_are_refused_where_the_format_does_not_hold_them(
    name: str, tmp_path: Path
) -> None:
    model = FrozenModel("rotary", Backbone(eva(img_size=64)).eval(), 64, network(tmp_path).data)
    form = AsTimm() if name == "timm" else AsHuggingFace()
    (tmp_path / "out").mkdir()
    with pytest.raises(UserError, match=r"rotary has rotary positions .* use --format onnx or"):
        form.write(Subject.of(model), tmp_path / "out")


def test_the_authors_layout_is_verified_through_the_importer(run: Path, tmp_path: Path) -> None:
    exported = attmask.export(run, format="reference", out=tmp_path / "out")
    assert exported.difference < 1e-5
    assert (tmp_path / "out" / "checkpoint.pth").is_file()


@pytest.mark.parametrize("name", ["timm", "hf", "reference"])
@pytest.mark.parametrize("size", [32, 48])
def test_an_export_is_imported_again(
    name: FormatName, size: int, run: Path, tmp_path: Path
) -> None:
    attmask.export(run, format=name, out=tmp_path / "out", image_size=size)
    file = "checkpoint.pth" if name == "reference" else ""
    ours, again = load_model(run), load_model(tmp_path / "out" / file)
    images = photographs(4, 3, size, size)
    with torch.inference_mode():
        wanted, found = ours.backbone(images), again.backbone(images)
    torch.testing.assert_close(found.cls, wanted.cls, atol=1e-5, rtol=0)
    torch.testing.assert_close(found.patches, wanted.patches, atol=1e-5, rtol=0)
    assert again.data.mean == ours.data.mean


def test_the_authors_layout_does_not_hold_the_best_of_a_guarded_run(
    run: Path, tmp_path: Path
) -> None:
    guarded = guarded_copy(run, tmp_path / "guarded")
    for named in (guarded, f"{guarded}@best"):
        with pytest.raises(UserError, match=f"as it stands; give {guarded}@teacher"):
            attmask.export(named, format="reference", out=tmp_path / "out")
    exported = attmask.export(f"{guarded}@teacher", format="reference", out=tmp_path / "out")
    assert exported.difference < 1e-5


def test_the_authors_layout_does_not_hold_updates_of_low_rank(run: Path, tmp_path: Path) -> None:
    updated = changed_copy(run, tmp_path / "updated", "adapt.lora_rank=2")
    with pytest.raises(UserError, match=r"trained with adapt\.lora_rank=2.*use --format timm"):
        attmask.export(updated, format="reference", out=tmp_path / "out")


@pytest.mark.parametrize(
    ("init", "told"),
    [
        ("/home/somebody/vit.safetensors@heads=3", "vit.safetensors@heads=3"),
        ("timm:vit_small_patch16_224.dino", "timm:vit_small_patch16_224.dino"),
        ("hf-hub:facebook/dinov2-small", "hf-hub:facebook/dinov2-small"),
    ],
)
def test_the_card_says_what_a_run_continued_from_and_not_where_that_lay(
    run: Path, tmp_path: Path, init: str, told: str
) -> None:
    continued = changed_copy(run, tmp_path / "continued", f"init={init}")
    lines = list(training_lines(replace(load_model(run), folder=continued)))
    assert f"- Continued from: {told}" in lines
    assert not any("somebody" in line or "`init`" in line for line in lines)


def test_the_card_of_weights_from_elsewhere_does_not_guess_their_training(tmp_path: Path) -> None:
    said = " ".join(training_lines(network(tmp_path)))
    assert said.startswith("The weights are not attmask's own (`small`). attmask has converted")
