"""Format a plan as plain text."""

from collections.abc import Iterator

from attmask.columns import Row, two_columns
from attmask.planning.record import RunPlan
from attmask.wording import counted, duration


def render(plan: RunPlan, width: int = 80) -> str:
    """The verdict first, then what it rests on, and the assumptions last."""
    parts = {
        "Memory of a device": _memory(plan),
        "Time": _time(plan),
        "Data": _data(plan),
        "Assumptions": (("-", sentence) for sentence in plan.assumptions),
    }
    sections = [f"{title}\n{two_columns(rows, width)}" for title, rows in parts.items()]
    head = (
        f"{plan.recipe} on {plan.processes} x {plan.device.name}, "
        f"{counted(plan.batch_size, 'image')} a step in {plan.precision}"
    )
    return "\n\n".join([head, two_columns(_verdict(plan), width), *sections]) + "\n"


def gigabytes(size: int) -> str:
    """Bytes as GB, with two digits at least."""
    return f"{size / 1e9:.1f} GB" if size >= 1e10 else f"{size / 1e9:.2f} GB"


def _verdict(plan: RunPlan) -> Iterator[Row]:
    of = f"{gigabytes(plan.peak_bytes)} of {plan.device.memory_gb:g} GB"
    if plan.fits:
        room = plan.usable_bytes - plan.peak_bytes
        yield "fits", f"{of}; {gigabytes(room)} of the usable {_usable(plan)} stay free"
        return
    lack = plan.peak_bytes - plan.usable_bytes
    yield "does not fit", f"{of}; {gigabytes(lack)} more than the usable {_usable(plan)}"
    for answer in plan.answers:
        does = "fits" if answer.fits else "is not enough"
        yield "", f"{answer.setting} {does}: {gigabytes(answer.peak_bytes)}"
    if not any(answer.fits for answer in plan.answers):
        fixed = gigabytes(plan.memory.fixed)
        yield (
            "",
            f"weights, gradients and moments alone take {fixed}; use a smaller backbone or head",
        )


def _usable(plan: RunPlan) -> str:
    return gigabytes(plan.usable_bytes)


def _memory(plan: RunPlan) -> Iterator[Row]:
    memory = plan.memory
    yield "weights", f"{gigabytes(memory.weights)}, student and teacher"
    yield "gradients", gigabytes(memory.gradients)
    yield "moments", f"{gigabytes(memory.moments)}, AdamW"
    images = counted(plan.images_per_process // plan.accumulate, "image")
    at_once = f"{images} at once"
    if plan.accumulate > 1:
        at_once = f"{at_once}, {plan.accumulate} times a step"
    yield "activations", f"{gigabytes(memory.activations)}, {at_once}"
    yield "peak", gigabytes(memory.total)
    share = plan.checkpoint_bytes / (plan.device.memory_gb * 1e9)
    yield (
        "checkpoint",
        f"{gigabytes(plan.checkpoint_bytes)} on disk (weights, centres, moments), "
        f"{100 * share:.1f} % of the device's memory",
    )


def _time(plan: RunPlan) -> Iterator[Row]:
    a_step = plan.step_operations / 1e12
    an_image = plan.step_operations / plan.batch_size / 1e9
    yield "operations", f"{a_step:,.2f} TFLOP a step, {an_image:,.1f} GFLOP an image"
    yield "a step", f"{plan.step_seconds:.3f} s at {100 * plan.utilisation:g} % of the peak speed"
    yield (
        "the run",
        f"{duration(plan.steps * plan.step_seconds)}: {counted(plan.steps, 'step')}, "
        f"{counted(plan.epochs, 'epoch')} of {counted(plan.images, 'image')}",
    )


def _data(plan: RunPlan) -> Iterator[Row]:
    yield (
        "rate",
        f"{plan.images_per_second:,.0f} images a second, "
        f"{plan.images_per_second / plan.processes:,.0f} for each process",
    )
    each = f"{plan.core_images_per_second:,.0f} images a second each"
    yield "cores", f"{plan.cores:,} at {each}"
