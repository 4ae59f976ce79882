"""What the wire contract promises: generated code that is current, comments, versions refused, and rooms kept apart."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet
from hypothesis import given
from hypothesis import strategies as st

from fedora_vfl.errors import PartyError
from fedora_vfl.wire.protocol import PROTOCOL, check_protocol
from protos.fedora.v1.failure_pb2 import Failure

ROOT = Path(__file__).parents[1]

# The rooms of this house and what each may import besides itself.
ROOMS = {
    "protos": set[str](),
    "wire": {"protos"},
    "settings": {"wire", "protos"},
    "party": {"settings", "wire", "protos"},
    "coordinator": {"settings", "wire", "protos"},
}


# Generated code


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the compiler makes of the .proto files, comments included."""
    folder = tmp_path_factory.mktemp("compiled")
    sources = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "protos").glob("*.proto"))
    compiler = [sys.executable, "-m", "grpc_tools.protoc", "-I.", f"--python_out={folder}", f"--pyi_out={folder}"]
    described = [f"--descriptor_set_out={folder / 'all'}", "--include_source_info"]
    subprocess.run([*compiler, *described, *sources], cwd=ROOT, check=True)
    return folder


def test_generated_modules_are_current(compiled: Path) -> None:
    fresh, kept = (
        {path.name: path.read_bytes() for path in sorted((folder / "protos").glob("*_pb2.py*"))}
        for folder in (compiled, ROOT)
    )
    assert fresh
    stale = sorted(name for name in fresh.keys() | kept.keys() if fresh.get(name) != kept.get(name))
    assert not stale, f"{', '.join(stale)} in protos/ do not come from the .proto files as they are: run `make protos`"


# Comments


def names(descriptor: DescriptorProto, path: tuple[int, ...], prefix: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield a message and those inside it, with the compiler's path to each."""
    name = f"{prefix}{descriptor.name}"
    yield name, path
    for index, nested in enumerate(descriptor.nested_type):
        if not nested.options.map_entry:
            number = DescriptorProto.NESTED_TYPE_FIELD_NUMBER
            yield from names(nested, (*path, number, index), f"{name}.")


def uncommented(file: FileDescriptorProto) -> Iterator[str]:
    """Yield the messages and services that have no comment, neither above nor inside."""
    commented = [
        tuple(place.path)
        for place in file.source_code_info.location
        if place.leading_comments or place.trailing_comments or place.leading_detached_comments
    ]
    declared: list[tuple[str, tuple[int, ...]]] = [
        (service.name, (FileDescriptorProto.SERVICE_FIELD_NUMBER, index)) for index, service in enumerate(file.service)
    ]
    for index, message in enumerate(file.message_type):
        declared += names(message, (FileDescriptorProto.MESSAGE_TYPE_FIELD_NUMBER, index), "")
    for name, path in declared:
        if not any(place[: len(path)] == path for place in commented):
            yield f"{file.name}: {name}"


def test_every_message_and_service_is_explained(compiled: Path) -> None:
    files = FileDescriptorSet.FromString((compiled / "all").read_bytes()).file
    assert [name for file in files for name in uncommented(file)] == []


# Versions


@hypothesis.settings(derandomize=True, deadline=None)
@given(st.integers(0, 2**32 - 1).filter(lambda number: number != PROTOCOL))
def test_a_peer_of_another_protocol_is_refused_by_name(theirs: int) -> None:
    with pytest.raises(PartyError) as caught:
        check_protocol(theirs, peer="passive-1")
    assert caught.value.culprit == "passive-1"
    assert caught.value.kind == Failure.PROTOCOL
    assert str(caught.value).startswith(f"passive-1 speaks protocol {theirs}, but protocol {PROTOCOL} is spoken here")


def test_a_peer_of_the_same_protocol_is_welcome() -> None:
    check_protocol(PROTOCOL, peer="passive-1")


# Rooms


def imports(path: Path) -> Iterator[str]:
    """Yield the whole name of every module that a file imports, wherever in it."""
    package = path.relative_to(ROOT).parent.parts
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            yield ".".join((*above, *([node.module] if node.module else [])))


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_what_it_may(room: str) -> None:
    ours = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert set(ROOMS) <= ours
    broken = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in sorted((ROOT / room).rglob("*.py"))
        for name in imports(path)
        if name.split(".")[0] in ours - ROOMS[room] - {room}
    ]
    assert broken == []


def test_imports_are_seen_wherever_they_stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    file = tmp_path / "coordinator" / "methods" / "sly.py"
    file.parent.mkdir(parents=True)
    file.write_text(
        "import party.losses as p\nfrom .. import job\nfrom . import training\n"
        "def later():\n    from party import models\n    import wire, torch.nn\n"
    )
    found = sorted(imports(file))
    assert found == ["coordinator", "coordinator.methods", "party", "party.losses", "torch.nn", "wire"]


def test_the_coordinator_runs_without_torch_and_without_a_party() -> None:
    program = (
        "import importlib, pkgutil, sys, coordinator, coordinator.__main__\n"
        "for one in pkgutil.walk_packages(coordinator.__path__, 'coordinator.'): importlib.import_module(one.name)\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = set(ended.stdout.split())
    assert {"coordinator", "grpc", "wire"} <= loaded
    assert not {"torch", "party"} & loaded
