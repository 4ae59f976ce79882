"""What two runs of one job must have in common, whatever befell one of them: models, figures, the certificate."""

import csv
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedora_vfl.wire.meter import UNCOUNTED

# They differ between any two runs: the clock's, and what is drawn anew for each job so that nobody can guess it.
OF_THE_MOMENT = {
    "seconds",
    "seconds_share",
    "compute_seconds",
    "wait_seconds",
    "time",
    "job",
    "salt",
    "secret",
    "commitment",
    "asked",
    "signature",
    "statement",
    "signed",
    # Digests of model files, which also say which jobs' requests a model has honoured. Tensors are compared themselves.
    "sha256",
    "model_sha256",
    "models",
}
# Books of what is not about tensors count messages that say how far a phase is, at most one a second.
BOOKS = {"bytes", "traffic", "links", "repeated"}


@dataclass(frozen=True)
class Left:
    """What a job has left."""

    models: dict[str, str]  # by file: digests of the tensors
    result: Any
    certificate: Any
    tensor_bytes: dict[tuple[str, ...], int]  # by link, phase, round and kind


def look(run: Path, results: Path) -> Left:
    """Read what a job has left."""
    models = {
        str(path.relative_to(run / "models")): _tensors(path)
        for path in sorted((run / "models").rglob("*.safetensors"))
    }
    certificate = results / "certificate.json"
    return Left(
        models=models,
        result=_lasting(json.loads((results / "result.json").read_text())),
        certificate=_lasting(json.loads(certificate.read_text())) if certificate.exists() else None,
        tensor_bytes=_tensor_bytes(results / "ledger.csv"),
    )


def _tensors(path: Path) -> str:
    """Return a digest of a model file's tensors, with their names, types and shapes; what else it says is left out."""
    content = path.read_bytes()
    begins = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:begins])
    header.pop("__metadata__", None)
    return hashlib.sha256(json.dumps(header, sort_keys=True).encode() + content[begins:]).hexdigest()


def differences(one: Left, other: Left) -> Iterator[str]:
    """Say in what two runs differ that should be equal to the bit."""
    for name in sorted(one.models.keys() | other.models.keys()):
        if one.models.get(name) != other.models.get(name):
            yield f"model {name}"
    for what in ("result", "certificate"):
        yield from (f"{what}: {place}" for place in _differing(getattr(one, what), getattr(other, what), ""))
    for line in sorted(one.tensor_bytes.keys() | other.tensor_bytes.keys()):
        if one.tensor_bytes.get(line) != other.tensor_bytes.get(line):
            yield f"ledger: {' '.join(line)}"


def _lasting(value: Any) -> Any:
    """Return a value without what differs between any two runs."""
    if isinstance(value, dict):
        return {key: _lasting(one) for key, one in value.items() if key not in OF_THE_MOMENT | BOOKS}
    if isinstance(value, list):
        return [_lasting(one) for one in value]
    return value


def _differing(one: Any, other: Any, place: str) -> Iterator[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted(one.keys() | other.keys()):
            yield from _differing(one.get(key), other.get(key), f"{place}.{key}" if place else key)
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for index, (left, right) in enumerate(zip(one, other, strict=True)):
            yield from _differing(left, right, f"{place}[{index}]")
    elif one != other:
        yield place


def _tensor_bytes(path: Path) -> dict[tuple[str, ...], int]:
    """Return the bytes of embeddings, gradients and dual variables that counted."""
    found: dict[tuple[str, ...], int] = {}
    with path.open(newline="") as file:
        for line in csv.DictReader(file):
            if int(line["tensor_bytes"]) and line["phase"] != UNCOUNTED:
                place = tuple(line[name] for name in line if name in ("link", "direction", "phase", "round", "kind"))
                found[place] = found.get(place, 0) + int(line["tensor_bytes"])
    return found
