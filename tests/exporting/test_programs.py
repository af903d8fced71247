"""ONNX and torch.export, which trace the same function."""

import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from attmask.errors import UserError
from attmask.evaluation.features.transform import Transform
from attmask.evaluation.model import FrozenModel
from attmask.exporting.as_onnx import AsOnnx
from attmask.exporting.as_torch import AsTorch
from attmask.exporting.probes import probe_images, verify
from attmask.exporting.subject import Outputs, Subject
from attmask.models.backbone import Backbone
from tests.exporting.networks import classified, exported, largest, network
from tests.models.rotary_networks import eva
from tests.real_data import FOLDER, needs

POSITIONS = pytest.mark.parametrize("positions", ["size", "reference", "no-antialias"])


@POSITIONS
def test_onnxruntime_computes_the_same_at_any_size(positions: str, tmp_path: Path) -> None:
    model = network(tmp_path, positions, reg_tokens=2, init_values=0.1)
    checks = exported(AsOnnx(dynamic_size=True), model, tmp_path / "out")
    assert largest(checks) < 1e-5
    assert set(checks[0].differences) == {"cls", "patches", "attention"}
    assert len({(check.height, check.width) for check in checks}) == 3


@POSITIONS
def test_torch_export_computes_the_same_at_any_size(positions: str, tmp_path: Path) -> None:
    model = network(tmp_path, positions, reg_tokens=2, init_values=0.1)
    checks = exported(AsTorch(dynamic_size=True), model, tmp_path / "out")
    assert largest(checks) < 1e-5
    assert len({(check.height, check.width) for check in checks}) == 3


@pytest.mark.parametrize(
    ("positions", "dynamic_size"),
    [("size", False), ("size", True), ("reference", True), ("no-antialias", True)],
)
def test_in_double_precision_programs_are_exact(
    positions: str, dynamic_size: bool, tmp_path: Path
) -> None:
    from onnx.reference import ReferenceEvaluator
    from onnx.reference.op_run import OpRun

    class Gelu(OpRun):  # that of onnx rounds to single precision
        def _run(self, x: Any, approximate: str) -> tuple[Any]:
            return (nn.functional.gelu(torch.from_numpy(x), approximate=approximate).numpy(),)

    model = network(tmp_path, positions, reg_tokens=2, init_values=0.1)
    subject = Subject.of(replace(model, backbone=model.backbone.double()), 48)
    height, width = (40, 56) if dynamic_size else (48, 48)
    images = probe_images(subject, 2, height, width)
    with torch.inference_mode():
        wanted = Outputs(subject).eval()(images)
    AsTorch(dynamic_size).write(subject, tmp_path)
    AsOnnx(dynamic_size).write(subject, tmp_path)
    of_torch = AsTorch(dynamic_size).open(subject, tmp_path)(images)
    graph = ReferenceEvaluator(str(tmp_path / "model.onnx"), new_ops=[Gelu])
    of_onnx = graph.run(list(wanted), {"images": images.numpy()})
    # The exporter writes constants such as the reference's 0.1 in single precision.
    for (name, values), found in zip(wanted.items(), of_onnx, strict=True):
        torch.testing.assert_close(of_torch[name], values, atol=1e-9, rtol=0)
        torch.testing.assert_close(torch.from_numpy(found), values, atol=1e-8, rtol=0)


def test_a_graph_of_one_size_resizes_nothing(tmp_path: Path) -> None:
    import onnx

    exported(AsOnnx(), network(tmp_path), tmp_path / "out", size=48)
    graph = onnx.load(tmp_path / "out" / "model.onnx").graph
    assert "Resize" not in {node.op_type for node in graph.node}


@pytest.mark.parametrize("form", [AsOnnx(), AsTorch()], ids=["onnx", "torch"])
def test_classifiers_have_logits(form: AsOnnx | AsTorch, tmp_path: Path) -> None:
    model = classified(network(tmp_path), "cls+gap")
    checks = exported(form, model, tmp_path / "out")
    assert largest(checks) < 1e-5
    assert "logits" in checks[0].differences


def test_any_size_begins_with_two_patches(tmp_path: Path) -> None:
    model = network(tmp_path, img_size=16)
    checks = exported(AsTorch(dynamic_size=True), model, tmp_path / "out")
    assert largest(checks) < 1e-5
    assert {(check.height, check.width) for check in checks} == {(16, 16), (24, 40)}
    with pytest.raises(UserError, match=r"from 2 patches on, .* use --size 16 or more"):
        exported(AsTorch(dynamic_size=True), model, tmp_path / "small", size=8)


def test_an_export_that_cannot_be_run_is_one_line(tmp_path: Path) -> None:
    form, subject = AsTorch(), Subject.of(network(tmp_path), None)
    form.write(subject, tmp_path)
    forward = form.open(subject, tmp_path)
    with pytest.raises(UserError, match=r"the export fails on images of 40 x 56 \(") as caught:
        verify(subject, forward, other_sizes=True)  # it was made for one size
    assert "\n" not in str(caught.value)


def test_an_onnx_file_states_its_inputs_and_outputs(tmp_path: Path) -> None:
    import onnxruntime

    checks = exported(AsOnnx(), network(tmp_path), tmp_path / "out")
    assert largest(checks) < 1e-5
    assert {(check.height, check.width) for check in checks} == {(32, 32)}
    session = onnxruntime.InferenceSession(tmp_path / "out" / "model.onnx")
    (images,) = session.get_inputs()
    assert (images.name, images.shape) == ("images", ["batch", 3, 32, 32])
    assert [put.name for put in session.get_outputs()] == ["cls", "patches", "attention"]
    several = session.run(["cls"], {"images": np.zeros((5, 3, 32, 32), dtype="float32")})
    assert several[0].shape == (5, 48)


@pytest.mark.parametrize("form", [AsOnnx(), AsTorch()], ids=["onnx", "torch"])
def test_a_program_does_not_name_folders_of_this_machine(
    form: AsOnnx | AsTorch, tmp_path: Path
) -> None:
    exported(form, network(tmp_path, depth=1), tmp_path / "out")
    (file,) = (tmp_path / "out").iterdir()
    contents = [file.read_bytes()]
    if file.suffix == ".pt2":
        with zipfile.ZipFile(file) as archive:
            contents = [archive.read(name) for name in archive.namelist()]
    assert not any(b"site-packages" in each or b"src/attmask" in each for each in contents)


def test_a_batch_of_any_size_gives_the_same_rows(tmp_path: Path) -> None:
    exported(AsTorch(), network(tmp_path), tmp_path / "out")
    program = torch.export.load(tmp_path / "out" / "model.pt2").module()
    images = torch.randn(5, 3, 32, 32)
    together, alone = program(images)["cls"], program(images[:1])["cls"]
    torch.testing.assert_close(together[:1], alone, atol=1e-5, rtol=0)


@needs("photos")
def test_photographs_have_the_same_features_in_onnxruntime(tmp_path: Path) -> None:
    import onnxruntime

    model = network(tmp_path, img_size=64)
    exported(AsOnnx(dynamic_size=True), model, tmp_path / "out")
    session = onnxruntime.InferenceSession(tmp_path / "out" / "model.onnx")
    files = sorted((FOLDER / "photos").glob("*.JPEG"))[:4]
    for size in (64, 96):
        images = torch.stack([Transform(size, model.data)(file) for file in files])
        with torch.inference_mode():
            wanted = model.backbone(images)
        names = ["cls", "patches", "attention"]
        for name, found in zip(names, session.run(names, {"images": images.numpy()}), strict=True):
            own = getattr(wanted, name)
            torch.testing.assert_close(torch.from_numpy(found), own, atol=1e-5, rtol=0)


@pytest.mark.parametrize("form", [AsOnnx(dynamic_size=True), AsTorch(dynamic_size=True)])
def test_rotary_positions_are_exported_at_any_size(form: AsOnnx | AsTorch, tmp_path: Path) -> None:
    model = FrozenModel("rotary", Backbone(eva(img_size=64)).eval(), 64, network(tmp_path).data)
    checks = exported(form, model, tmp_path / "out")
    assert max(check.error for check in checks) < 1e-5
    assert len({(check.height, check.width) for check in checks}) == 3
