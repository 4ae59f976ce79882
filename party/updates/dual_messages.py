"""Dual variables on the wire, at the end of an unlearning phase."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from fedora_vfl.errors import PartyError
from party.clock import SENDING, WAITING
from party.exchange import ExchangeLink, expect
from party.updates.rule import PhaseEnd
from protos.fedora.v1.exchange_pb2 import Dual, Parcel
from protos.fedora.v1.tensor_pb2 import FLOAT32, Tensor


class DualMessages:
    """What is sent and heard of dual variables when a phase ends; the two roles mirror each other."""

    def __init__(self, end: PhaseEnd) -> None:
        self._end = end

    async def agree(self, omega: float | None, *, most: float, step: int = 0) -> float:
        """Send every passive party the scalar form's Ω, or, given none, hear it from the active party.

        `most` is as far as the phase can have brought it, `step` the round of a joint phase, whose gradients the
        message comes right behind.
        """
        if omega is None:
            (dual,) = await self._receive(step)
            if not 0 <= dual.omega <= most or not math.isfinite(dual.omega):
                (link,) = self._end.links
                raise PartyError(link.peer, f"sent {dual.omega:g} as dual variable; it should be from 0 to {most:g}")
            return dual.omega
        await self._send(Dual(omega=omega), step)
        return omega

    async def summarise(self, summary: Mapping[str, float], values: Sequence[torch.Tensor] | None) -> None:
        """Tell the active party of this party's own Ω_i, all of it if an audit asks; the active party hears and checks.

        Args:
            summary: Norm, largest value and positive share.
            values: Ω_i itself, where the phase asks for an audit.
        """
        if self._end.is_active:
            for link, dual in zip(self._end.links, await self._receive(), strict=True):
                _check_summary(dual, link.peer)
                if values is not None:
                    _check_values(dual, link.peer)
            return
        dual = Dual(
            norm=summary["dual_norm"],
            largest=summary["dual_largest"],
            positive_share=summary["dual_positive_share"],
        )
        for value in values or ():
            data = value.detach().cpu().contiguous().numpy().tobytes()
            dual.values.append(Tensor(encoding=FLOAT32, shape=value.shape, data=data))
        await self._send(dual)

    async def _send(self, dual: Dual, step: int = 0) -> None:
        end = self._end
        with end.clock.spend(SENDING):
            for link in end.links:
                await link.send(Parcel(phase=end.phase.number, step=step, dual=dual), timeout=end.timeout)

    async def _receive(self, step: int = 0) -> list[Dual]:
        with self._end.clock.spend(WAITING):
            return [await self._expect(link, step) for link in self._end.links]

    async def _expect(self, link: ExchangeLink, step: int) -> Dual:
        update = self._end.phase.update
        audited = update.dual_ascent.audit or update.joint_rounds.audit
        parcel = await expect(link, "dual", timeout=self._end.timeout, most=None if audited else 0)
        number = self._end.phase.number
        if parcel.phase != number:
            raise PartyError(link.peer, f"sent a dual variable of phase {parcel.phase} in phase {number}")
        if parcel.step != step:
            raise PartyError(link.peer, f"sent the dual variable of round {parcel.step} of a phase in round {step}")
        return parcel.dual


def _check_summary(dual: Dual, sender: str) -> None:
    """Refuse what cannot be the summary of a dual variable."""
    sizes = (dual.norm, dual.largest)
    if not all(math.isfinite(one) and one >= 0 for one in sizes) or not 0 <= dual.positive_share <= 1:
        raise PartyError(sender, "sent a summary of its dual variable that cannot be one")


def _check_values(dual: Dual, sender: str) -> None:
    """Refuse values that do not have the norm that was told of them."""
    try:
        squared = sum(float(np.square(np.frombuffer(one.data, "<f4").astype(float)).sum()) for one in dual.values)
    except ValueError:
        raise PartyError(sender, "sent a dual variable whose bytes are not float32") from None
    if not math.isclose(math.sqrt(squared), dual.norm, rel_tol=1e-6, abs_tol=1e-12):
        raise PartyError(sender, f"says its dual variable has norm {dual.norm:g}, but sent one of {squared**0.5:g}")
