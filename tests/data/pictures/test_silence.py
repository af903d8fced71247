"""Decoders written in C are kept quiet, and standard error works again afterwards."""

import logging
import os
import subprocess
import sys
import warnings

import pytest

from attmask.data.pictures.silence import silent_library, silent_reader


def test_only_what_is_written_inside_is_lost(capfd: pytest.CaptureFixture[str]) -> None:
    os.write(2, b"before ")
    with silent_library():
        os.write(2, b"inside ")
    os.write(2, b"after")
    assert capfd.readouterr().err == "before after"


def test_standard_error_comes_back_when_decoding_fails(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="broken"), silent_library():
        raise ValueError("broken")
    os.write(2, b"after")
    assert capfd.readouterr().err == "after"


def test_no_file_is_left_open() -> None:
    first = os.dup(0)
    os.close(first)
    for _ in range(50):
        with silent_library():
            pass
    again = os.dup(0)
    os.close(again)
    assert again == first


def test_a_process_forked_while_another_thread_decodes_can_decode_and_be_heard() -> None:
    program = (
        "import os, threading, time\n"
        "from attmask.data.pictures.silence import silent_library\n"
        "def decode(seconds):\n"
        "    with silent_library(): time.sleep(seconds)\n"
        "other = threading.Thread(target=decode, args=(0.3,))\n"
        "other.start()\n"
        "time.sleep(0.1)\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    decode(0)\n"
        "    os.write(2, b'heard')\n"
        "    os._exit(0)\n"
        "other.join()\n"
        "os.waitpid(child, 0)\n"
    )
    command = [sys.executable, "-W", "ignore", "-c", program]
    done = subprocess.run(command, stderr=subprocess.PIPE, check=True, timeout=20)
    assert done.stderr == b"heard"


def test_readers_neither_warn_nor_log_inside_and_do_again_afterwards(
    caplog: pytest.LogCaptureFixture, recwarn: pytest.WarningsRecorder
) -> None:
    loud = logging.getLogger("tifffile")
    with silent_reader():
        loud.error("inside")
        warnings.warn("inside", stacklevel=1)
    loud.error("after")
    warnings.warn("after", stacklevel=1)
    assert caplog.messages == ["after"]
    assert [str(warning.message) for warning in recwarn] == ["after"]


def test_a_closed_standard_error_is_no_obstacle() -> None:
    program = (
        "import os; os.close(2)\n"
        "from attmask.data.pictures.silence import silent_library, silent_reader\n"
        "with silent_library(): print('decoded')"
    )
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=True)
    assert done.stdout == b"decoded\n"
