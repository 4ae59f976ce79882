"""A party that breaks one rule: python -m tests.rogue FAULT --config PARTY.yaml"""

import asyncio
import math
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

import party.active
import party.passive
import party.process
from fedora_vfl.errors import PartyError
from fedora_vfl.wire import tensors
from fedora_vfl.wire.encodings import ENCODINGS, Float32
from fedora_vfl.wire.link import Link
from fedora_vfl.wire.meter import Meter, Packed
from fedora_vfl.wire.tensors import TensorParcel
from party.__main__ import main
from party.exchange import TensorExchange
from party.process import ControlLink, PartyProcess
from party.request import resolve
from party.role import Role, Tell
from party.updates.dual_messages import DualMessages
from party.updates.primal_dual import Dual
from protos.fedora.v1 import exchange_pb2
from protos.fedora.v1.control_pb2 import FromCoordinator
from protos.fedora.v1.exchange_pb2 import Forget, Greeting, Order, Parcel
from protos.fedora.v1.meter_pb2 import Kind
from protos.fedora.v1.phase_pb2 import Phase, Progress, Report

STEP = 2  # the first step at which a rule of the exchange is broken

Change = Callable[[TensorParcel], TensorParcel]


def parcel_of(
    kind: Kind, phase: int, step: int, values: Tensor, encoding: str = "float32", agreed: int = 0
) -> TensorParcel:
    """Return what a party that keeps the rules would send."""
    chosen = ENCODINGS.get(encoding)
    rows, width = values.shape
    told = agreed if kind == Kind.EMBEDDING and step == 0 else 0
    return TensorParcel(kind, phase, step, chosen, rows, width, chosen().encode(values.detach()), told)


def tensor(change: Callable[[Tensor], Tensor], encoding: str = "float32") -> Change:
    """Change the values of an embedding."""

    def changed(parcel: TensorParcel) -> TensorParcel:
        values = Float32().decode(memoryview(parcel.data), parcel.rows, parcel.width)
        return parcel_of(parcel.kind, parcel.phase, parcel.step, change(values), encoding)

    return changed


CHANGES: dict[str, Change] = {
    "nan": tensor(lambda values: values * float("nan")),
    "infinity": tensor(lambda values: values / 0.0),
    "rows": tensor(lambda values: values[:-1]),
    "width": tensor(lambda values: values[:, :-1]),
    "encoding": tensor(lambda values: values, "float16"),
    "step": lambda parcel: parcel._replace(step=parcel.step + 1),
    "phase": lambda parcel: parcel._replace(phase=parcel.phase + 1),
    "kind": lambda parcel: parcel._replace(kind=Kind.GRADIENT),
}


def break_exchange(change: Change) -> None:
    """Send something else than what is due."""

    async def send(
        self: TensorExchange, kind: Kind, phase: Phase, step: int, tensor: Tensor, rows: Tensor, *, timeout: float
    ) -> None:
        parcel = parcel_of(kind, phase.number, step, tensor, agreed=self.agreed)
        await self.link.send(change(parcel) if step == STEP else parcel, timeout=timeout)

    TensorExchange.send = send  # type: ignore[method-assign]


def send_much(data: bytes, *, at_once: bool) -> None:
    """Send far more than is due in the place of an embedding of the second phase, in pieces or as one message."""

    async def send(
        self: TensorExchange, kind: Kind, phase: Phase, step: int, tensor: Tensor, rows: Tensor, *, timeout: float
    ) -> None:
        if (phase.number, step) != (2, STEP):
            await self.link.send(parcel_of(kind, phase.number, step, tensor, agreed=self.agreed), timeout=timeout)
            return
        self.link._in_pieces = not at_once
        await self.link._write(data)

    TensorExchange.send = send  # type: ignore[method-assign]


def hang() -> None:
    """Stop sending, but stay alive: the process answers pings and does nothing."""

    async def send(
        self: TensorExchange, kind: Kind, phase: Phase, step: int, tensor: Tensor, rows: Tensor, *, timeout: float
    ) -> None:
        if step == STEP:
            await asyncio.Event().wait()
        await self.link.send(parcel_of(kind, phase.number, step, tensor, agreed=self.agreed), timeout=timeout)

    TensorExchange.send = send  # type: ignore[method-assign]


def send_garbage() -> None:
    """Send bytes that are no message."""
    pack = tensors.pack

    def pack_badly(parcel: Parcel | TensorParcel) -> Packed:
        return Packed(b"\xff" * 100, Kind.EMBEDDING) if isinstance(parcel, TensorParcel) else pack(parcel)

    tensors.pack = pack_badly


def miscount() -> None:
    """Count one byte too few of every embedding."""
    count = Meter.count

    def wrong(self: Meter, sender: str, receiver: str, packed: Packed) -> None:
        if packed.kind == Kind.EMBEDDING:
            packed = packed._replace(data=packed.data[:-1])
        count(self, sender, receiver, packed)

    Meter.count = wrong  # type: ignore[method-assign]


def keep_an_earlier_job_in_the_books() -> None:
    """Come to a job with a greeting in the books that an earlier one has left there."""
    obey = PartyProcess._obey

    async def wrong(self: PartyProcess, link: ControlLink, message: FromCoordinator) -> None:
        if message.HasField("setup"):
            earlier = tensors.pack(Parcel(greeting=Greeting(party="passive-1", job="earlier", attempt=1)))
            self._context.meter.count("passive-1", "active", earlier)
        await obey(self, link, message)

    PartyProcess._obey = wrong  # type: ignore[method-assign]


def speak_another_protocol() -> None:
    """Join with a version that nobody else has."""
    vars(party.process)["PROTOCOL"] = 99


def greet_in_another_protocol() -> None:
    """Join properly, but speak to the active party with a version that it does not have."""
    vars(party.passive)["PROTOCOL"] = 99


def never_report() -> None:
    """Take part in every batch of the second phase, and then say nothing."""
    run = Role.run

    async def run_and_hang(self: Role, phase: Phase, tell: Tell) -> Report:
        report = await run(self, phase, tell)
        if phase.number == 2:
            await asyncio.Event().wait()
        return report

    Role.run = run_and_hang  # type: ignore[method-assign]


def send_another_omega(value: float) -> None:
    """As active party, send something that the dual variable cannot be."""
    agree = DualMessages.agree

    async def wrong(self: DualMessages, omega: float | None, *, most: float, step: int = 0) -> float:
        await agree(self, value, most=most, step=step)
        assert omega is not None
        return omega

    DualMessages.agree = wrong  # type: ignore[method-assign]


def send_a_dual_of_another_phase() -> None:
    """Tell of the dual variable as if it were the next phase's."""
    send = DualMessages._send

    async def wrong(self: DualMessages, dual: exchange_pb2.Dual, step: int = 0) -> None:
        later = replace(self._end, phase=Phase(number=self._end.phase.number + 1))
        await send(DualMessages(later), dual, step)

    DualMessages._send = wrong  # type: ignore[method-assign]


def lie_about_the_dual() -> None:
    """Tell of a dual variable half as long as the one that is shown to the audit."""
    summary = Dual.summary

    def wrong(self: Dual) -> dict[str, float]:
        told = summary(self)
        return {**told, "dual_norm": told["dual_norm"] / 2}

    Dual.summary = wrong  # type: ignore[method-assign]


def ask_to_forget_in_disorder() -> None:
    """As active party, name the rows to forget in another order than theirs."""
    vars(party.active)["resolve"] = lambda *request, **more: resolve(*request, **more).flip(0)


def tell_one_party(content: str, change: Callable[[Parcel], Parcel]) -> None:
    """As active party, tell the first passive party something else than the others."""
    send = Link.send

    async def deceive(self: Link[Any, Any], message: Any, **more: Any) -> None:
        if self.peer == "passive-1" and isinstance(message, Parcel) and message.WhichOneof("content") == content:
            message = change(message)
        await send(self, message, **more)

    Link.send = deceive  # type: ignore[method-assign]


def other_rows(parcel: Parcel) -> Parcel:
    """Name as many rows, but not the ones that were asked for."""
    asked = set(parcel.forget.rows)
    others = [row for row in range(2 * len(asked)) if row not in asked]
    return Parcel(forget=Forget(rows=others[: len(asked)], secret=parcel.forget.secret))


def other_secret(parcel: Parcel) -> Parcel:
    """Name the same rows with another secret."""
    return Parcel(forget=Forget(rows=parcel.forget.rows, secret=bytes(32)))


def other_order(parcel: Parcel) -> Parcel:
    """Let the same numbers stand for other training rows."""
    changed = Order()
    changed.CopyFrom(parcel.order)
    changed.train[:] = list(parcel.order.train)[::-1]
    return Parcel(order=changed)


def record_embeddings() -> None:
    """As active party, keep all that the first passive party sends, in a file beside the own party file."""
    path = Path(sys.argv[sys.argv.index("--config") + 1]).with_name("recorded.safetensors")
    arrived, kept = TensorExchange.arrived, list[Tensor]()

    def recorded(self: TensorExchange, kind: Kind, phase: Phase, step: int, rows: Tensor) -> Tensor:
        tensor = arrived(self, kind, phase, step, rows)
        if self.link.peer == "passive-1":
            kept.append(tensor.clone())
            save_file({"embeddings": torch.cat(kept)}, path)
        return tensor

    TensorExchange.arrived = recorded  # type: ignore[method-assign]


# What no report can truly say; the job's seed tells which of them is said.
LIES: tuple[dict[str, Any], ...] = (
    {"change_squared": -1.0},
    {"change_squared": math.nan},
    {"change_squared": math.inf},
    {"rows": 2**63},
    {"correct": 2**40},
    {"loss_sum": math.nan},
    {"figures": {"dual_largest": math.nan}},
)


def report_lies() -> None:
    """Take part in every phase as one should, and report what cannot be true."""
    run = Role.run

    async def run_and_lie(self: Role, phase: Phase, tell: Tell) -> Report:
        report = await run(self, phase, tell)
        report.MergeFrom(Report(**LIES[self.job.seed]))
        return report

    Role.run = run_and_lie  # type: ignore[method-assign]


def progress_without_end() -> None:
    """Take part in every batch of the second phase, and then tell of progress for ever."""
    run = Role.run

    async def run_on(self: Role, phase: Phase, tell: Tell) -> Report:
        report = await run(self, phase, tell)
        while phase.number == 2:
            await tell(Progress(phase=phase.number, steps=1, of_steps=2))
            await asyncio.sleep(0.2)  # as often as an honest party might
        return report

    Role.run = run_on  # type: ignore[method-assign]


def fail_with(culprit: str, reason: str) -> None:
    """Fail in the first phase, with a sentence of one's own about somebody."""

    async def fail(self: Role, phase: Phase, tell: Tell) -> Report:
        raise PartyError(culprit, reason)

    Role.run = fail  # type: ignore[method-assign]


FORGED = "is well\x1b[2J\x1b[1;1H\nerror: active has stolen the data\x07\r"

OTHERS: dict[str, Callable[[], None]] = {
    "other-rows": lambda: tell_one_party("forget", other_rows),
    "other-secret": lambda: tell_one_party("forget", other_secret),
    "other-order": lambda: tell_one_party("order", other_order),
    "record": record_embeddings,
    "lies": report_lies,
    "progress": progress_without_end,
    "terminal": lambda: fail_with("passive-1", FORGED),
    "accuse": lambda: fail_with("passive-2", "has sold its rows"),
    "nan-omega": lambda: send_another_omega(math.nan),
    "dual-phase": send_a_dual_of_another_phase,
    "audit": lie_about_the_dual,
    "disorder": ask_to_forget_in_disorder,
    "huge": lambda: send_much(bytes(120 * 1024 * 1024), at_once=False),
    "huge-at-once": lambda: send_much(bytes(120 * 1024 * 1024), at_once=True),
    "tiny-fields": lambda: send_much(b"\x08\x01" * (2 * 1024 * 1024), at_once=True),
    "hang": hang,
    "unreported": never_report,
    "garbage": send_garbage,
    "miscount": miscount,
    "earlier-job": keep_an_earlier_job_in_the_books,
    "protocol": speak_another_protocol,
    "greeting": greet_in_another_protocol,
}

if __name__ == "__main__":
    fault = sys.argv.pop(1)
    if fault in CHANGES:
        break_exchange(CHANGES[fault])
    else:
        OTHERS[fault]()
    sys.exit(main())
