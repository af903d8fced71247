"""The versions of the packages that results may depend on."""

import importlib.metadata
import platform

_SOFTWARE = ("attmask", "torch", "torchvision", "timm", "numpy", "pillow", "scikit-learn")


def software() -> dict[str, str]:
    """The versions of packages that results may depend on."""
    found = {"python": platform.python_version()}
    for name in _SOFTWARE:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
