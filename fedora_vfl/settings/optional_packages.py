"""Packages that only some jobs need."""

from importlib import import_module
from typing import Any

from fedora_vfl.errors import SettingsError


def extra(module: str, *, needed_by: str) -> Any:
    """Load a module that need not be installed, or say how to get it."""
    package = module.partition(".")[0]
    try:
        return import_module(module)
    except ModuleNotFoundError:
        raise SettingsError(f"{needed_by} needs {package}: pip install 'fedora-vfl[vision]'") from None
    except (ImportError, RuntimeError, OSError):
        # Torch and torchvision share compiled code, and fail in one of these ways when they are of different builds.
        raise SettingsError(
            f"{needed_by} needs {package}, and the one installed does not fit this torch: "
            "pip install --upgrade torch torchvision"
        ) from None
