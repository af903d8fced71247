"""A data set: the sources of its splits, and what a scan of them found."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from attmask.data.contents import fingerprint
from attmask.data.pictures.endings import describe_skipped
from attmask.data.source import Source
from attmask.data.stores.files import files_of
from attmask.data.stores.index import Index, load_index
from attmask.data.stores.shards import shards_of
from attmask.data.stores.splits import TRAIN
from attmask.errors import UserError
from attmask.wording import counted

log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Images:
    """A data set: images to train on and, if there are any, images that are held out."""

    train: Source
    val: Source | None = None
    test: Source | None = None
    found: Index | None = field(default=None, repr=False)
    """The index of a scan made just now; None if nothing was scanned."""
    skipped: Mapping[str, int] = field(default_factory=dict)
    """The number of skipped files by ending."""

    @classmethod
    def of(cls, splits: Mapping[str, Source]) -> "Images":
        """The data set of these splits: train, and perhaps val and test."""
        return cls(splits["train"], splits.get("val"), splits.get("test"))

    @classmethod
    def indexed(cls, index: Index) -> "Images":
        """The data set of an index."""
        open_part = shards_of if index.kind == "shards" else files_of
        splits = {name: open_part(index, part) for name, part in index.parts.items()}
        return replace(cls.of(splits), skipped=index.skipped)

    @property
    def splits(self) -> Mapping[str, Source]:
        """The existing splits, by name."""
        named = {"train": self.train, "val": self.val, "test": self.test}
        return {name: source for name, source in named.items() if source is not None}

    @property
    def held_out(self) -> Source | None:
        """The images to evaluate on: val, or else test, or none."""
        name = self.split_to_test("auto")
        return None if name is None else self.splits[name]

    def split_to_test(self, wanted: str) -> str | None:
        """The name of the split to evaluate on: `auto` is val, or else test, or none."""
        if wanted == "auto":
            return next((name for name in self.splits if name != "train"), None)
        if wanted not in self.splits:
            raise UserError(
                f"there is no split {wanted} in {self.train.root}, only "
                f"{', '.join(self.splits)}; choose one of these"
            )
        return wanted

    def left_out(self) -> list[str]:
        """Lines about images that are not trained on: other splits, and skipped files."""
        held_out = [
            f"{name}: {counted(len(source), 'image')}"
            for name, source in self.splits.items()
            if name != "train"
        ]
        lines = []
        if held_out:
            alone = len(held_out) == 1 and held_out[0].endswith(" image")
            lines.append(f"{' and '.join(held_out)} {'is' if alone else 'are'} held out")
        if self.skipped:
            lines.append(describe_skipped(self.skipped))
        return lines

    def keep_index(self, folder: Path) -> "Images":
        """Save the index of a scan, so that the next start does not scan again.

        The result is the same data set in the file of the index, which takes no memory of its own
        and is shared by all processes; without an index it is this data set.
        """
        if self.found is None or not self.found.can_be_trusted:
            return self
        parts = dict(self.found.parts)
        parts[TRAIN] = replace(parts[TRAIN], fingerprint=fingerprint(self.train))
        try:
            replace(self.found, parts=parts).save(folder)
        except OSError as fault:  # a start that scans again is no reason to stop this run
            log.warning("cannot keep the index in %s: %s", folder, fault.strerror or fault)
            return self
        kept = load_index(folder, self.found.root)
        return self if kept is None else Images.indexed(kept)
