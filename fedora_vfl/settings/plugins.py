"""Plug-in files: Python files of a user's own that add to the registries."""

import importlib.util
import sys
from pathlib import Path

from fedora_vfl.errors import SettingsError
from fedora_vfl.settings.registry import Registry


def load_plugin(path: Path) -> None:
    """Run a Python file that registers something. Its owner must be trusted as the software itself is."""
    try:
        path.read_bytes()
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read: {error.strerror}") from None
    before = len(Registry.everything)
    spec = importlib.util.spec_from_file_location(f"plugin_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise SettingsError(f"{path}: is not a Python file; a plug-in's name ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where pydantic and dataclasses look for the names in annotations
    try:
        spec.loader.exec_module(module)
    except SettingsError as error:
        raise SettingsError(f"{path}: {error}") from None
    except Exception as error:
        raise SettingsError(f"{path}: fails when it is loaded: {type(error).__name__}: {error}") from None
    if len(Registry.everything) == before:
        raise SettingsError(f"{path}: registers nothing; docs/own-method.md and the like show how to")
