"""Files of tensors and plain values: whole or absent, nothing in them can execute, and damage is found by a digest."""

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from fedora_vfl.errors import DataError
from fedora_vfl.storage import write_atomically

_DIGEST = "sha256"
_AS_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # by bytes of a value


def write_tensors(
    path: Path,
    tensors: Mapping[str, Tensor],
    description: Mapping[str, Any],
    *,
    format: str,
    replace: bool = True,
    mode: int = 0o644,
) -> str:
    """Write tensors and a description of plain values under a format's name; return the file's SHA-256.

    Args:
        path: The file, which is replaced as a whole.
        tensors: By name; they are stored as they are, in main memory's byte order.
        description: What JSON can hold, without the name `sha256`.
        format: Which kind of file this is; whoever reads it must ask for the same.
        replace: Whether a file that holds something else is replaced; if not, it stays, and FileExistsError is raised.
        mode: Who may read the file.
    """
    plain = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    # One entry only: safetensors writes several in an order that changes from process to process.
    metadata = {format: json.dumps({**description, _DIGEST: _digest(plain, description)})}
    content = save(plain, metadata)
    if not replace and path.exists() and path.read_bytes() != content:
        raise FileExistsError(path)
    write_atomically(path, content, mode=mode)
    return sha256(content).hexdigest()


def read_tensors(path: Path, *, format: str, what: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors and the description of a file, if it is whole and of this format; `what` it should be."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        if format not in metadata:
            raise DataError(f"{path}: is not {what} of this release ({format})")
        description = json.loads(metadata[format])
        digest = description.pop(_DIGEST)
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file; it should hold {what}") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read as {what}: {error.strerror or error}") from None
    except (SafetensorError, ValueError, LookupError, TypeError, AttributeError, RuntimeError, RecursionError) as error:
        raise DataError(f"{path}: is damaged, or is not {what}: {error}") from None
    if digest != _digest(tensors, description):
        raise DataError(f"{path}: is damaged: its content does not fit the digest written with it")
    return tensors, description


def flatten(state: Any, tensors: dict[str, Tensor], name: str = "") -> Any:
    """Return nested containers with each tensor taken out into `tensors`, and its name left in its place."""
    match state:
        case Tensor():
            tensors[name] = state
            return {"tensor": name}
        case dict():
            return {"items": [[key, flatten(value, tensors, f"{name}/{key}")] for key, value in state.items()]}
        case list() | tuple():
            return [flatten(value, tensors, f"{name}/{place}") for place, value in enumerate(state)]
        case _:
            return state


def restore(flat: Any, tensors: Mapping[str, Tensor]) -> Any:
    """Put nested containers together again as they were before `flatten`; tuples have become lists."""
    match flat:
        case {"tensor": name}:
            return tensors[name]
        case {"items": items}:
            return {key: restore(value, tensors) for key, value in items}
        case list():
            return [restore(value, tensors) for value in flat]
        case _:
            return flat


def _digest(tensors: Mapping[str, Tensor], description: Mapping[str, Any]) -> str:
    """Return the SHA-256 over all that a file says: names, types, shapes, values, description."""
    found = sha256(json.dumps(description, sort_keys=True).encode())
    for name in sorted(tensors):
        value = tensors[name]
        found.update(json.dumps([name, str(value.dtype), list(value.shape)]).encode())
        # Bytes as they are: numpy has no bfloat16, and a tensor without dimensions cannot be viewed as bytes.
        found.update(value.flatten().view(_AS_INTEGERS[value.itemsize]).numpy().tobytes())
    return found.hexdigest()
