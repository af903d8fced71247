"""What can go wrong with a fine-tuning: a loss that rises above guessing, or never leaves it."""

from attmask.finetuning.config import FinetuneConfig
from attmask.watch import Rule, Watch

WORSE_THAN_GUESSING = 1.2
"""Loss as a share of that of a uniform guess."""
GUESSING = 0.995
"""The same."""
GUESSING_GRACE_STEPS = 500


def watch_over(config: FinetuneConfig, guess: float) -> Watch:
    """The watch over a fine-tuning; `guess` is the loss of a uniform guess."""
    return Watch(_rules(config, guess), warmup_epochs=config.schedule.lr_warmup_epochs)


def _rules(config: FinetuneConfig, guess: float) -> tuple[Rule, ...]:
    loss, lr = "loss.total", config.schedule.lr
    return (
        Rule(
            "diverging",
            (loss,),
            lambda values: values[loss] >= WORSE_THAN_GUESSING * guess,
            lambda values: (
                f"the classifier is worse than guessing: its loss is {values[loss]:.2f} nats, that "
                f"of a uniform guess {guess:.2f}; lower schedule.lr (now {lr:g})"
            ),
        ),
        Rule(
            "guessing",
            (loss,),
            lambda values: GUESSING * guess <= values[loss] < WORSE_THAN_GUESSING * guess,
            lambda values: (
                f"the classifier learns nothing yet: its loss is {values[loss]:.3f} nats, that of "
                f"a uniform guess {guess:.3f}; raise schedule.lr (now {lr:g}), or check the labels"
            ),
            grace_steps=GUESSING_GRACE_STEPS,
        ),
    )
