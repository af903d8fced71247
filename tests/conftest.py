"""What every test runs under: shapes checked at run time, one thread, no time limit per example."""

import torch
from hypothesis import settings
from jaxtyping import install_import_hook

# Before any test imports attmask: each jaxtyping shape in a signature is checked by beartype.
install_import_hook("attmask", "beartype.beartype")

# Two workers share two cores, and the sums of one thread come in one order.
torch.set_num_threads(1)

settings.register_profile("attmask", deadline=None)
settings.load_profile("attmask")
