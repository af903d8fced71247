"""How much of the object attention and masks meet, before and after training, on any data set
with masks/ or trimaps/ beside its splits.

    python scripts/measure_objects.py RUN DATA [--ratio 0.3]
"""

import argparse
from pathlib import Path

import attmask
from attmask.config import from_yaml
from attmask.data.sources import open_images
from attmask.evaluation.objects import measure_objects
from attmask.train import build_distiller


def main() -> None:
    """Print one column for the untrained and one for the trained teacher."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--ratio", type=float, default=0.3)
    asked = parser.parse_args()
    config = from_yaml(asked.run / "config.yaml")
    images = open_images(asked.data)
    networks = {
        "untrained": build_distiller(config).teacher.backbone,
        "trained": attmask.load_backbone(asked.run),
    }
    measured = {
        name: measure_objects(
            backbone,
            images.val or images.train,
            image_size=config.views.global_size,
            data=config.data,
            ratio=asked.ratio,
        ).as_metrics()
        for name, backbone in networks.items()
    }
    print(f"{'':<26}" + "".join(f"{name:>12}" for name in measured))
    for key in measured["trained"]:
        print(f"{key:<26}" + "".join(f"{values[key]:>12.3f}" for values in measured.values()))


if __name__ == "__main__":
    main()
