"""Networks of transformers on the Hugging Face hub, as directories of the local cache."""

import logging
from pathlib import Path

from attmask.errors import UserError
from attmask.models.importing.directory import CONFIG, read_config

log = logging.getLogger(__name__)

HUB = ("hf-hub:", "hf_hub:")
_FILES = ("*.json", "*.safetensors")


def downloaded(name: str) -> Path | None:
    """The folder of a network of transformers, fetched if it is not on this machine.

    None if the repository holds a network of timm, which timm fetches itself.
    """
    from huggingface_hub import hf_hub_download, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    repository, _, revision = name.partition(":")[2].partition("@")
    try:
        config = hf_hub_download(repository, CONFIG, revision=revision or None)
        if "model_type" not in read_config(Path(config).parent):
            return None
        log.info("loading %s, from the hub if it is not on this machine", repository)
        folder = snapshot_download(
            repository, revision=revision or None, allow_patterns=list(_FILES)
        )
        if not any(Path(folder).glob("*.safetensors")):
            folder = snapshot_download(
                repository, revision=revision or None, allow_patterns=["*.json", "*.bin*"]
            )
    except HFValidationError as fault:
        raise UserError(
            f"{name} is not a repository of the hub; wanted hf-hub:OWNER/NAME"
        ) from fault
    except (OSError, HfHubHTTPError) as fault:
        raise UserError(
            f"the weights of {name} are not on this machine and cannot be fetched; connect to the "
            "internet once, or give the folder of its files"
        ) from fault
    return Path(folder)
