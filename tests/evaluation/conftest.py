"""What most protocols are tried on: a tiny network, generated images, features below tmp_path."""

from pathlib import Path

import pytest

from attmask.evaluation.bench import Bench
from attmask.evaluation.datasets.labelled import Labelled, Split
from attmask.evaluation.subject import Subject
from tests.evaluation.subjects import bench_in, tiny_subject


@pytest.fixture(scope="module")
def subject() -> Subject:
    return tiny_subject()


@pytest.fixture(scope="module")
def split(scenes: Path) -> Split:
    return Labelled().open(scenes)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return bench_in(tmp_path)
