import subprocess
import sys

from attmask import __version__
from tests.runs import environment


def test_the_module_is_the_command() -> None:
    for words, status in ((["--version"], 0), (["evaluat"], 1)):
        done = subprocess.run(
            [sys.executable, "-m", "attmask", *words],
            env=environment(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == status
        assert (done.stdout == f"attmask {__version__}\n") == (status == 0)
        assert ("did you mean evaluate?" in done.stderr) == (status == 1)
