"""The warnings of an audit."""

from collections.abc import Iterator

from attmask.audit.audit import Audit
from attmask.wording import agree, counted

_FEW = 1000  # images
_UNEVEN = 10.0  # largest class / smallest class
_MANY_COPIES = 0.01  # share of the images
_LONG = 4.0  # aspect, either way
_LONG_RUN = 72 * 3600  # seconds
_SLOW_DATA = 0.8  # loader speed / network speed
_MOST_MEMORY = 0.9  # share of the machine's


def warnings_of(audit: Audit, *, unreadable_limit: float, memory: int | None) -> tuple[str, ...]:
    """One sentence for each problem, the most serious first."""
    return (
        *_about_files(audit, unreadable_limit),
        *_about_copies(audit),
        *_about_pictures(audit),
        *_about_classes(audit),
        *_about_cost(audit, memory),
    )


def _about_files(audit: Audit, limit: float) -> Iterator[str]:
    count, examined = len(audit.unreadable), audit.images.examined
    if count > max(1, limit * examined):  # as `Quarantine` has it: one is always allowed
        yield (
            f"{counted(count, 'image')} of {examined:,} cannot be read: above "
            f"data.unreadable_limit={limit:g}, so a run would stop; repair or remove them"
        )
    elif count:
        said = counted(count, "image")
        yield f"{said} of {examined:,} cannot be read: other images will replace them"
    if not audit.images.all_examined:
        yield (
            f"only {examined:,} of {audit.images.total:,} images were looked at, evenly spread: "
            "copies and leakage were sought among these only, so there may be more"
        )


def _about_copies(audit: Audit) -> Iterator[str]:
    for compared, leakage in audit.leakage.items():
        held_out, _, other = compared.split()
        exact, near = len(leakage.exact), len(leakage.near)
        if exact:
            both = f"{agree(exact, 'is', 'are')} also in {other}"
            yield f"{counted(exact, 'image')} of {held_out} {both}"
        if near:
            more = f"{near:,} more" if exact else counted(near, "image")
            yield f"{more} of {held_out} {agree(near, 'looks', 'look')} like one in {other}"
    copies = audit.duplicates.exact_surplus + audit.duplicates.near_surplus
    if copies > _MANY_COPIES * audit.images.examined:
        yield (
            f"{copies / audit.images.examined:.0%} of the images are copies or near copies of "
            "others: they weigh more in training than they should"
        )


def _about_pictures(audit: Audit) -> Iterator[str]:
    images = audit.images.train
    if images < _FEW:
        are = agree(images, "is too little", "are few")
        yield (
            f"{counted(images, 'image')} {are} to learn from without labels; "
            "some thousand are better"
        )
    channels = audit.pixels.channels
    if channels not in (1, 3):
        readable = sum(audit.kinds.channels.values())
        fewer = sum(n for has, n in audit.kinds.channels.items() if int(has) < channels)
        if fewer:
            yield (
                f"{counted(fewer, 'image')} of {readable:,} {agree(fewer, 'has', 'have')} fewer "
                f"than {channels} channels and will "
                f"count as unreadable with data.channels={channels}"
            )
    deep = audit.kinds.bits.get("16", 0)
    if deep:
        yield (
            f"{counted(deep, 'image')} {agree(deep, 'is', 'are')} 16 bits deep and each is scaled "
            "by its own brightest value; set data.bits to the depth of the camera to scale all "
            "alike"
        )
    aspect = audit.sizes.aspect
    if aspect.q95 > _LONG or aspect.q05 < 1 / _LONG:
        yield (
            f"many pictures are long and narrow (width / height {aspect.q05:.2f} to "
            f"{aspect.q95:.2f}): a crop shows a small part; cut them into squarer pieces"
        )


def _about_classes(audit: Audit) -> Iterator[str]:
    found = audit.classes
    if found is None or found.count < 2:
        return
    singles = len(found.with_one_image)
    if singles:
        have = agree(singles, "class has", "classes have")
        yield f"{singles:,} {have} only one image: none is left to evaluate with"
    elif found.largest_images > _UNEVEN * found.smallest_images:
        yield (
            f"the largest class has {found.largest_images / max(1, found.smallest_images):.0f} "
            "times the images of the smallest: rare things are seen rarely"
        )


def _about_cost(audit: Audit, memory: int | None) -> Iterator[str]:
    timing = audit.timing
    if timing is None:
        return
    if timing.loader_images_per_second < _SLOW_DATA * timing.network_images_per_second:
        yield (
            "the network would wait for its data: smaller copies of the pictures, more cores or "
            "fewer views.local_crops make it faster"
        )
    if timing.run_seconds > _LONG_RUN:
        percent = min(99, 100 * _LONG_RUN / timing.run_seconds)
        yield (
            f"the run would take {timing.run_seconds / 86400:.1f} days here; "
            f"data.percent={percent:.2g} would end it in 3"
        )
    needed = (timing.process_bytes or 0) + (timing.workers_bytes or 0)
    if memory is not None and needed > _MOST_MEMORY * memory:
        yield (
            f"the run needs {needed / 2**30:.1f} of {memory / 2**30:.1f} GiB of memory; use fewer "
            "train.workers or a smaller train.batch_size"
        )
