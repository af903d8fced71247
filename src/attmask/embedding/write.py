"""Features of all images in one file: read in parts by all processes, then joined by the main one.

A process that is killed leaves its parts; the same command reads what is missing. The file is the
same to the bit, however often it was interrupted and by however many processes it was read.
"""

import json
import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from attmask import atomic, distributed
from attmask.agreement import together
from attmask.data.decode import UnreadableImageError, decode
from attmask.embedding.embedder import Embedder, ReadRows
from attmask.embedding.file import EmbeddingFile, beside, parts_folder, unreadable_list
from attmask.embedding.formats import Format, write_file
from attmask.embedding.joined import BYTES, DType, Joined
from attmask.embedding.parts import Part, Parts, PartWriter, differences, read_json
from attmask.errors import UserError
from attmask.evaluation.features.store import check_room
from attmask.evaluation.reporting.progress import counting
from attmask.interrupt import stop_signals
from attmask.presence import hold
from attmask.software import software
from attmask.wording import counted

log = logging.getLogger(__name__)

Value = TypeVar("Value")

_SECONDS_OF_A_SHARED_DISK = 60
_TRIED_AGAIN = 64  # unreadable images of a part


def write_features(embedder: Embedder, out: Path, form: Format, dtype: DType) -> EmbeddingFile:
    """Write the features of all images; what an interrupted call has read is not read again."""
    parts = Parts(parts_folder(out))
    key = _by_main(out, lambda: json.loads(json.dumps({**embedder.key(), "dtype": dtype})))
    there = _by_main(out, lambda: _finished(embedder, parts, out, key))
    if there is not None:
        return there
    with hold(parts.folder) as heartbeat, stop_signals() as stopped:
        missing = _by_main(out, lambda: _begin(embedder, parts, out, dtype, key))
        heartbeat.update(state="running")
        with together(), _disk_errors(out):
            _read(embedder, PartWriter(parts, dtype), missing, stopped)
        if (signal := max(distributed.gather(stopped()))) > 0:
            heartbeat.update(state="stopped")
            done = _by_main(out, lambda: sum(len(part.rows) for part in parts.done()))
            return EmbeddingFile(out, len(embedder.images), done, stopped_by=signal)
        file = _by_main(out, lambda: _join(embedder, parts, out, form, dtype, key))
        heartbeat.update(state="finished")
    if distributed.is_main():
        atomic.remove_folder(parts.folder)
    return file


def _finished(
    embedder: Embedder, parts: Parts, out: Path, key: Mapping[str, Any]
) -> EmbeddingFile | None:
    """The file if an earlier call has finished it; another file in its place is an error."""
    if not out.exists() or parts.belongs_to(key):
        return None
    known = read_json(beside(out, ".json"))
    if not isinstance(known, dict) or not isinstance(known.get("key"), dict):
        raise UserError(
            f"{out} is there, but not the description that attmask embed writes beside it; remove "
            "it or choose another --out"
        )
    if known["key"] != key:
        raise UserError(
            f"{out} holds features of other settings ({differences(key, known['key'])}); remove "
            "it or choose another --out"
        )
    images, shape = len(embedder.images), tuple(known["shape"])
    return EmbeddingFile(out, images, images, shape, known["unreadable"], was_there=True)


def _begin(
    embedder: Embedder, parts: Parts, out: Path, dtype: DType, key: Mapping[str, Any]
) -> list[range]:
    """The rows that are still to be read, each range inside a split."""
    parts.begin(key)
    for part in parts.done():
        if _reads_more_now(embedder, parts, part):
            part.file.unlink()
    missing = [gap for piece in embedder.pieces for gap in parts.missing(piece.rows)]
    images, left = len(embedder.images), sum(map(len, missing))
    if left < images:
        log.info("%s of %s were read before", f"{images - left:,}", counted(images, "image"))
    # The parts stay until the file is whole.
    needed = (left + images) * BYTES[dtype] * math.prod(embedder.shape)
    try:
        check_room(out.parent, needed)
    except OSError as fault:
        raise UserError(
            f"{out} needs {needed / 1e9:,.1f} GB of free disk space until it is joined; make room "
            "or choose another --out"
        ) from fault
    return missing


def _read(
    embedder: Embedder, writer: PartWriter, missing: list[range], stopped: Callable[[], int]
) -> None:
    """Read this process's share of the missing rows, until it is asked to stop."""
    own = embedder.share_of(missing)
    with counting("embedding images", sum(map(len, own))) as count:
        for rows in own:
            for batch in embedder.read(rows):
                writer.add(batch, _reasons(embedder, batch))
                count(len(batch.rows))
                if stopped():
                    break
            writer.flush()  # a part belongs to one split
            if stopped():
                return


def _reasons(embedder: Embedder, batch: ReadRows) -> list[str]:
    """A line for each image of a batch that cannot be read."""
    lines = []
    for index in np.flatnonzero(~batch.readable).tolist():
        piece = embedder.images.piece(batch.rows[index])
        place = piece.indices(batch.rows)[index]
        try:
            decode(piece.source, place, embedder.model.data)
        except UnreadableImageError as fault:
            lines.append(fault.line)
        else:
            lines.append(f"{piece.source.place(place)}\tit could not be read at first")
    return lines


def _reads_more_now(embedder: Embedder, parts: Parts, part: Part) -> bool:
    """Whether an image of a part that could not be read before can be read now."""
    for row in parts.unread(part)[:_TRIED_AGAIN].tolist():
        piece = embedder.images.piece(row)
        try:
            decode(piece.source, row - piece.rows.start, embedder.model.data)
        except UnreadableImageError:
            continue
        return True
    return False


def _join(
    embedder: Embedder,
    parts: Parts,
    out: Path,
    form: Format,
    dtype: DType,
    key: Mapping[str, Any],
) -> EmbeddingFile:
    """Join the parts of all processes to one file, and write what belongs beside it."""
    images, joined = len(embedder.images), Joined(parts, embedder.images, embedder.shape, dtype)
    _wait_for_parts(parts, images)
    unread = list(parts.unreadable())
    if joined.rows == 0:
        raise UserError(
            f"none of {counted(images, 'image')} can be read ({': '.join(unread[0].split(chr(9)))})"
            "; check that these files are images"
        )
    described = {
        "software": software(),
        "checkpoint": embedder.model.name,
        "network": embedder.model.describe(embedder.crop.size),
        "unreadable": len(unread),
        **joined.describe(),
        "key": dict(key),
    }
    listed = unreadable_list(out)
    if unread:
        atomic.write(listed, "".join(f"{line}\n" for line in unread))
    else:
        listed.unlink(missing_ok=True)
    write_file(out, form, joined, described)
    atomic.write(beside(out, ".json"), json.dumps(described, indent=1) + "\n")
    return EmbeddingFile(out, images, images, (joined.rows, *joined.shape), len(unread))


def _wait_for_parts(parts: Parts, images: int) -> None:
    """Wait until all parts are there: a shared disk may need time to show those of others."""
    patience = time.monotonic() + (_SECONDS_OF_A_SHARED_DISK if distributed.world_size() > 1 else 0)
    while missing := parts.missing(range(images)):
        if time.monotonic() > patience:
            rows = sum(map(len, missing))
            raise UserError(
                f"the features of {counted(rows, 'image')} are not in {parts.folder}; all "
                "processes must write to the same folder, so choose --out on a shared disk"
            )
        time.sleep(0.5)


def _by_main(out: Path, work: Callable[[], Value]) -> Value:
    """What the main process computes, known to all; its error is an error of all."""
    made: list[Value] = []
    with together(), _disk_errors(out):
        if distributed.is_main():
            made.append(work())
    return distributed.from_main(made)[0]


@contextmanager
def _disk_errors(out: Path) -> Iterator[None]:
    """Errors of the disk as one line."""
    try:
        yield
    except OSError as fault:
        raise UserError(
            f"cannot write {out}: {fault.strerror or fault}; {atomic.what_to_do(fault)}"
        ) from fault
