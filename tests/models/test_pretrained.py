"""timm's pretrained weights: one line where they cannot be had, and no chatter on the way."""

import logging
import re
import subprocess
import sys
from pathlib import Path

import pytest
import timm
from torch import nn

from attmask.errors import UserError
from attmask.models.pretrained import create_pretrained
from tests.runs import SHORT, environment

NAME = "vit_tiny_patch16_224"
ARGUMENTS = (
    "--recipe", "tiny", "backbone.pretrained=true", f"backbone.name={NAME}", "backbone.width=null",
    "backbone.depth=null", "backbone.heads=null", *SHORT,
)  # fmt: skip


def lines_without_a_hub(scenes: Path, tmp_path: Path, **variables: str) -> list[str]:
    """What a run that starts from pretrained weights says where these cannot be fetched."""
    process = subprocess.run(
        [sys.executable, "-m", "attmask", "pretrain", scenes, *ARGUMENTS, "--out", tmp_path / "r"],
        env={**environment(), "HF_HOME": str(tmp_path / "hub"), **variables},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert process.returncode == 1
    assert process.stdout == ""
    return process.stderr.splitlines()


def check(said: list[str]) -> None:
    first, *_, loading, last = said
    assert first.startswith("recipe tiny, images of ")
    assert len(said) == 4, said  # what runs, what is held out, what is loaded, what is wrong
    assert loading.startswith(f"loading timm's weights of {NAME}, from the hub if they are not")
    assert last == (
        f"attmask: the weights of timm's {NAME} are not on this machine and cannot be fetched; "
        "connect to the internet once, or set backbone.pretrained=false"
    )


def test_weights_that_cannot_be_had_offline_are_one_line(scenes: Path, tmp_path: Path) -> None:
    check(lines_without_a_hub(scenes, tmp_path, HF_HUB_OFFLINE="1"))


@pytest.mark.slow  # the hub's client tries for a minute
def test_a_network_that_is_down_is_one_line_too(scenes: Path, tmp_path: Path) -> None:
    nowhere = "http://127.0.0.1:9"  # the port where nobody listens
    proxies = dict.fromkeys(("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"), nowhere)
    check(lines_without_a_hub(scenes, tmp_path, **proxies))


def test_what_the_hubs_client_logs_while_it_tries_is_not_shown(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    hub = logging.getLogger("huggingface_hub.utils._http")

    def fetch(name: str, **settings: object) -> nn.Module:
        hub.warning("Retrying in 1s [Retry 1/5].")
        raise FileNotFoundError(f"{name} {sorted(settings)}")

    monkeypatch.setattr(timm, "create_model", fetch)
    with pytest.raises(UserError, match=re.escape("internet once, or do without")):
        create_pretrained(NAME, instead="do without", num_classes=0)
    assert [record.name for record in caplog.records if record.levelno > logging.INFO] == []
    hub.warning("again")
    assert caplog.records[-1].message == "again"
