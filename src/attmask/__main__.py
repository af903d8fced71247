"""`python -m attmask`, for launchers such as torchrun."""

import sys

from attmask.cli import main

sys.exit(main())
