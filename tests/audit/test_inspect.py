"""The whole audit, on a folder in which everything that can be found was planted."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from attmask.audit import audit as audits
from attmask.audit.audit import Audit, Timing, Unreadable
from attmask.audit.inspect import MAX_IMAGES, inspect_images
from attmask.audit.table import render
from attmask.audit.warn import warnings_of
from attmask.cli import parse
from attmask.errors import UserError
from tests.audit.pictures import colours, write, write_deep
from tests.real_data import FOLDER, needs
from tests.runs import finish, start


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """20 train and 4 val pictures: copies, leakage, broken, grey and deep files, a single."""
    root = tmp_path_factory.mktemp("planted")
    train, val = root / "train", root / "val"
    for index in range(12):
        write(train / "ant" / f"{index:02}.png", colours(index))
    write(train / "bee" / "grey.png", colours(20)[:, :, 0])
    write_deep(train / "bee" / "deep.png", colours(21).astype(np.uint16) * 257)
    Image.fromarray(colours(22)).resize((90, 60)).save(train / "bee" / "wide.jpg")
    (train / "bee" / "broken.jpg").write_bytes((train / "bee" / "wide.jpg").read_bytes()[:300])
    shutil.copy(train / "ant" / "00.png", train / "bee" / "copy.png")
    Image.fromarray(colours(1)).resize((100, 100)).save(train / "bee" / "near.jpg", quality=80)
    write(train / "bee" / "flat.png", np.full((40, 40, 3), 200, dtype=np.uint8))
    write(train / "cat" / "single.png", colours(23))
    shutil.copy(train / "ant" / "02.png", _in(val / "ant") / "leaked.png")
    Image.fromarray(colours(3)).save(val / "ant" / "alike.jpg", quality=75)
    write(val / "bee" / "new.png", colours(30))
    write(val / "bee" / "newer.png", colours(31))
    return root


def _in(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


@pytest.fixture(scope="module")
def audit(planted: Path) -> Audit:
    return inspect_images(planted, workers=0, measure=False)


def test_everything_planted_is_found_and_nothing_else(audit: Audit, planted: Path) -> None:
    at = {str(path.relative_to(planted)): str(path) for path in planted.rglob("*.*")}
    assert (audit.images.train, audit.images.val, audit.images.all_examined) == (20, 4, True)
    assert [fault.place for fault in audit.unreadable] == [at["train/bee/broken.jpg"]]
    found = audit.duplicates
    assert set(found.exact) == {
        (at["train/ant/00.png"], at["train/bee/copy.png"]),
        (at["train/ant/02.png"], at["val/ant/leaked.png"]),
    }
    assert set(found.near) == {
        (at["train/ant/01.png"], at["train/bee/near.jpg"]),
        (at["train/ant/03.png"], at["val/ant/alike.jpg"]),
    }
    assert found.flat == 1
    assert list(audit.leakage) == ["val in train"]
    leakage = audit.leakage["val in train"]
    leaked, alike = (
        [(leak.val, leak.train) for leak in leaks] for leaks in (leakage.exact, leakage.near)
    )
    assert leaked == [(at["val/ant/leaked.png"], at["train/ant/02.png"])]
    assert alike == [(at["val/ant/alike.jpg"], at["train/ant/03.png"])]


def test_every_held_out_split_is_compared_with_those_before_it(tmp_path: Path) -> None:
    for index in range(6):
        write(tmp_path / "Training" / f"{index}.png", colours(index))
        write(tmp_path / "valid" / f"{index}.png", colours(10 + index))
        write(tmp_path / "testing" / f"{index}.png", colours(20 + index))
    shutil.copy(tmp_path / "Training" / "0.png", tmp_path / "testing" / "leaked.png")
    shutil.copy(tmp_path / "valid" / "1.png", tmp_path / "testing" / "of val.png")
    shutil.copy(tmp_path / "Training" / "2.png", tmp_path / "valid" / "leaked.png")
    (tmp_path / "Training" / "raw.dng").touch()
    found = inspect_images(tmp_path, workers=0, measure=False)
    counts = found.images
    assert (counts.train, counts.val, counts.test, counts.examined) == (6, 7, 8, 21)
    leaks = {
        compared: [(Path(leak.val).name, Path(leak.train).name) for leak in leakage.exact]
        for compared, leakage in found.leakage.items()
    }
    assert leaks == {
        "val in train": [("leaked.png", "2.png")],
        "test in train": [("leaked.png", "0.png")],
        "test in val": [("of val.png", "1.png")],
    }
    assert "1 image of test is also in val" in found.warnings
    assert found.skipped == {".dng": 1}
    text = " ".join(render(found).split())
    assert "images train 6, val 7, test 8" in text
    assert "other files 1 file is skipped because of the ending: .dng 1" in text
    assert "test in val 1 testing/of val.png = valid/1.png" in text


def test_kinds_sizes_and_classes_are_those_of_the_files(audit: Audit) -> None:
    assert audit.kinds.formats == {"PNG": 20, "JPEG": 3}
    assert audit.kinds.channels == {"3": 22, "1": 1}
    assert audit.kinds.bits == {"8": 22, "16": 1}
    assert (audit.sizes.width.min, audit.sizes.width.max) == (40, 100)
    assert audit.sizes.aspect.max == 1.5
    assert audit.classes is not None
    assert (audit.classes.largest, audit.classes.largest_images) == ("ant", 12)
    assert audit.classes.with_one_image == ("cat",)


def test_warnings_say_it_in_sentences(audit: Audit) -> None:
    assert audit.warnings == (
        "1 image of 24 cannot be read: other images will replace them",
        "1 image of val is also in train",
        "1 more of val looks like one in train",
        "17% of the images are copies or near copies of others: they weigh more in training than "
        "they should",
        "20 images are few to learn from without labels; some thousand are better",
        "1 image is 16 bits deep and each is scaled by its own brightest value; set data.bits to "
        "the depth of the camera to scale all alike",
        "1 class has only one image: none is left to evaluate with",
    )


def test_warnings_about_a_single_image_are_in_the_singular(audit: Audit) -> None:
    single = replace(audit, images=replace(audit.images, train=1))
    said = " ".join(warnings_of(single, unreadable_limit=1.0, memory=None))
    assert "1 image is too little to learn from without labels" in said
    assert "1 image are" not in said
    kinds = replace(audit.kinds, channels={"5": 3, "1": 1})
    deep = replace(audit, kinds=kinds, pixels=replace(audit.pixels, channels=5))
    said = " ".join(warnings_of(deep, unreadable_limit=1.0, memory=None))
    assert "1 image of 4 has fewer than 5 channels" in said


def test_more_unreadable_images_than_a_run_allows_are_warned_of_as_such(audit: Audit) -> None:
    two = replace(audit, unreadable=2 * audit.unreadable)
    assert warnings_of(two, unreadable_limit=0.01, memory=None)[0] == (
        "2 images of 24 cannot be read: above data.unreadable_limit=0.01, so a run would stop; "
        "repair or remove them"
    )
    said = warnings_of(two, unreadable_limit=0.1, memory=None)[0]
    assert said == "2 images of 24 cannot be read: other images will replace them"


def test_names_that_are_no_text_are_shown_as_escapes(audit: Audit) -> None:
    odd = Unreadable(f"{audit.data}/bad\udcff\n.png", "the file is damaged")
    text = render(replace(audit, unreadable=(odd,), command="attmask pretrain \udcff"))
    assert text.encode().decode() == text
    assert "bad\\udcff\\n.png (the file is damaged)" in text
    assert text.endswith("attmask pretrain \\udcff\n")


def test_a_part_of_the_images_is_said_to_be_a_part(planted: Path) -> None:
    part = inspect_images(planted, max_images=12, workers=0, measure=False)
    assert (part.images.examined, part.images.all_examined) == (12, False)
    assert part.images.train == 20
    assert any("only 12 of 24 images were looked at" in line for line in part.warnings)


def test_the_table_fits_eighty_columns_but_for_the_command(audit: Audit) -> None:
    text = render(audit)
    lines = text.splitlines()
    assert lines[-1].strip() == audit.command
    assert max(map(len, lines[:-1])) <= 80
    assert not any(line != line.rstrip() for line in lines)
    for part in ("Images", "Pictures", "Faults", "Advice", "Warnings", "Run"):
        assert part in lines
    assert "\x1b" not in text
    assert "train/bee/broken.jpg" in text


def test_nothing_readable_is_one_line_with_the_first_reason(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"no picture")
    with pytest.raises(UserError, match=r"no readable image in .*: tried 1, the first: .*a\.jpg"):
        inspect_images(tmp_path, workers=0, measure=False)


def test_an_array_of_five_channels_is_advised_as_such(tmp_path: Path) -> None:
    stack = np.stack([np.dstack([colours(i), colours(i)[:, :, :2] // 4]) for i in range(6)])
    np.save(tmp_path / "stack.npy", stack)
    found = inspect_images(tmp_path / "stack.npy", workers=0, measure=False)
    assert found.kinds.modes == {"uint8": 6}
    assert "data.channels=5" in found.command
    assert len(found.pixels.mean) == 5


def test_the_command_prints_json_with_what_was_timed(planted: Path) -> None:
    words = ["inspect", str(planted), "--recipe", "tiny", "--max-images", "100", "--json"]
    status, out, err = finish(start(*words))
    assert (status, err) == (0, "")
    found = json.loads(out)
    assert found["recipe"] == "tiny"
    assert found["timing"]["images_per_second"] > 0
    assert found["leakage"]["val in train"]["exact"][0]["val"].endswith("leaked.png")
    assert found["images"]["test"] is None


def test_what_a_run_costs_is_shown_and_warned_of(audit: Audit) -> None:
    timing = Timing(
        device="cuda:0",
        precision="bf16",
        batch_size=64,
        workers=3,
        batches_timed=6,
        steps_timed=5,
        step_seconds_min=0.5,
        step_seconds_max=0.75,
        loader_images_per_second=100.0,
        network_images_per_second=400.0,
        images_per_second=100.0,
        bottleneck="data",
        steps_per_epoch=1000,
        epochs=500,
        epoch_seconds=640.0,
        run_seconds=320_000.0,
        process_bytes=3 * 2**30,
        workers_bytes=2**30,
        device_bytes=5 * 2**30,
    )
    timed = replace(audit, timing=timing)
    text = " ".join(render(timed).split())
    assert (
        "On this machine measured 5 steps of 64 images on cuda:0 in bf16, of 0.50 to 0.75 s" in text
    )
    assert "data 100.0 images a second by 3 workers" in text
    assert "an epoch 11 min, 1,000 steps the run 88.9 h, 500 epochs" in text
    assert "training process 3.00 GiB, workers 1.00 GiB, cuda:0 5.00 GiB" in text
    said = " ".join(warnings_of(timed, unreadable_limit=1.0, memory=4 * 2**30))
    assert "the network would wait for its data" in said
    assert "the run would take 3.7 days here; data.percent=81 would end it in 3" in said
    assert "the run needs 4.0 of 4.0 GiB of memory" in said
    hardly = replace(audit, timing=replace(timing, run_seconds=72 * 3600 + 600.0))
    assert "data.percent=99 " in " ".join(warnings_of(hardly, unreadable_limit=1.0, memory=None))


def test_the_keys_of_the_json_are_those_that_are_documented(audit: Audit) -> None:
    found = json.loads(json.dumps(audit.to_dict()))
    documented = re.findall(r"^ {4}([a-z_]+(?:, [a-z_]+)?) {2,}", audits.__doc__ or "", re.M)
    assert list(found) == [key for keys in documented for key in keys.split(", ")]
    for spread in found["sizes"].values():
        assert list(spread) == ["min", "q05", "median", "q95", "max"]


@pytest.mark.slow
@needs("pets160")
def test_in_real_photographs_a_picture_that_was_saved_twice_is_found() -> None:
    found = inspect_images(FOLDER / "pets160", workers=0, measure=False)
    near = found.leakage["val in train"].near
    assert [Path(leak.val).name for leak in near] == ["British_Shorthair_278.jpg"]
    assert not found.unreadable


def test_the_commands_default_number_of_images_is_the_functions() -> None:
    assert parse(["inspect", "images"]).max_images == MAX_IMAGES
