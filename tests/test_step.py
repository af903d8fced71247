import torch

from attmask.distill import Diagnostics, Losses, MeanLogits
from attmask.step import StepReport


def test_the_metrics_of_a_step_are_means_over_its_micro_batches() -> None:
    def losses(*values: float) -> Losses:
        return Losses(*(torch.tensor(value) for value in values))

    def diagnostics(hidden: float, entropy: float, used: float) -> Diagnostics:
        target = torch.full((round(used),), 1 / used)  # equal shares of so many prototypes
        return Diagnostics(hidden, torch.tensor(entropy), target)

    report = StepReport(
        losses=[losses(4.0, 3.0, 1.0), losses(6.0, 4.0, 2.0)],
        diagnostics=[diagnostics(0.25, 1.0, 10.0), diagnostics(0.5, 2.0, 20.0)],
        mean_logits=MeanLogits(None, None),
        mean_loss=torch.tensor(5.0),
    )
    metrics = report.metrics()
    assert [(metric.key, round(metric.value, 5), metric.unit) for metric in metrics] == [
        ("loss.total", 5.0, "nats"),
        ("loss.cls", 3.5, "nats"),
        ("loss.patch", 1.5, "nats"),
        ("health.hidden", 37.5, "%"),
        ("health.teacher_entropy", 1.5, "nats"),
        ("health.prototypes_used", 15.0, "prototypes"),
        ("health.kl", 2.0, "nats"),
    ]
    assert [metric.higher_is_better for metric in metrics] == [False] * 3 + [None] * 4
