"""The watch over a training: rules on its metrics that name a collapse, its reason and its cure."""

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

WINDOW_STEPS = 100
"""A rule must hold for so many steps before it is told, and be broken as long to be over."""
WINDOW_RECORDS = 5
"""The fewest records in a window, whatever monitor.log_every_steps."""
MOST = 0.9
"""The share of the records of a window in which a rule must hold: one odd batch does not count."""
GRACE_STEPS = 100
"""No rule is applied before, because an untrained network has neither targets nor attention."""
Values: TypeAlias = Mapping[str, float]


@dataclass(frozen=True)
class Finding:
    """What is wrong with a training, at which step it was told, and what to change."""

    kind: str
    step: int
    text: str


@dataclass(frozen=True)
class Rule:
    """A condition on the metrics of one record, with the line that is told when it lasts."""

    kind: str
    reads: tuple[str, ...]
    """The metrics without which it is not applied."""
    holds: Callable[[Values], bool]
    tell: Callable[[Values], str]
    grace_steps: int = GRACE_STEPS
    after_warmup: bool = True
    """Whether the first epochs, in which the learning rate rises, do not count."""
    hidden_by: tuple[str, ...] = ()
    """The kinds that explain this one, so that the reason is told and not what follows from it."""


@dataclass
class _Window:
    """Whether a rule held in each of the last records."""

    records: deque[tuple[int, bool]] = field(default_factory=deque)
    lasts: bool = False

    def add(self, step: int, holds: bool) -> None:
        """Add a record, and decide whether the rule lasts once the window is full."""
        records = self.records
        records.append((step, holds))
        while len(records) > WINDOW_RECORDS and records[1][0] <= step - WINDOW_STEPS:
            records.popleft()
        if len(records) < WINDOW_RECORDS or records[0][0] > step - WINDOW_STEPS:
            return
        share = sum(held for _, held in records) / len(records)
        if share >= MOST or share <= 1 - MOST:
            self.lasts = share >= MOST


class Watch:
    """Follows the metrics of a training record by record, and tells each kind once."""

    def __init__(self, rules: Sequence[Rule], *, warmup_epochs: float) -> None:
        """`rules` come causes first."""
        self._rules = rules
        self._warmup_epochs = warmup_epochs
        self._windows = {rule.kind: _Window() for rule in self._rules}
        self._told: dict[str, Finding] = {}

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What is wrong now, causes first."""
        last = self._last()
        shown = (rule.kind for rule in self._rules if last.isdisjoint(rule.hidden_by))
        return tuple(self._told[kind] for kind in shown if kind in self._told)

    def see(self, step: int, epoch: int, values: Values) -> tuple[Finding, ...]:
        """Take the metrics of a record by their keys; return what was not wrong before."""
        for rule in self._rules:
            in_warmup = rule.after_warmup and epoch < self._warmup_epochs
            early = in_warmup or step < rule.grace_steps
            if not early and all(_is_number(values.get(key)) for key in rule.reads):
                self._windows[rule.kind].add(step, rule.holds(values))
        last = self._last()
        self._told = {kind: found for kind, found in self._told.items() if kind in last}
        new = tuple(
            Finding(rule.kind, step, rule.tell(values))
            for rule in self._rules
            if rule.kind in last - self._told.keys() and last.isdisjoint(rule.hidden_by)
        )
        self._told |= {found.kind: found for found in new}
        return new

    def _last(self) -> set[str]:
        """The kinds whose rules hold lastingly."""
        return {kind for kind, window in self._windows.items() if window.lasts}


def _is_number(value: float | None) -> bool:
    return value is not None and math.isfinite(value)
