"""What the wire contract promises: generated code that is current, comments, and versions refused."""

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


# Generated code


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the compiler makes of the .proto files, comments included."""
    folder = tmp_path_factory.mktemp("compiled")
    sources = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "protos").rglob("*.proto"))
    compiler = [sys.executable, "-m", "grpc_tools.protoc", "-I.", f"--python_out={folder}", f"--pyi_out={folder}"]
    described = [f"--descriptor_set_out={folder / 'all'}", "--include_source_info"]
    subprocess.run([*compiler, *described, *sources], cwd=ROOT, check=True)
    return folder


def test_generated_modules_are_current(compiled: Path) -> None:
    fresh, kept = (
        {path.name: path.read_bytes() for path in sorted((folder / "protos").rglob("*_pb2.py*"))}
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
