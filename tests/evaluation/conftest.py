"""What most protocols are tried on: a tiny network, generated images, features below tmp_path."""

from pathlib import Path

import pytest

from attmask.evaluation.datasets.labelled import Labelled, Split
from attmask.evaluation.features.extractor import FeatureExtractor
from attmask.evaluation.model import FrozenModel
from tests.evaluation.models import extractor_in, tiny_model


@pytest.fixture(scope="module")
def model() -> FrozenModel:
    return tiny_model()


@pytest.fixture(scope="module")
def split(scenes: Path) -> Split:
    return Labelled().open(scenes)


@pytest.fixture
def extractor(tmp_path: Path) -> FeatureExtractor:
    return extractor_in(tmp_path)
