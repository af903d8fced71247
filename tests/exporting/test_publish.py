import subprocess
from pathlib import Path

import pytest

from attmask.cli import main
from attmask.errors import UserError
from attmask.exporting.export import export_checkpoint
from attmask.exporting.publish import publish_export
from tests.exporting.hub import TOKEN, listening
from tests.exporting.networks import weights
from tests.runs import COMMAND, environment


def _published(folder: Path, home: Path, endpoint: str) -> tuple[int, str, str]:
    """The command in a process of its own, whose hub is at `endpoint`."""
    own = {
        **environment(),
        "HF_ENDPOINT": endpoint,
        "HF_TOKEN": TOKEN,
        "HF_HOME": str(home),
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }
    own.pop("HF_HUB_OFFLINE", None)
    done = subprocess.run(
        [*COMMAND, "publish", str(folder), "me/small", "--private"],
        env=own,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_an_export_is_pushed_in_one_commit_and_its_card_loads_it_from_the_hub(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "out"
    export_checkpoint(weights(tmp_path), folder, "timm")
    with listening() as hub:
        status, out, err = _published(folder, tmp_path / "home", hub.url)
    assert status == 0, err
    assert out == f"attmask: pushed 4 files to {hub.url}/me/small\n"
    assert hub.commits == ["Upload with attmask"]
    assert hub.repositories["me/small"].get("visibility", "private") == "private"
    assert sorted(hub.files) == sorted(file.name for file in folder.iterdir())
    for name in set(hub.files) - {"README.md"}:
        assert hub.files[name] == (folder / name).read_bytes()
    card = hub.files["README.md"].decode()
    assert 'timm.create_model("hf-hub:me/small", pretrained=True)' in card
    assert "local-dir" not in card


def test_a_wrong_token_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "out"
    export_checkpoint(weights(tmp_path), folder, "timm")
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    with listening() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        assert main(["publish", str(folder), "me/small"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("attmask: the hub refuses to write to me/small (401); log in with")
    assert err.count("\n") == 1
    assert not hub.files


def test_a_hub_that_is_not_there_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "out"
    export_checkpoint(weights(tmp_path), folder, "timm")
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert main(["publish", str(folder), "me/small"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("attmask: the Hugging Face hub cannot be reached")
    assert err.count("\n") == 1


def test_a_folder_that_is_no_export_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["publish", str(tmp_path), "me/small"]) == 1
    assert "is not an export: it has no export.json" in capsys.readouterr().err


def test_a_name_that_is_no_repository_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    export_checkpoint(weights(tmp_path), folder, "timm")
    with pytest.raises(UserError, match="is not the name of a repository; give OWNER/NAME"):
        publish_export(folder, "me/../small model")
