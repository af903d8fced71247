"""AttMask in a Hugging Face Trainer: masked image modelling of the patches that a teacher attends.

    pip install 'attmask[examples]'
    python examples/huggingface_trainer.py

`ViTForMaskedImageModeling` predicts the pixels of the patches in `bool_masked_pos`. Its own
example draws them at random; here they are the most attended ones, see (1) to (3).
"""

import copy
import tempfile
from typing import Any

import torch
from generated import IMAGE_SIZE, PATCH_SIZE, Scenes
from torch import Tensor, nn
from transformers import (
    Trainer,
    TrainerCallback,
    TrainingArguments,
    ViTConfig,
    ViTForMaskedImageModeling,
)

import attmask


class AttMaskTrainer(Trainer):
    """A Trainer that hides the patches that a teacher attends to."""

    def __init__(self, teacher: nn.Module, masker: attmask.Masker, **settings: Any) -> None:
        super().__init__(**settings)
        self.teacher = teacher.to(self.args.device)
        self.masker = masker

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, Any], *given: Any, **named: Any
    ) -> Any:
        """The model's own loss, with masks from the teacher's attention."""
        # (2) One pass of the teacher; layers are counted from 1, and -1 is the last.
        attention = attmask.cls_attention(self.teacher, inputs["pixel_values"], layer=-1)
        mask = self.masker(attention, step=self.state.global_step)
        return super().compute_loss(model, {**inputs, "bool_masked_pos": mask}, *given, **named)


class MovingAverage(TrainerCallback):
    """(3) The teacher follows the student; leave this out for a teacher that is trained already."""

    def __init__(self, teacher: nn.Module, momentum: float = 0.99) -> None:
        self.teacher, self.momentum = teacher, momentum

    @torch.no_grad()
    def on_step_end(self, *given: Any, **named: Any) -> None:
        """Move the teacher a little."""
        student: nn.Module = named["model"]
        for old, new in zip(self.teacher.parameters(), student.parameters(), strict=True):
            old.lerp_(new, 1 - self.momentum)


def collate(images: list[Tensor]) -> dict[str, Tensor]:
    """A batch as the model names it."""
    return {"pixel_values": torch.stack(images)}


def main(steps: int = 60, batch_size: int = 32) -> list[float]:
    """Train, and return the loss of each step."""
    torch.manual_seed(0)
    config = ViTConfig(
        image_size=IMAGE_SIZE,
        patch_size=PATCH_SIZE,
        encoder_stride=PATCH_SIZE,
        hidden_size=96,
        num_hidden_layers=4,
        num_attention_heads=3,
        intermediate_size=192,
    )
    student = ViTForMaskedImageModeling(config)
    teacher: nn.Module = copy.deepcopy(student)
    teacher.requires_grad_(False).eval()

    # (1) Hide the most attended 40 to 60 % of the patches of each image.
    masker = attmask.Masker(attmask.High(), ratio=(0.4, 0.6), probability=1.0)

    with tempfile.TemporaryDirectory() as out:
        trainer = AttMaskTrainer(
            teacher,
            masker,
            model=student,
            args=TrainingArguments(
                out,
                max_steps=steps,
                per_device_train_batch_size=batch_size,
                learning_rate=1e-3,
                logging_steps=1,
                save_strategy="no",
                report_to="none",
                remove_unused_columns=False,
                disable_tqdm=True,
            ),
            train_dataset=Scenes(batch_size * 4),
            data_collator=collate,
            callbacks=[MovingAverage(teacher)],
        )
        trainer.train()
    return [float(entry["loss"]) for entry in trainer.state.log_history if "loss" in entry]


if __name__ == "__main__":
    main()
