"""Export a checkpoint: write it in a format, verify it with its own library, then call it done.

OUT/model.safetensors, config.json, ...    the files of the format
OUT/README.md                              the model card
OUT/evaluations.json                       the cards of its scores, if there are any
OUT/export.json                            what was exported, and how far it differs
"""

import json
import logging
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from attmask import atomic
from attmask.errors import UserError
from attmask.evaluation.loading import load_model
from attmask.evaluation.network_names import names_of
from attmask.evaluation.reporting.card import write_cards
from attmask.exporting.as_huggingface import AsHuggingFace
from attmask.exporting.as_onnx import AsOnnx
from attmask.exporting.as_reference import AsReference
from attmask.exporting.as_timm import AsTimm
from attmask.exporting.as_torch import AsTorch
from attmask.exporting.card import ModelCard
from attmask.exporting.format import Format
from attmask.exporting.probes import Check, verify
from attmask.exporting.scores import own_cards
from attmask.exporting.subject import Subject
from attmask.software import software

FormatName = Literal["timm", "hf", "onnx", "torch", "reference"]
RECORD, CARD = "export.json", "README.md"
HUB = "hf-hub:REPO"
"""Stands for the repository in the lines of Python of a published card."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Exported:
    """A finished export."""

    path: Path
    format: str
    checks: tuple[Check, ...]
    usage: str
    """A few lines of Python that load it."""

    @property
    def difference(self) -> float:
        """The largest difference between the export and the network, on all probe images."""
        return max(check.largest for check in self.checks)

    @property
    def error(self) -> float:
        """The same as a share of the output's largest value, where that is above one."""
        return max(check.error for check in self.checks)


def export_checkpoint(
    checkpoint: str | Path,
    out: Path,
    format_name: str,
    *,
    image_size: int | None = None,
    dynamic_size: bool = False,
    backbone_only: bool = False,
    license_id: str | None = None,
) -> Exported:
    """Write, verify and describe an export; nothing is left at `out` if it is not right."""
    form = _format(format_name, checkpoint, dynamic_size=dynamic_size)
    if out.exists() or out.is_symlink():
        raise UserError(f"{out} exists; choose another --out, or remove it")
    shown = names_of([checkpoint])[0]
    model = load_model(checkpoint, shown)
    subject = Subject.of(model, image_size, backbone_only=backbone_only)
    _say_what_is_lost(subject)
    try:
        with atomic.folder(out, replaces=lambda _: False) as folder:
            form.write(subject, folder)
            forward = form.open(subject, folder)
            checks = verify(subject, forward, other_sizes=form.takes_other_sizes(subject))
            usage = _describe(subject, format_name, form, checks, folder, out, license_id)
            _readable_by_all(folder)
    except OSError as fault:
        why = fault.strerror or fault
        raise UserError(f"cannot write {out}: {why}; {atomic.what_to_do(fault)}") from fault
    return Exported(out, format_name, tuple(checks), usage)


def _format(name: str, checkpoint: str | Path, *, dynamic_size: bool) -> Format:
    if name not in get_args(FormatName):
        raise UserError(f"there is no format {name}; use {', '.join(get_args(FormatName))}")
    if dynamic_size and name not in ("onnx", "torch"):
        raise UserError(
            f"--dynamic-size is for the formats onnx and torch, not {name}; leave it out"
        )
    formats: dict[str, Format] = {
        "timm": AsTimm(),
        "hf": AsHuggingFace(),
        "onnx": AsOnnx(dynamic_size),
        "torch": AsTorch(dynamic_size),
        "reference": AsReference(checkpoint),
    }
    return formats[name]


def _say_what_is_lost(subject: Subject) -> None:
    for part in ("segmenter", "detector"):
        if getattr(subject.model, part) is not None:
            log.warning("%s: exporting the backbone without its %s", subject.model.name, part)


def _describe(
    subject: Subject,
    name: str,
    form: Format,
    checks: list[Check],
    folder: Path,
    out: Path,
    license_id: str | None,
) -> str:
    """Write the model card, the cards of the scores and the record; return the lines of Python."""
    cards, others = own_cards(subject.model)
    if cards:
        write_cards(cards, folder / "evaluations.json")
    here = f"./{out.absolute().name}"
    card = ModelCard(subject, form, checks, cards, others, license_id, here)
    (folder / CARD).write_text(card.text(), encoding="utf-8")
    record: dict[str, Any] = {
        "software": software(),
        "format": name,
        "checkpoint": subject.model.name,
        "license": license_id,
        "network": subject.describe(),
        "verified": [asdict(check) for check in checks],
        "usage": {
            "local": form.usage(subject, here),
            "hub": form.usage(subject, HUB),
        },
    }
    (folder / RECORD).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return form.usage(subject, str(out))


def _readable_by_all(folder: Path) -> None:
    """Give every file the usual permissions; safetensors makes files for the owner alone."""
    usual = (folder / RECORD).stat().st_mode
    for file in folder.iterdir():
        if file.is_file():
            file.chmod(usual)
