"""What every test runs under: shapes checked at run time, one thread, no time limit per example."""

import signal
from pathlib import Path

import pytest
import torch
from hypothesis import settings
from jaxtyping import install_import_hook

# Before any test imports attmask: each jaxtyping shape in a signature is checked by beartype.
install_import_hook("attmask", "beartype.beartype")

# Two workers share two cores, and the sums of one thread come in one order.
torch.set_num_threads(1)

# A shell starts jobs in the background with Ctrl-C ignored, and tests press it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("attmask", deadline=None)
settings.load_profile("attmask")


@pytest.fixture(scope="session")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Generated images with labels and object masks: 48 in train/, 20 in val/."""
    from attmask.data.synthetic import write_folder

    root = tmp_path_factory.mktemp("scenes")
    write_folder(root, train=48, val=20, size=32, seed=0)
    return root
