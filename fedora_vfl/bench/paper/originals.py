"""Original models: trained once for all cells of a group, and kept for a sweep that was stopped."""

import hashlib
import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedora_vfl.bench.paper.cells import Group
from fedora_vfl.storage import write_atomically

NAME = "trained"  # what parties call it; a cell's own copy is `original`
DESCRIPTION = "original.json"


@dataclass(frozen=True)
class Original:
    """A trained model that is kept, and what it is known by."""

    group: dict[str, Any]
    files: dict[str, str]  # SHA-256 by party


def keep(group: Group, run: Path, kept: Path, parties: list[str]) -> None:
    """Copy every party's model out of a cluster's folder; the description, written last, makes it count."""
    files = {}
    for party in parties:
        content = _in_run(run, party).read_bytes()
        write_atomically(kept / f"{party}.safetensors", content)
        files[party] = hashlib.sha256(content).hexdigest()
    write_atomically(kept / DESCRIPTION, json.dumps(asdict(Original(group.content, files)), indent=1) + "\n")


def find(group: Group, kept: Path) -> Original | None:
    """Return the group's kept model; one that is not whole, or of other settings, is none."""
    try:
        original = Original(**json.loads((kept / DESCRIPTION).read_text(encoding="utf-8")))
        whole = all(
            hashlib.sha256((kept / f"{party}.safetensors").read_bytes()).hexdigest() == known
            for party, known in original.files.items()
        )
    except (OSError, ValueError, TypeError):
        return None
    return original if whole and original.group == group.content else None


def bring(original: Original, kept: Path, run: Path) -> None:
    """Put a kept model where a cluster's parties look for models."""
    for party in original.files:
        target = _in_run(run, party)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(kept / f"{party}.safetensors", target)


def _in_run(run: Path, party: str) -> Path:
    return run / "models" / party / f"{NAME}.safetensors"
