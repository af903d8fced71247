"""Format an audit as plain text of 80 columns."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from attmask.audit.audit import Audit, Timing
from attmask.audit.summary import Spread
from attmask.columns import Row, two_columns
from attmask.data.decode import one_line
from attmask.data.pictures.endings import describe_skipped
from attmask.wording import counted, duration

_SHOWN = 3  # names; all are in the JSON


def render(audit: Audit, width: int = 80) -> str:
    """All sections under their headings, the warnings last."""
    parts: dict[str, Iterable[Row]] = {
        "Images": [*_images(audit), *_classes(audit)],
        "Pictures": _pictures(audit),
        "Faults": _faults(audit),
        "Advice": _advice(audit),
    }
    if audit.timing is not None:
        parts["On this machine"] = _timing(audit.timing)
    if audit.warnings:
        parts["Warnings"] = [("!", sentence) for sentence in audit.warnings]
    text = "\n\n".join(f"{title}\n{two_columns(rows, width)}" for title, rows in parts.items())
    # In one line, however long: it is there to be copied.
    text = f"{text}\n\nRun\n  {audit.command}\n"
    # Names may hold bytes that are no text, which a terminal does not take.
    return text.encode(errors="backslashreplace").decode()


def _images(audit: Audit) -> Iterator[Row]:
    images = audit.images
    splits = {"train": images.train, "val": images.val, "test": images.test}
    counts = [f"{name} {count:,}" for name, count in splits.items() if count is not None]
    yield "images", ", ".join(counts)
    if audit.skipped:
        yield "other files", describe_skipped(audit.skipped)
    share = "all" if images.all_examined else "evenly spread"
    yield "looked at", f"{images.examined:,} ({share})"


def _classes(audit: Audit) -> Iterator[Row]:
    found = audit.classes
    if found is None:
        yield "classes", "no labels"
        return
    yield "classes", f"{found.count:,}"
    yield "largest", f"{found.largest}: {counted(found.largest_images, 'image')}"
    yield "smallest", f"{found.smallest}: {counted(found.smallest_images, 'image')}"
    if found.with_one_image:
        yield "one image", _some(found.with_one_image)


def _pictures(audit: Audit) -> Iterator[Row]:
    yield "", f"{'min':>8}{'5 %':>8}{'median':>8}{'95 %':>8}{'max':>8}"
    sizes = audit.sizes
    yield "width", _spread(sizes.width, "8.0f")
    yield "height", _spread(sizes.height, "8.0f")
    yield "short side", _spread(sizes.short_side, "8.0f")
    yield "width / height", _spread(sizes.aspect, "8.2f")
    kinds = audit.kinds
    yield "formats", _counted(kinds.formats)
    yield "modes", _counted(kinds.modes)
    yield "channels", _counted(kinds.channels, " in")
    yield "bits a channel", _counted(kinds.bits, " in")
    if kinds.colourless:
        yield "without colour", f"{kinds.colourless:,}"
    yield "mean", _values(audit.pixels.mean)
    yield "std", _values(audit.pixels.std)
    decode = audit.decode
    yield (
        "decoding",
        f"{decode.full_per_second:,.0f} pictures a second on one core, "
        f"{decode.small_per_second:,.0f} shrunk ({decode.timed:,} timed)",
    )


def _faults(audit: Audit) -> Iterator[Row]:
    def short(place: str) -> str:
        inside = Path(place).is_relative_to(audit.data)
        return one_line(str(Path(place).relative_to(audit.data)) if inside else place)

    unreadable = [f"{short(fault.place)} ({fault.reason})" for fault in audit.unreadable]
    yield "unreadable", _some(unreadable, len(audit.unreadable))
    twice = audit.duplicates
    exact = [" = ".join(map(short, group[:2])) for group in twice.exact]
    near = [
        f"{short(group[0])} ~ {short(group[1])} ({how[0]})"
        for group, how in zip(twice.near, twice.near_how, strict=True)
    ]
    yield "copies", _some(exact, twice.exact_surplus)
    yield "near copies", _some(near, twice.near_surplus)
    if twice.flat:
        yield "too flat", f"{twice.flat:,} (left out of the near copies)"
    for compared, leakage in audit.leakage.items():
        both = [f"{short(leak.val)} = {short(leak.train)}" for leak in leakage.exact]
        alike = [f"{short(leak.val)} ~ {short(leak.train)} ({leak.how})" for leak in leakage.near]
        yield compared, _some(both)
        yield compared.replace(" in ", " like "), _some(alike)


def _advice(audit: Audit) -> Iterator[Row]:
    yield f"--recipe {audit.recipe}", audit.recipe_reason
    said = ""
    for line in audit.settings:
        reason = "likewise" if line.reason == said else line.reason
        said = line.reason
        yield f"{line.setting}={line.value}", reason


def _timing(timing: Timing) -> Iterator[Row]:
    yield (
        "measured",
        f"{counted(timing.steps_timed, 'step')} of {counted(timing.batch_size, 'image')} on "
        f"{timing.device} in {timing.precision}, of {timing.step_seconds_min:.2f} to "
        f"{timing.step_seconds_max:.2f} s "
        f"(other programs slow them); before, {timing.batches_timed} batches without training",
    )
    yield "network", f"{timing.network_images_per_second:,.1f} images a second"
    yield (
        "data",
        f"{timing.loader_images_per_second:,.1f} images a second by "
        f"{counted(timing.workers, 'worker')} (the files had just been read: a slow "
        "disk does not show)",
    )
    yield "together", f"{timing.images_per_second:,.1f}; the {timing.bottleneck} is the slower"
    yield (
        "an epoch",
        f"{duration(timing.epoch_seconds)}, {counted(timing.steps_per_epoch, 'step')}",
    )
    yield "the run", f"{duration(timing.run_seconds)}, {counted(timing.epochs, 'epoch')}"
    parts = {
        "training process": timing.process_bytes,
        "workers": timing.workers_bytes,
        timing.device: timing.device_bytes,
    }
    known = [f"{name} {size / 2**30:.2f} GiB" for name, size in parts.items() if size is not None]
    yield "memory", ", ".join(known)


def _some(names: Iterable[str], count: int | None = None) -> str:
    """A number and the first names, one a line."""
    listed = list(names)
    total = len(listed) if count is None else count
    more = ["..."] if len(listed) > _SHOWN else []
    return "\n".join([f"{total:,}" if total else "none", *listed[:_SHOWN], *more])


def _counted(counts: Mapping[str, int], joined: str = "") -> str:
    return ", ".join(f"{name}{joined} {count:,}" for name, count in counts.items())


def _spread(spread: Spread, form: str) -> str:
    values = (spread.min, spread.q05, spread.median, spread.q95, spread.max)
    return "".join(format(value, form) for value in values)


def _values(values: Iterable[float]) -> str:
    return " ".join(f"{value:.3f}" for value in values)
