"""Whether a run is good: one sentence with its three proofs, and warnings with their reasons."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal, TypeAlias

from attmask.run_baselines import PIXELS
from attmask.run_status import Status
from attmask.wording import counted

Level: TypeAlias = Literal["good", "fair", "bad", "unknown"]
Record: TypeAlias = Mapping[str, Any]

LEARNED = 0.02
"""A loss that has fallen by this share of its start counts as learning."""
STILL = 0.002
"""A loss that falls by this share in the last fifth of the training is still falling."""
POINTS = 2.0
"""Per cent that an accuracy must differ by to count as better or worse."""
_FEW_RECORDS = 5
ACCURACY = "knn.top1"
TUNED = ("classify.top1", "classify.map", "segment.miou", "detect.box_ap")
_NAMED = {"untrained": "an untrained network", PIXELS: "raw pixels"}
_ENDED_BADLY = ("failed", "killed", "silent", "stalled")


@dataclass(frozen=True)
class Proof:
    """The answer to one question about a run."""

    question: str
    level: Level
    answer: str
    metric: str | None = None
    said: str | None = None
    """What the sentence says of it, where that is not the usual."""

    def to_dict(self) -> dict[str, Any]:
        """In the shape of the page."""
        return {
            "question": self.question,
            "level": self.level,
            "answer": self.answer,
            "metric": self.metric,
        }


def verdict(
    records: Sequence[Record], status: Status, baselines: Mapping[str, float]
) -> dict[str, Any]:
    """The verdict on a run in the shape of the page."""
    proofs = (learning(records), health(records, status), gain(records, baselines))
    return {
        "level": _overall(proofs),
        "sentence": _sentence(proofs, status),
        "proofs": [proof.to_dict() for proof in proofs],
    }


def learning(records: Sequence[Record]) -> Proof:
    """Whether the loss has fallen, and whether it still falls."""
    question = "Is it learning?"
    losses = _values(records, "loss.total")
    if len(losses) < _FEW_RECORDS:
        answer = f"Too early to tell: the loss was logged {counted(len(losses), 'time')}."
        return Proof(question, "unknown", answer, "loss.total")
    few = max(1, len(losses) // 20)
    begin, end = fmean(losses[:few]), fmean(losses[-few:])
    fifth = max(2, len(losses) // 5)
    last = losses[-fifth:]
    half = len(last) // 2
    slope = (fmean(last[:half]) - fmean(last[half:])) / max(abs(begin), 1e-12)
    trend = "and is still falling" if slope > STILL else "and has levelled off"
    if slope < -STILL:
        trend = "and is rising again"
    if begin - end > LEARNED * abs(begin):
        level: Level = "fair" if slope < -STILL else "good"
        share = 100 * (begin - end) / max(abs(begin), 1e-12)
        answer = f"The loss fell from {begin:.3f} to {end:.3f} ({share:.0f} %) {trend}."
    elif end - begin > LEARNED * abs(begin):
        level, answer = "bad", f"The loss rose from {begin:.3f} to {end:.3f}."
    else:
        level = "bad"
        answer = f"The loss has hardly changed: {begin:.3f} at the start, {end:.3f} now."
    accuracy = _values(records, ACCURACY)
    if level == "bad" and accuracy and accuracy[-1] - accuracy[0] >= POINTS:
        # The targets of the teacher become harder while it learns.
        answer += (
            f" k-NN accuracy has risen by {accuracy[-1] - accuracy[0]:.1f} points all the same."
        )
        return Proof(
            question, "fair", answer, "loss.total", "it learns, though its loss does not show it"
        )
    return Proof(question, level, answer, "loss.total")


def health(records: Sequence[Record], status: Status) -> Proof:
    """Whether the watch over the training has found anything, and whether steps were skipped."""
    question = "Is it healthy?"
    wrong = warnings(status)
    logged = _values(records, "health.feature_rank")
    tuned = _tuned_by(records) is not None
    if any(each["level"] == "bad" for each in wrong):
        return Proof(question, "bad", _capital(str(wrong[0]["text"])) + ".", None)
    if wrong:
        return Proof(question, "fair", _capital(str(wrong[0]["text"])) + ".", None)
    if tuned:
        return Proof(question, "good", "No warning: every loss was finite.", "loss.total")
    if not logged:
        answer = "Not known: the run was trained without monitor.watch."
        return Proof(question, "unknown", answer, None)
    answer = (
        "No warning: targets, features and attention are in their usual range, and no step was "
        "skipped."
    )
    return Proof(question, "good", answer, "health.feature_rank")


def gain(records: Sequence[Record], baselines: Mapping[str, float]) -> Proof:
    """How much better the network is than untrained and than raw pixels."""
    if (tuned := _tuned_by(records)) is not None:
        return _gain_by_labels(records, tuned)
    question = "Is it better than no training?"
    measured = [record for record in records if _number(record.get(ACCURACY))]
    if not measured:
        return _gain_without_labels(question, records)
    untrained = measured[0][ACCURACY] if measured[0].get("epoch") == 0 else None
    now = float(measured[-1][ACCURACY])
    others = {
        "untrained": untrained,
        **({PIXELS: baselines[PIXELS]} if PIXELS in baselines else {}),
    }
    known = {name: now - value for name, value in others.items() if value is not None}
    trained = measured[-1].get("epoch", 0) > 0
    if not trained or not known:
        answer = f"k-NN accuracy {now:.1f} %; there is nothing to compare it with yet."
        return Proof(question, "unknown", answer, ACCURACY)
    parts = [
        f"{abs(points):.1f} points {'above' if points >= 0 else 'below'} "
        f"{name} ({now - points:.1f} %)"
        for name, points in known.items()
    ]
    level: Level = "good" if min(known.values()) >= POINTS else "fair"
    if known.get("untrained", POINTS) < POINTS:
        level = "bad" if known["untrained"] < -POINTS else "fair"
    said = None
    if level == "good" and len(known) == 1:
        said = f"its features are better than those of {_NAMED[next(iter(known))]}"
    answer = f"k-NN accuracy {now:.1f} %: {' and '.join(parts)}."
    return Proof(question, level, answer, ACCURACY, said)


def _gain_by_labels(records: Sequence[Record], key: str) -> Proof:
    """What fine-tuning has gained since the first evaluation."""
    question, values = "Did fine-tuning help?", _values(records, key)
    if len(values) < 2:
        return Proof(question, "unknown", f"{key} {values[-1]:.1f} %, measured once.", key)
    best, first = max(values), values[0]
    epoch = next(record["epoch"] for record in records if record.get(key) == best)
    answer = f"{key} is {best:.1f} % at its best, epoch {epoch}, after {first:.1f} % at first."
    if best - first >= POINTS:
        return Proof(question, "good", answer, key, f"it has gained {best - first:.1f} points")
    return Proof(question, "fair", answer, key, "it has gained little")


def _tuned_by(records: Sequence[Record]) -> str | None:
    """The measure of a fine-tuning, by which its networks are selected; None for others."""
    return next((key for key in TUNED if _values(records, key)), None)


def _gain_without_labels(question: str, records: Sequence[Record]) -> Proof:
    aligned = _values(records, "label_free.alignment")
    if len(aligned) < 2:
        answer = "Not known: no accuracy was measured yet."
        return Proof(question, "unknown", answer, None)
    answer = (
        "No accuracy was measured, because there are no labels. Two crops of an image are "
        f"{aligned[-1]:.3f} apart, {aligned[0]:.3f} at the start (lower is better)."
    )
    return Proof(question, "fair", answer, "label_free.alignment")


def warnings(status: Status) -> list[dict[str, Any]]:
    """What a person should look at, each with its reason, the worst first."""
    found: list[dict[str, Any]] = []
    if status.state in _ENDED_BADLY:
        reason = status.error or "its process ended or gives no sign of life"
        found.append(_warning("bad", status.headline(), reason))
    for line in status.findings:
        text, _, cure = line.partition("; ")
        found.append(_warning("bad", text, cure))
    if status.went_back:
        found.append(
            _warning(
                "fair",
                f"the run went back to a checkpoint {counted(status.went_back, 'time')}",
                "its loss was not finite; each time the learning rate was halved",
            )
        )
    if status.skipped_steps:
        found.append(
            _warning(
                "fair",
                f"{counted(status.skipped_steps, 'step')} skipped",
                "loss or gradients were not finite; the images are listed in incidents/",
            )
        )
    return found


def _warning(level: Level, text: str, reason: str) -> dict[str, Any]:
    return {"level": level, "text": text, "reason": reason}


def _overall(proofs: Sequence[Proof]) -> Level:
    levels = [proof.level for proof in proofs]
    if "bad" in levels:
        return "bad"
    if levels[0] == "unknown" or levels[2] == "unknown":
        return "unknown" if "fair" not in levels else "fair"
    return "fair" if "fair" in levels or "unknown" in levels else "good"


_SAID: dict[tuple[int, Level], str] = {
    (0, "good"): "it learns",
    (0, "fair"): "it has learned, but its loss rises again",
    (0, "bad"): "it does not learn",
    (0, "unknown"): "it has just begun",
    (1, "good"): "it is healthy",
    (1, "fair"): "it had trouble on the way",
    (1, "bad"): "something is wrong with it",
    (1, "unknown"): "its health was not measured",
    (2, "good"): "its features are better than those of an untrained network and of raw pixels",
    (2, "fair"): "what its features are worth is open",
    (2, "bad"): "its features are no better than before training",
    (2, "unknown"): "its features were not compared with anything yet",
}
_OPENING: dict[Level, str] = {
    "good": "This run is good",
    "fair": "This run is usable, with reservations",
    "bad": "This run needs attention",
    "unknown": "It is too early for a verdict",
}


def _sentence(proofs: Sequence[Proof], status: Status) -> str:
    said = [proof.said or _SAID[number, proof.level] for number, proof in enumerate(proofs)]
    running = " so far" if status.state in ("starting", "training", "evaluating") else ""
    return f"{_OPENING[_overall(proofs)]}{running}: {said[0]}, {said[1]}, and {said[2]}."


def _values(records: Sequence[Record], key: str) -> list[float]:
    return [float(record[key]) for record in records if _number(record.get(key))]


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
