"""What reads bytes or text that others wrote, as plain functions: each may only fail in the ways that it documents."""

import json
import math
import resource
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel

from coordinator.job import Job
from coordinator.reports import (
    PhaseProgress,
    check_figures,
    check_left_out,
    check_privacy,
    check_readings,
    check_ready,
    check_reports,
    check_saved,
)
from fedora_vfl.certificates.statement import open_request
from fedora_vfl.certificates.verification import Evidence, examine
from fedora_vfl.errors import CertificateError, DataError, FedoraError, PartyError, SettingsError
from fedora_vfl.settings.federation import Federation
from fedora_vfl.settings.files import parse
from fedora_vfl.signing import canonical, parse_canonical
from fedora_vfl.wire.link import unpack_control
from fedora_vfl.wire.pieces import is_piece, read_piece
from fedora_vfl.wire.tensors import TensorParcel, unpack
from party.settings import PartySettings
from party.state import MODEL_FORMAT
from party.tensor_files import read_tensors
from party.updates.dual_messages import _check_summary, _check_values
from protos.fedora.v1.control_pb2 import FromCoordinator, FromParty
from protos.fedora.v1.control_pb2 import Job as JobMessage
from protos.fedora.v1.exchange_pb2 import Dual
from protos.fedora.v1.phase_pb2 import DualAscent, Phase, Plan, Samples, Update
from tests.fuzzing.mutation import mutated

LARGEST = 1024 * 1024  # bytes of one input
STALL_SECONDS = 1.0
GROWTH_BYTES = 200 * 1024 * 1024

PHASE = Phase(
    number=3,
    name="dual",
    round=1,
    over=Samples(set=Samples.FORGET, share=1.0),
    plan=Plan(batch_size=32),
    update=Update(dual_ascent=DualAscent()),
)
ROWS = 60
SETTINGS: tuple[type[BaseModel], ...] = (Job, Federation, PartySettings)

# What a reader of YAML, or of JSON, may stumble over.
TEXTS = (
    b"1e400",
    b"1" + b"0" * 400,
    b"1e200",
    b"-0.0",
    b"null",
    b"0001-01-01T00:00:00Z",
    b"9999-12-31T23:59:59Z",
    b'"\\ud800"',
    b"[",
    b"{",
    b"&a [*a, *a]",
    b"<<: *a",
    b"!!python/name:os.system",
    b"? [1, 2]\n: 3\n",
    b"2001-99-99",
    b"0x" + b"f" * 5000,
    b"1:" * 400 + b"1",
    b"\xe2\x80\xa8",
    b"\x00",
)


class BrokenPromiseError(AssertionError):
    """A reader failed in a way that it does not document, took too long, or too much memory."""


@dataclass(frozen=True)
class Target:
    """One reader: what it may raise, the folder of the corpus that its inputs are made from, and pieces to put in."""

    read: Callable[[bytes], object]
    raises: tuple[type[Exception], ...]
    corpus: str
    pieces: tuple[bytes, ...] = ()


def _tensors(data: bytes) -> None:
    parcel, _ = unpack(data)
    if isinstance(parcel, TensorParcel) and len(parcel.data) == parcel.encoding.nbytes(parcel.rows, parcel.width):
        values = parcel.encoding().decode(memoryview(parcel.data), parcel.rows, parcel.width)
        assert values.shape == (parcel.rows, parcel.width)


def _pieces(data: bytes) -> None:
    whole, part = read_piece(data if is_piece(data) else b"\x4a" + data)
    assert len(part) <= min(whole, len(data))


def _from_party(data: bytes) -> None:
    unpack_control(FromParty)(data)


def _from_coordinator(data: bytes) -> None:
    unpack_control(FromCoordinator)(data)


def _job(data: bytes) -> None:
    message, _ = unpack_control(JobMessage)(data)
    parse(message.settings, Job, origin=message.origin)


def _reports(data: bytes) -> None:
    """Check whatever a party says; what passes is fit for a result in JSON, which knows no NaN."""
    message, _ = unpack_control(FromParty)(data)
    match message.WhichOneof("content"):
        case "report":
            check_reports(PHASE, {"active": message.report}, set_rows=ROWS, active="active", seconds=1e9)
            assert math.isfinite(message.report.loss_sum + message.report.change_squared)
            json.dumps(dict(message.report.figures), allow_nan=False)
        case "progress":
            PhaseProgress(PHASE, set_rows=ROWS, active="active").check("active", message.progress)
            assert math.isfinite(message.progress.loss)
        case "ready":
            check_ready({"active": message.ready, "passive-1": message.ready}, active="active")
        case "saved":
            check_saved("passive-1", message.saved, name="original")
        case "assessment":
            check_figures("active", message.assessment.figures)
            check_left_out("active", message.assessment.left_out)
            json.dumps(dict(message.assessment.figures), allow_nan=False)
        case "readings":
            check_readings("passive-1", message.readings.readings, members=["passive-1"], phases=["dual"])
            check_privacy("passive-1", message.readings.privacy)


def _settings(data: bytes) -> None:
    """Read a text as every kind of settings file; the first that it is not does not keep it from the others."""
    text, refusals = data.decode(errors="replace"), list[SettingsError]()
    for kind in SETTINGS:
        try:
            parse(text, kind, origin="file.yaml")
        except SettingsError as error:
            refusals.append(error)
    if len(refusals) == len(SETTINGS):
        raise refusals[0]


def _signed(data: bytes) -> None:
    """Read a certificate as it is, and once more in canonical form, in which every check gets its turn."""
    examine(data, Evidence())
    parse_canonical(again := _canonical(data))
    examine(again, Evidence())


def _requests(data: bytes) -> None:
    with tempfile.NamedTemporaryFile() as file:
        path = Path(file.name)
        path.write_bytes(data)
        open_request(path)


def _canonical(data: bytes) -> bytes:
    try:
        return canonical(json.loads(data))
    except (ValueError, RecursionError):
        return data


def _tensor_files(data: bytes) -> None:
    with tempfile.NamedTemporaryFile() as file:
        path = Path(file.name)
        path.write_bytes(data)
        read_tensors(path, format=MODEL_FORMAT, what="a saved model")


def _duals(data: bytes) -> None:
    parcel, _ = unpack(data)
    dual = Dual() if isinstance(parcel, TensorParcel) else parcel.dual
    _check_summary(dual, "passive-1")
    _check_values(dual, "passive-1")


TARGETS: dict[str, Target] = {
    "tensors": Target(_tensors, (ValueError,), "exchange"),
    "pieces": Target(_pieces, (ValueError,), "exchange"),
    "duals": Target(_duals, (ValueError, PartyError), "exchange"),
    "from-party": Target(_from_party, (ValueError,), "control"),
    "from-coordinator": Target(_from_coordinator, (ValueError,), "party"),
    "reports": Target(_reports, (ValueError, PartyError), "control"),
    "jobs": Target(_job, (ValueError, SettingsError), "jobs", TEXTS),
    "settings": Target(_settings, (SettingsError,), "settings", TEXTS),
    "certificates": Target(_signed, (CertificateError,), "certificates", TEXTS),
    "requests": Target(_requests, (DataError,), "requests", TEXTS),
    "tensor-files": Target(_tensor_files, (DataError,), "tensor-files", TEXTS),
}


def attempt(name: str, data: bytes) -> bool:
    """Have a target read an input; return whether it took it."""
    target, began = TARGETS[name], time.process_time()
    try:
        target.read(data)
        return True
    except target.raises as error:
        if isinstance(error, FedoraError) and not str(error):
            raise BrokenPromiseError(f"{name} refused an input without a word") from error
        return False
    except Exception as error:
        raise BrokenPromiseError(f"{name} raised {type(error).__name__}: {error}") from error
    finally:
        # Time of this process alone, so that a busy machine breaks no promise.
        if (took := time.process_time() - began) > STALL_SECONDS:
            raise BrokenPromiseError(f"{name} took {took:.1f} s for {len(data)} bytes")


def try_mutations(name: str, *, seed: int, count: int | None = None, seconds: float = math.inf) -> int:
    """Have a target read inputs that follow from a seed, so many or for so long; return how many it read."""
    target, ends, read = TARGETS[name], time.monotonic() + seconds, 0
    before = _most_memory()
    for data in mutated(target.corpus, seed, pieces=target.pieces):
        attempt(name, data[:LARGEST])
        read += 1
        if read == count or time.monotonic() > ends:
            break
    if (growth := _most_memory() - before) > GROWTH_BYTES:
        raise BrokenPromiseError(f"{name} took {growth} bytes of memory")
    return read


def _most_memory() -> int:
    """Return the most bytes of memory that this process has held so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
