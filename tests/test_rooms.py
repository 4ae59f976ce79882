"""The rooms of this house: every file has one, and imports go one way, as docs/architecture.md says."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ("protos", "fedora_vfl", "party", "coordinator", "deploy", "tests")


def table() -> dict[str, set[str]]:
    """Return the rooms that the docs tell of, in their order, with what each never imports."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    section = text[text.index("## Rooms") :]
    lines = re.findall(r"^\| (`.*?) \|.*\| *(.*?) *\|$", section[: section.index("\n## ")], re.MULTILINE)
    return {name.strip("`").removesuffix("/"): set(re.findall(r"`(.*?)/?`", never)) for name, never in lines}


def room_of(name: str, rooms: dict[str, set[str]]) -> str | None:
    """Return the room of a module or file, by its path: the longest that fits."""
    fitting = [room for room in rooms if f"{name}/".startswith(f"{room.removesuffix('.py')}/")]
    return max(fitting, key=len, default=None)


def python_files() -> list[Path]:
    """Return every file of ours that can be imported or run."""
    return [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]


def imports(path: Path) -> Iterator[str]:
    """Yield the whole name of every module that a file imports, wherever in it."""
    package = path.relative_to(ROOT).parent.parts
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join((*above, *([node.module] if node.module else [])))
            # What is imported from a package may be one of its modules.
            yield from (f"{module}.{one.name}" for one in node.names)


def used() -> dict[str, dict[str, str]]:
    """Return, for every room, the other rooms that it really imports, each with a file that does."""
    rooms = table()
    found: dict[str, dict[str, str]] = {room: {} for room in rooms}
    for path in python_files():
        if path == ROOT / "fedora_vfl" / "__init__.py":
            continue  # a name and a sentence
        here = room_of(path.relative_to(ROOT).with_suffix("").as_posix(), rooms)
        assert here is not None, f"{path.relative_to(ROOT)} is in no room of docs/architecture.md"
        for name in imports(path):
            if name.split(".")[0] in FOLDERS:
                there = room_of(name.replace(".", "/"), rooms)
                assert there is not None, f"{path.relative_to(ROOT)} imports {name}, which is in no room"
                if there != here:
                    found[here][there] = str(path.relative_to(ROOT))
    return found


def test_every_room_imports_only_rooms_above_it() -> None:
    rooms = table()
    order = list(rooms)
    for room, others in used().items():
        above = set(order[: order.index(room)]) - rooms[room]
        broken = {there: file for there, file in others.items() if there not in above}
        assert not broken, f"{room} may not import {broken}"


def test_party_and_coordinator_are_strangers() -> None:
    rooms = used()
    assert "party" not in rooms["coordinator"] and "coordinator" not in rooms["party"]


def test_imports_are_seen_wherever_they_stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    file = tmp_path / "coordinator" / "methods" / "sly.py"
    file.parent.mkdir(parents=True)
    file.write_text(
        "import party.losses as p\nfrom .. import job\nfrom . import training\n"
        "def later():\n    from party import models\n    import torch.nn\n"
    )
    found = sorted(imports(file))
    assert found == ["coordinator.job", "coordinator.methods.training", "party.losses", "party.models", "torch.nn"]


def test_the_coordinator_runs_without_torch_and_without_a_party() -> None:
    program = (
        "import importlib, pkgutil, sys, coordinator, coordinator.__main__\n"
        "for one in pkgutil.walk_packages(coordinator.__path__, 'coordinator.'): importlib.import_module(one.name)\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = set(ended.stdout.split())
    assert {"coordinator", "grpc", "fedora_vfl"} <= loaded
    assert not {"torch", "party"} & loaded
