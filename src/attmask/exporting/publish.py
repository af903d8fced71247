"""Push an export to the Hugging Face hub."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attmask.errors import UserError
from attmask.exporting.export import CARD, HUB, RECORD
from attmask.reading import read_regular


@dataclass(frozen=True)
class Published:
    """What is on the hub now."""

    repository: str
    url: str
    files: tuple[str, ...]


def publish_export(folder: Path, repository: str, *, private: bool = False) -> Published:
    """Push the files of an export to a repository of models, which is made if it is not there.

    It is one commit. The model card then says how to load it from the hub.
    """
    files = _files(folder)
    try:
        from huggingface_hub import CommitOperationAdd, HfApi
        from huggingface_hub.errors import (
            HfHubHTTPError,
            HFValidationError,
            LocalTokenNotFoundError,
        )
    except ImportError as fault:
        raise UserError(
            "attmask publish needs huggingface_hub; run: pip install 'attmask[publish]'"
        ) from fault
    # The variable counts also where it was set after huggingface_hub was imported.
    api = HfApi(endpoint=os.environ.get("HF_ENDPOINT"), library_name="attmask")
    try:
        made = api.create_repo(repository, private=private, exist_ok=True, repo_type="model")
        card = _card_for(folder, made.repo_id)
        operations = [
            CommitOperationAdd(file.name, card if file.name == CARD else str(file))
            for file in files
        ]
        api.create_commit(made.repo_id, operations, commit_message="Upload with attmask")
    except UserError:
        raise
    except LocalTokenNotFoundError as fault:
        raise UserError(
            "there is no token of the Hugging Face hub on this machine; run `hf auth login`, or "
            "set HF_TOKEN"
        ) from fault
    except HFValidationError as fault:
        raise UserError(
            f"{repository} is not the name of a repository; give OWNER/NAME, such as me/vit-pets"
        ) from fault
    except ValueError as fault:  # the hub does not take the metadata of the card
        why = " ".join(str(fault).split())
        raise UserError(f"the hub refuses {folder}: {why}; correct it and publish again") from fault
    except HfHubHTTPError as fault:
        raise UserError(_refusal(repository, fault.response.status_code)) from fault
    except OSError as fault:  # also what the connection reports
        raise UserError(_unreachable(fault)) from fault
    except Exception as fault:
        if not _is_connection_error(fault):
            raise
        raise UserError(_unreachable(fault)) from fault
    return Published(made.repo_id, str(made), tuple(file.name for file in files))


def _files(folder: Path) -> list[Path]:
    """The files of an export, or an error if the folder is none."""
    if not (folder / RECORD).is_file() or not (folder / CARD).is_file():
        raise UserError(
            f"{folder} is not an export: it has no {RECORD} or no {CARD}; write one with "
            f"`attmask export CHECKPOINT --format timm --out {folder}`"
        )
    return sorted(file for file in folder.iterdir() if file.is_file())


def _card_for(folder: Path, repository: str) -> bytes:
    """The model card, whose lines of Python load the repository instead of the folder."""
    text = (folder / CARD).read_text(encoding="utf-8")
    try:
        usage: dict[str, Any] = json.loads(read_regular(folder / RECORD))["usage"]
        local, hub = str(usage["local"]).rstrip(), str(usage["hub"]).rstrip()
    except (OSError, ValueError, KeyError, TypeError) as fault:
        raise UserError(f"{folder / RECORD} is damaged; export the checkpoint again") from fault
    of_repository = hub.replace(HUB, f"hf-hub:{repository}").replace(
        HUB.removeprefix("hf-hub:"), repository
    )
    return text.replace(local, of_repository).encode()


def _refusal(repository: str, status: int) -> str:
    if status in (401, 403):
        return (
            f"the hub refuses to write to {repository} ({status}); log in with `hf auth login`, "
            "or set HF_TOKEN to a token that may write there"
        )
    return f"the hub answers {status} for {repository}; check its name, or try again later"


def _unreachable(fault: Exception) -> str:
    why = next(iter(str(fault).splitlines()), type(fault).__name__)
    return f"the Hugging Face hub cannot be reached ({why}); check the connection and HF_ENDPOINT"


def _is_connection_error(fault: Exception) -> bool:
    """Whether the client of huggingface_hub could not reach the hub; which one it is varies."""
    return type(fault).__module__.startswith(("httpx", "httpcore", "requests"))
