"""The mistakes of the best network of a finished fine-tuning on classes.

RUN/results/per_class.csv    confusion.csv    confusion.png
"""

from attmask import distributed
from attmask.agreement import together
from attmask.evaluation.loading import load_run
from attmask.evaluation.reporting.classification import write_classification
from attmask.finetuning.classifier import Classifier
from attmask.finetuning.data import Divided
from attmask.finetuning.evaluation import ClassifierEvaluation
from attmask.finetuning.trainer import FinetuneTrainer
from attmask.tuning.results import RESULTS, Results, known_results, read_back, write_results


def conclude(trainer: FinetuneTrainer, divided: Divided) -> Results:
    """Measure the best network on the final images and write its mistakes; all processes do.

    A finished run that has its results keeps them.
    """
    if (known := known_results(trainer)) is not None:
        return known
    with together():
        model = load_run(trainer.run)
    assert model.classifier is not None
    network = Classifier(model.backbone, len(divided.classes), trainer.config.network)
    network.head.load_state_dict({"weight": model.classifier.weight, "bias": model.classifier.bias})
    network.to(trainer.device).requires_grad_(False)
    evaluation = ClassifierEvaluation(
        divided.final,
        divided.classes,
        trainer.config.data,
        image_size=trainer.start.image_size,
        workers=trainer.workers,
    )
    scored = evaluation.score(network, trainer.precision.autocast)
    with together():
        if distributed.is_main():
            metrics = write_classification(
                trainer.run / RESULTS,
                scored.labels > 0 if divided.classes.multi_label else scored.labels,
                scored.logits,
                divided.classes.names,
                title=f"{trainer.run.name}, {divided.measured_on}",
            )
            write_results(trainer, divided.selected_on, divided.measured_on, metrics)
    return read_back(trainer)
