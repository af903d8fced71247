"""The model card of an export: README.md as the Hugging Face hub reads it."""

import importlib.metadata
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from attmask.evaluation.reporting.card import Card
from attmask.exporting.format import Format
from attmask.exporting.probes import LARGEST_ERROR, Check
from attmask.exporting.scores import cell, score_rows
from attmask.exporting.subject import Subject
from attmask.exporting.training import training_lines, tuning_scores
from attmask.software import software
from attmask.wording import agree

_NO_LICENSE = (
    "No licence was stated when this was exported (`attmask export --license ID` states one). "
    "Ask the author before you use it, and mind the licence of the data and of the weights that "
    "training started from."
)


@dataclass(frozen=True)
class ModelCard:
    """All that a card says."""

    subject: Subject
    format: Format
    checks: Sequence[Check]
    cards: Sequence[Card]
    other_cards: int
    """Cards of the run that belong to other weights and are left out."""
    license: str | None
    named: str
    """What the lines of Python load."""

    def text(self) -> str:
        """The whole card."""
        parts = [self._front(), self._head(), self._use(), self._input(), self._training()]
        parts += [self._scores(), self._export(), self._versions(), self._license()]
        return "\n".join(line for part in parts for line in part).rstrip() + "\n"

    def _front(self) -> Iterator[str]:
        """The YAML of the hub; JSON strings are YAML too, whatever a name holds."""
        task = "image-classification" if self.subject.classes else "image-feature-extraction"
        tags = ["attmask", "vision-transformer", "self-supervised-learning", self.format.library]
        yield from ("---", f"license: {json.dumps(self.license or 'other')}")
        if self.license is None:
            yield "license_name: unknown"
        yield from (f"library_name: {self.format.library}", f"pipeline_tag: {task}", "tags:")
        yield from (f"- {tag}" for tag in dict.fromkeys(tags))
        yield from ("---", "")

    def _head(self) -> Iterator[str]:
        backbone, subject = self.subject.backbone, self.subject
        parameters = sum(parameter.numel() for parameter in backbone.vit.parameters()) / 1e6
        registers = f", {backbone.prefix - 1} registers" if backbone.prefix > 1 else ""
        yield f"# {cell(subject.model.name)}"
        yield ""
        yield (
            f"A vision transformer: width {backbone.width}, {backbone.depth} blocks, "
            f"{backbone.heads[0]} heads, patches of {backbone.patch_size} pixels{registers}, "
            f"{parameters:.1f} million parameters, for images of {subject.image_size} x "
            f"{subject.image_size} pixels with {backbone.channels} channels."
        )
        if subject.classes:
            several = subject.classifier is not None and subject.classifier.multi_label
            kind = "any number of" if several else "one of"
            yield f"It assigns {kind} {len(subject.classes)} classes to an image."
        for lost in ("segmenter", "detector"):
            if getattr(subject.model, lost) is not None:
                yield f"Only the backbone is here; no format of attmask holds its {lost}."
        yield ""

    def _use(self) -> Iterator[str]:
        yield from ("## How to load it", "```python")
        yield self.format.usage(self.subject, self.named).rstrip()
        yield from ("```", "")

    def _input(self) -> Iterator[str]:
        subject = self.subject
        means, stds = (", ".join(f"{v:g}" for v in each) for each in (subject.mean, subject.std))
        yield "## Input"
        yield (
            f"Resize the shorter side to {subject.shorter_side} pixels (bicubic), crop the centre "
            f"of {subject.image_size} x {subject.image_size}, scale the values to 0..1, subtract "
            f"the mean ({means}) and divide by the standard deviation ({stds})."
        )
        yield ""
        if "attention" in self.checks[0].differences:
            yield (
                f"`attention` is that of `[CLS]` to each patch in block "
                f"{subject.backbone.layer + 1}, averaged over heads."
            )
            yield ""

    def _training(self) -> Iterator[str]:
        yield "## Training"
        yield from training_lines(self.subject.model)
        yield ""

    def _scores(self) -> Iterator[str]:
        yield "## Scores"
        for line in tuning_scores(self.subject.model):
            yield f"- Fine-tuning: {cell(line)}"
        if self.cards:
            yield from ("", "| task | metric | value | images | date |", "|---|---|---|---|---|")
            yield from score_rows(list(self.cards))
            yield from ("", "`evaluations.json` has the card of each: protocol, data, hashes.")
        else:
            yield "No evaluation of these weights was recorded (`attmask evaluate` records them)."
        if self.other_cards:
            be = agree(
                self.other_cards,
                "result of other weights of the run is",
                "results of other weights of the run are",
            )
            yield f"{self.other_cards} {be} left out."
        yield ""

    def _export(self) -> Iterator[str]:
        yield "## Verification"
        yield (
            "The export was loaded with its own library and compared with attmask on generated "
            f"photographs; it may differ by less than {LARGEST_ERROR:g}, or, where values are "
            "larger than one, by that share of the largest."
        )
        yield from ("", "| images | size | largest difference |", "|---|---|---|")
        for check in self.checks:
            each = ", ".join(
                f"{name} {value:.1e} (values up to {check.values[name]:.2g})"
                for name, value in check.differences.items()
            )
            yield f"| {check.images} | {check.height} x {check.width} | {each} |"
        yield ""
        if self.format.takes_other_sizes(self.subject):
            yield "Images of other sizes, in whole patches, have the same features as in attmask."
        else:
            yield (
                "It is meant for this size. At another one its library refuses images, or resizes "
                "position embeddings otherwise than in training; export again with `--size`."
            )
        yield ""

    def _versions(self) -> Iterator[str]:
        found = software()
        for name in self.format.packages:
            try:
                found[name] = importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                continue
        yield "## Versions"
        yield ", ".join(f"{name} {version}" for name, version in found.items())
        yield ""

    def _license(self) -> Iterator[str]:
        yield "## Licence"
        yield _NO_LICENSE if self.license is None else f"`{self.license}`"
