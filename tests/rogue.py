"""A party that breaks one rule: python -m tests.rogue FAULT --config PARTY.yaml"""

import asyncio
import dataclasses
import math
import sys
from collections.abc import Callable
from dataclasses import replace

from torch import Tensor

import party.active
import party.passive
import party.process
from fedora_vfl.wire import tensors
from fedora_vfl.wire.encodings import ENCODINGS, Float32
from fedora_vfl.wire.meter import Meter, Packed
from fedora_vfl.wire.tensors import TensorParcel
from party.__main__ import main
from party.exchange import TensorExchange
from party.request import resolve
from party.role import Role, Tell
from party.updates.dual_messages import DualMessages
from party.updates.primal_dual import Dual
from protos.fedora.v1 import exchange_pb2
from protos.fedora.v1.exchange_pb2 import Parcel
from protos.fedora.v1.meter_pb2 import Kind
from protos.fedora.v1.phase_pb2 import Phase, Report

STEP = 2  # the first step at which a rule of the exchange is broken

Change = Callable[[TensorParcel], TensorParcel]


def parcel_of(kind: Kind, phase: int, step: int, values: Tensor, encoding: str = "float32") -> TensorParcel:
    """Return what a party that keeps the rules would send."""
    chosen = ENCODINGS[encoding]
    rows, width = values.shape
    return TensorParcel(kind, phase, step, chosen, rows, width, chosen().encode(values.detach()))


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
    "step": lambda parcel: dataclasses.replace(parcel, step=parcel.step + 1),
    "phase": lambda parcel: dataclasses.replace(parcel, phase=parcel.phase + 1),
    "kind": lambda parcel: dataclasses.replace(parcel, kind=Kind.GRADIENT),
}


def break_exchange(change: Change) -> None:
    """Send something else than what is due."""

    async def send(
        self: TensorExchange, kind: Kind, phase: Phase, step: int, tensor: Tensor, *, timeout: float
    ) -> None:
        parcel = parcel_of(kind, phase.number, step, tensor)
        await self.link.send(change(parcel) if step == STEP else parcel, timeout=timeout)

    TensorExchange.send = send  # type: ignore[method-assign]


def hang() -> None:
    """Stop sending, but stay alive: the process answers pings and does nothing."""

    async def send(
        self: TensorExchange, kind: Kind, phase: Phase, step: int, tensor: Tensor, *, timeout: float
    ) -> None:
        if step == STEP:
            await asyncio.Event().wait()
        await self.link.send(parcel_of(kind, phase.number, step, tensor), timeout=timeout)

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

    async def wrong(self: DualMessages, omega: float | None) -> float:
        await agree(self, value)
        assert omega is not None
        return omega

    DualMessages.agree = wrong  # type: ignore[method-assign]


def send_a_dual_of_another_phase() -> None:
    """Tell of the dual variable as if it were the next phase's."""
    send = DualMessages._send

    async def wrong(self: DualMessages, dual: exchange_pb2.Dual) -> None:
        later = replace(self._end, phase=Phase(number=self._end.phase.number + 1))
        await send(DualMessages(later), dual)

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
    vars(party.active)["resolve"] = lambda *request: resolve(*request).flip(0)


OTHERS: dict[str, Callable[[], None]] = {
    "nan-omega": lambda: send_another_omega(math.nan),
    "dual-phase": send_a_dual_of_another_phase,
    "audit": lie_about_the_dual,
    "disorder": ask_to_forget_in_disorder,
    "hang": hang,
    "unreported": never_report,
    "garbage": send_garbage,
    "miscount": miscount,
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
