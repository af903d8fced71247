import os
from dataclasses import replace
from pathlib import Path

import numpy as np

from attmask.data.contents import contents, fingerprint
from attmask.data.source import Source
from attmask.data.sources import open_images
from tests.data.stores.test_index import keep, settle
from tests.sources import of_files, png, touch, write_tar


def folder(root: Path) -> Source:
    for name, shade in (("a.png", 1), ("b.png", 2)):
        (root / name).write_bytes(png(shade))
    return of_files(root, ["a.png", "b.png"], [0, 1], ("x", "y"))


def test_the_same_pictures_have_the_same_contents_and_others_have_not(tmp_path: Path) -> None:
    source = folder(tmp_path)
    before = contents(source)
    assert contents(of_files(tmp_path, ["a.png", "b.png"], [0, 1], ("x", "y"))) == before
    assert contents(of_files(tmp_path, ["b.png", "a.png"], [0, 1], ("x", "y"))) != before
    assert contents(of_files(tmp_path, ["a.png", "b.png"], [1, 1], ("x", "y"))) != before
    assert contents(source.subset([0])) != before


def test_a_file_that_was_written_again_is_another_picture(tmp_path: Path) -> None:
    source = folder(tmp_path)
    before = contents(source)
    (tmp_path / "b.png").write_bytes(png(3))
    os.utime(tmp_path / "b.png", ns=(0, 1))
    after = contents(source)
    assert after != before
    (tmp_path / "b.png").unlink()
    assert contents(source) not in (before, after)


def test_shards_and_arrays_are_told_apart_by_what_they_hold(tmp_path: Path) -> None:
    seen = set()
    for shade in (1, 2):
        tar = write_tar(tmp_path / "a.tar", {"0.png": png(shade)})
        os.utime(tar, ns=(0, shade))
        np.save(tmp_path / "a.npy", np.full((2, 8, 8, 3), shade, dtype=np.uint8))
        seen |= {contents(open_images(tar).train), contents(open_images(tmp_path / "a.npy").train)}
    assert len(seen) == 4


def test_a_fingerprint_has_the_value_that_older_runs_have_saved() -> None:
    labelled = of_files(Path("anywhere"), ["a/1.png", "b/ü.png"], [0, 1], ("a", "b"))
    assert fingerprint(labelled) == (
        "36d15858fcc660a26a807818f719fc2fa57dbe8cead602d6125ec303426783ec"
    )
    unlabelled = of_files(Path("anywhere"), ["a/1.png", "b/ü.png"])
    assert fingerprint(unlabelled) == (
        "533c93b8acfc0415b40449dca1bc850a66f2448cfebbe8dea0a369b3212f27d9"
    )


def test_the_fingerprint_of_all_images_is_kept_and_that_of_others_is_not_taken_for_it(
    tmp_path: Path,
) -> None:
    settle(touch(tmp_path / "data", "a/1.jpg", "b/2.jpg", "b/3.jpg"))
    scanned = open_images(tmp_path / "data").train
    kept = keep(tmp_path / "data", tmp_path / "run").train
    assert kept.listing is not None
    plain = replace(kept, listing=None)
    assert kept.listing.fingerprint == fingerprint(scanned) == fingerprint(plain)
    kept.listing.fingerprint = "as kept"
    assert fingerprint(kept) == "as kept"
    assert fingerprint(replace(kept, root=Path("elsewhere"))) == "as kept"
    assert kept.labels is not None
    others = [
        kept.subset([0, 1, 2]),
        replace(kept, labels=kept.labels[::-1].copy()),
        replace(kept, labels=None),
        kept.first(2),
    ]
    assert [fingerprint(one) for one in others] == [
        fingerprint(replace(one, listing=None)) for one in others
    ]
    assert fingerprint(others[0]) == fingerprint(plain)
