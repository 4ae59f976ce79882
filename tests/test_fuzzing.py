"""What messages that nobody should send cannot do: end a member, keep it from answering, or fill its memory.

`python -m tests.fuzzing` does the same for longer.
"""

import asyncio
import re
from pathlib import Path

import pytest
from google.protobuf.message import Message

from fedora_vfl.wire.protocol import PROTOCOL
from protos.fedora.v1.control_pb2 import FromCoordinator, FromParty, Job, JobName
from protos.fedora.v1.exchange_pb2 import Parcel
from tests.fuzzing.laying_out import laid_out
from tests.fuzzing.mutation import CORPUS, corpus, mutated
from tests.fuzzing.services import FRAME, GROWTH_BYTES, SERVICES, fuzz, fuzz_party
from tests.fuzzing.targets import TARGETS, attempt, try_mutations
from tests.stalls import STALL_SECONDS

SECONDS = 3.0


@pytest.mark.parametrize("tls", [False, True], ids=["plaintext", "certificate"])
@pytest.mark.parametrize("service", SERVICES)
def test_a_member_answers_whatever_it_is_sent(service: str, tls: bool, tmp_path: Path) -> None:
    federation = laid_out(tmp_path, seconds=SECONDS, tls=tls)
    outcome = asyncio.run(fuzz(service, tmp_path / "run", federation, seconds=SECONDS, seed=1, tls=tls))
    assert outcome.messages > 20
    assert outcome.longest_stall < STALL_SECONDS
    assert outcome.growth < GROWTH_BYTES
    assert not outcome.unforeseen


def test_a_party_fails_only_as_foreseen_whatever_its_coordinator_sends(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    laid_out(tmp_path, seconds=SECONDS, tls=False)
    assert asyncio.run(fuzz_party(tmp_path / "run", "passive-1", seconds=SECONDS, seed=1)) > 5
    assert not FRAME.search(caplog.text)


def test_the_same_seed_makes_the_same_messages() -> None:
    first, second = mutated("exchange", 3), mutated("exchange", 3)
    assert [next(first) for _ in range(50)] == [next(second) for _ in range(50)]


@pytest.mark.parametrize("target", TARGETS)
def test_a_reader_fails_only_as_documented_whatever_it_reads(target: str) -> None:
    assert try_mutations(target, seed=1, count=100) == 100


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("began", b'"0001-01-01T00:00:00Z"'),
        ("ended", b'"9999-12-31T23:59:59Z"'),
        ("norm", b"1e+200"),
        ("parameters", b"1" + b"0" * 400),
    ],
)
def test_a_certificate_of_impossible_numbers_is_refused_in_words(name: str, value: bytes) -> None:
    whole = (CORPUS / "certificates" / "parameterwise.bin").read_bytes()
    changed, places = re.subn(rb'"%s": [^,\n]+' % name.encode(), b'"%s": %s' % (name.encode(), value), whole)
    assert places
    attempt("certificates", changed)


def test_what_is_mutated_speaks_the_present_protocol() -> None:
    recorded = {
        "jobs/plain.bin": Job.FromString(CORPUS.joinpath("jobs/plain.bin").read_bytes()).protocol,
        "jobs/name.bin": JobName.FromString(CORPUS.joinpath("jobs/name.bin").read_bytes()).protocol,
        "control/hello.bin": FromParty.FromString(CORPUS.joinpath("control/hello.bin").read_bytes()).hello.protocol,
        "exchange/greeting.bin": Parcel.FromString(
            CORPUS.joinpath("exchange/greeting.bin").read_bytes()
        ).greeting.protocol,
    }
    others = {name: protocol for name, protocol in recorded.items() if protocol != PROTOCOL}
    assert not others, "messages of another protocol are refused before they are read: record them anew"


@pytest.mark.parametrize(
    ("service", "kind"), [("control", FromParty), ("party", FromCoordinator), ("exchange", Parcel)]
)
def test_every_message_of_a_stream_is_mutated(service: str, kind: type[Message]) -> None:
    recorded = {kind.FromString(one).WhichOneof("content") for one in corpus(service)}
    contents = {field.name for field in kind.DESCRIPTOR.oneofs_by_name["content"].fields}
    assert not contents - recorded, "record one of each"
