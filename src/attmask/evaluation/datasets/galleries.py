"""Retrieval by class: the metric learning data sets, or any folder."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from attmask.data.source import Source
from attmask.data.sources import open_images
from attmask.data.stores.labels import in_order
from attmask.data.subset import first_per_class
from attmask.errors import UserError
from attmask.evaluation.datasets.listed import files_source, folder_with, require_images, table
from attmask.settings import Config, setting


@dataclass(frozen=True, eq=False)
class Gallery:
    """Queries and the gallery that they are searched in, with the same classes."""

    queries: Source
    gallery: Source | None = None
    """None if each query is searched among the other queries."""

    @property
    def sources(self) -> Mapping[str, Source]:
        """The queries, and the gallery if there is one."""
        if self.gallery is None:
            return {"queries": self.queries}
        return {"queries": self.queries, "gallery": self.gallery}


class Folder(Config):
    """Any labelled images: `val/` or `test/` if there is one, else all."""

    layout: ClassVar[str] = "val/CLASS/*.jpg, test/CLASS/*.jpg or CLASS/*.jpg"

    per_class: int | None = setting(
        None, "use the first n images of each class, in file order (null: all)", ge=1
    )

    def open(self, path: Path) -> Gallery:
        """Open the images, each of which is searched among the others."""
        images = open_images(path)
        source = (images.held_out or images.train).with_own_classes()
        if source.labels is None:
            raise UserError(f"the images of {source.root} have no labels; wanted {self.layout}")
        return Gallery(
            source if self.per_class is None else first_per_class(source, self.per_class)
        )


class CUB(Config):
    """Caltech-UCSD Birds 200-2011: the classes 101 to 200."""

    layout: ClassVar[str] = "CUB_200_2011/ with images.txt, image_class_labels.txt and images/"

    def open(self, path: Path) -> Gallery:
        """Open the 5,924 images of the second hundred of classes."""
        root = folder_with(path, "images.txt", ["CUB_200_2011"], self.layout)
        folder_with(root, "image_class_labels.txt", [], self.layout)
        labels = dict(table(root / "image_class_labels.txt", 2))
        rows = []
        for number, name in table(root / "images.txt", 2):
            if number not in labels:
                raise UserError(
                    f"image {number} of {root / 'images.txt'} has no line in "
                    f"image_class_labels.txt; download both files from the same source"
                )
            rows.append((name, labels[number]))
        kept = _of_classes(rows, range(101, 201), root / "images.txt")
        return Gallery(_listed(root / "images", kept, self.layout))


class Cars(Config):
    """Stanford Cars: the classes 99 to 196."""

    layout: ClassVar[str] = (
        "cars_annos.mat and car_ims/, or devkit/cars_train_annos.mat, "
        "devkit/cars_test_annos_withlabels.mat, cars_train/ and cars_test/"
    )

    def open(self, path: Path) -> Gallery:
        """Open the 8,131 images of the second half of the classes."""
        if (path / "cars_annos.mat").is_file():
            rows = _annotations(path / "cars_annos.mat", "relative_im_path")
        else:
            rows = []
            for part, file in (
                ("cars_train", "cars_train_annos.mat"),
                ("cars_test", "cars_test_annos_withlabels.mat"),
            ):
                devkit = folder_with(path, file, ["devkit"], self.layout)
                named = _annotations(devkit / file, "fname")
                rows += [(f"{part}/{name}", label) for name, label in named]
        kept = _of_classes(rows, range(99, 197), path)
        return Gallery(_listed(path, kept, self.layout))


class SOP(Config):
    """Stanford Online Products: the official test list."""

    layout: ClassVar[str] = "Stanford_Online_Products/ with Ebay_test.txt and the folders it names"

    def open(self, path: Path) -> Gallery:
        """Open the 60,502 images of 11,316 products."""
        root = folder_with(path, "Ebay_test.txt", ["Stanford_Online_Products"], self.layout)
        rows = [(name, product) for _, product, _, name in table(root / "Ebay_test.txt", 4, skip=1)]
        return Gallery(_listed(root, rows, self.layout))


class InShop(Config):
    """DeepFashion In-Shop: the official queries and gallery."""

    layout: ClassVar[str] = "list_eval_partition.txt (or in Eval/) and Img/img/"

    def open(self, path: Path) -> Gallery:
        """Open the 14,218 queries and the 12,612 gallery images."""
        file = "list_eval_partition.txt"
        listing = folder_with(path, file, ["Eval"], self.layout) / file
        root = path / "Img" if (path / "Img").is_dir() else path
        parts: dict[str, list[tuple[str, str]]] = {"train": [], "query": [], "gallery": []}
        for name, item, status in table(listing, 3, skip=2):
            if status not in parts:
                raise UserError(
                    f"{name} in {listing} has the status {status}; "
                    f"wanted train, query or gallery; download the official file again"
                )
            parts[status].append((name, item))
        # Queries and gallery share the class indices, also of classes that only one of them has.
        classes = in_order(list({item for p in ("query", "gallery") for _, item in parts[p]}))
        for part in ("query", "gallery"):
            if not parts[part]:
                raise UserError(
                    f"{listing} names no {part} images; download the official file again"
                )
        return Gallery(
            _listed(root, parts["query"], self.layout, classes),
            _listed(root, parts["gallery"], self.layout, classes),
        )


def _of_classes(
    rows: Sequence[tuple[str, str]], classes: range, where: Path
) -> list[tuple[str, str]]:
    """The rows of these classes."""
    kept = [(name, label) for name, label in rows if label.isdecimal() and int(label) in classes]
    if not kept:
        raise UserError(
            f"{where} names no images of the classes {classes[0]} to {classes[-1]}; "
            "download the official file again"
        )
    return kept


def _listed(
    root: Path,
    rows: Sequence[tuple[str, str]],
    layout: str,
    classes: Sequence[str] | None = None,
) -> Source:
    """The images of rows of name and class, all of which must exist."""
    if not rows:
        raise UserError(f"the lists of {root} name no images; wanted {layout}")
    names, labels = [name for name, _ in rows], [label for _, label in rows]
    require_images(root, {"images": names}, layout)
    return files_source(root, names, labels, classes or in_order(list(set(labels))))


def _annotations(file: Path, name: str) -> list[tuple[str, str]]:
    """The name and the class of each image of a MATLAB file."""
    try:
        from scipy.io import loadmat
    except ImportError as fault:
        raise UserError(
            f"{file} is a MATLAB file, which needs scipy; run `pip install scipy`"
        ) from fault
    try:
        rows = np.atleast_1d(loadmat(file, squeeze_me=True)["annotations"])
        return [(str(row[name]), str(int(row["class"]))) for row in rows]
    except Exception as fault:  # loadmat raises many kinds of errors for damaged files
        raise UserError(
            f"{file} has no annotations with {name} and class ({fault}); download the official "
            "file again"
        ) from fault
