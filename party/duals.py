"""Dual variables on the wire, at the end of an unlearning phase."""

import math

from fedora_vfl.errors import PartyError
from party.exchange import ExchangeLink, expect
from party.updates import DualAscent
from party.updates.primal_dual import Dual
from protos.fedora.v1 import exchange_pb2
from protos.fedora.v1.exchange_pb2 import Parcel
from protos.fedora.v1.phase_pb2 import Phase
from protos.fedora.v1.tensor_pb2 import FLOAT32, Tensor


async def send_omega(link: ExchangeLink, phase: Phase, omega: float, *, timeout: float) -> None:
    """Send a passive party the scalar form's Ω."""
    await link.send(Parcel(phase=phase.number, dual=exchange_pb2.Dual(omega=omega)), timeout=timeout)


async def receive_omega(link: ExchangeLink, phase: Phase, *, timeout: float) -> float:
    """Return the scalar form's Ω from the active party."""
    omega = (await _expect_dual(link, phase, timeout=timeout)).omega
    if not math.isfinite(omega) or omega < 0:
        raise PartyError(link.peer, f"sent {omega} as dual variable; it should be finite and not negative")
    return omega


async def send_summary(link: ExchangeLink, phase: Phase, rule: DualAscent, dual: Dual, *, timeout: float) -> None:
    """Tell the active party what there is to tell of this party's own Ω_i; all of it when an audit asks."""
    told = dual.summary()
    message = exchange_pb2.Dual(
        norm=told["dual_norm"], largest=told["dual_largest"], positive_share=told["dual_positive_share"]
    )
    if rule.update.dual_ascent.audit and not isinstance(dual.omega, float):
        for value in dual.omega:
            data = value.detach().cpu().contiguous().numpy().tobytes()
            message.values.append(Tensor(dtype=FLOAT32, shape=value.shape, data=data))
    await link.send(Parcel(phase=phase.number, dual=message), timeout=timeout)


async def receive_summary(link: ExchangeLink, phase: Phase, rule: DualAscent, *, timeout: float) -> None:
    """Hear what a passive party tells of its Ω_i, and hold it against the values if these were asked for."""
    dual = await _expect_dual(link, phase, timeout=timeout)
    sizes = (dual.norm, dual.largest)
    if not all(math.isfinite(one) and one >= 0 for one in sizes) or not 0 <= dual.positive_share <= 1:
        raise PartyError(link.peer, "sent a summary of its dual variable that cannot be one")
    if rule.update.dual_ascent.audit:
        _check_values(dual, link.peer)


def _check_values(dual: exchange_pb2.Dual, sender: str) -> None:
    """Refuse values that do not have the norm that was told of them."""
    import numpy as np

    try:
        squared = sum(float(np.square(np.frombuffer(one.data, "<f4").astype(float)).sum()) for one in dual.values)
    except ValueError:
        raise PartyError(sender, "sent a dual variable whose bytes are not float32") from None
    if not math.isclose(math.sqrt(squared), dual.norm, rel_tol=1e-6, abs_tol=1e-12):
        raise PartyError(sender, f"says its dual variable has norm {dual.norm:g}, but sent one of {squared**0.5:g}")


async def _expect_dual(link: ExchangeLink, phase: Phase, *, timeout: float) -> exchange_pb2.Dual:
    parcel = await expect(link, "dual", timeout=timeout)
    if parcel.phase != phase.number:
        raise PartyError(link.peer, f"sent a dual variable of phase {parcel.phase} in phase {phase.number}")
    return parcel.dual
