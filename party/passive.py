"""The passive role: send embeddings, get gradients, never see a label. It dials out and listens nowhere."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import zip_longest

import grpc
import torch
from torch import Tensor

from fedora_vfl.certificates.attestation import SECRET_BYTES
from fedora_vfl.errors import PartyError, SettingsError
from fedora_vfl.wire import tensors
from fedora_vfl.wire.channels import Secured, check_right_service, dial, path, reach
from fedora_vfl.wire.link import READ_AHEAD, Link
from fedora_vfl.wire.protocol import MOST_OVERLAP, PROTOCOL
from fedora_vfl.wire.tls import Member
from party import line, losses
from party.batches import PARTS, end_of_part, part, parts_of
from party.exchange import ExchangeLink, TensorExchange, expect
from party.given_gradient import go_back
from party.handed_request import as_bits, handed_rows
from party.joint_round import HELD_OUT, descend, embed_parts
from party.request import ROW_BYTES, check_rows
from party.role import Role, Tell
from party.schedule import Earlier, Late, Schedule, Unanswered
from party.updates import JointRounds, Rule
from party.updates.dual_messages import DualMessages
from party.updates.rule import gradients_of
from protos.fedora.v1.control_pb2 import Request
from protos.fedora.v1.exchange_pb2 import DESCRIPTOR, Forget, Greeting, Order, Parcel
from protos.fedora.v1.meter_pb2 import EMBEDDING, GRADIENT
from protos.fedora.v1.phase_pb2 import Phase, Report

OPEN = DESCRIPTOR.services_by_name["Exchange"].methods_by_name["Open"]

# Batches sent before the first one's gradient has come back, while parameters stand still. It must stay below
# READ_AHEAD: the active party may have that many gradients under way while this party is busy sending.
WINDOW = 4
assert max(WINDOW, 1 + MOST_OVERLAP) < READ_AHEAD


class Passive(Role):
    """A party with features only."""

    _channel: grpc.aio.Channel | None = None
    _link: ExchangeLink | None = None

    async def connect(self) -> Order:
        """Dial the active party, say who is calling, and agree on the rows."""
        async with self._opened():
            (exchange,) = self.exchanges
            timeout = self.context.federation.deadlines.setup
            return await self.alignment.offer(exchange.link, self.ids, timeout=timeout)

    async def open_streams(self) -> None:
        """Dial the active party and say who is calling."""
        async with self._opened():
            pass

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[None]:
        """Open the stream to the active party; what fails inside may be due to whoever answers at its address."""
        federation, name = self.context.federation, self.context.settings.name
        active, deadlines = federation.active, federation.deadlines
        secured: Secured = {"credentials": self.context.credentials, "peer": Member(active.name, "active")}
        self._channel = dial(active.address, deadlines.silence, answer=deadlines.step, **secured)
        await reach(self._channel, active.address, deadlines.join, **secured)
        call: grpc.aio.StreamStreamCall[bytes, bytes] = self._channel.stream_stream(path(OPEN))()
        self._link = Link(
            call,
            me=name,
            peer=active.name,
            meter=self.context.meter,
            pack=tensors.pack,
            unpack=tensors.unpack,
            in_pieces=True,
        )
        greeting = Greeting(protocol=PROTOCOL, party=name, job=self.job.job, attempt=self.attempt)
        self.exchanges = [TensorExchange(self._link, self.encodings[name], self.context.metrics.clock, passive=name)]
        try:
            await self._link.send(Parcel(greeting=greeting), timeout=deadlines.join)
            yield
        except PartyError:
            await check_right_service(call, active.address, **secured)
            raise

    async def measure_line(self) -> int:
        """Call the active party a few times."""
        (exchange,) = self.exchanges
        return await line.call(exchange.link, timeout=self.context.federation.deadlines.step)

    async def run_batches(self, phase: Phase, rule: Rule, drawn: list[Tensor], report: Report, tell: Tell) -> None:
        """Send h_i for every batch; where the phase has gradients, apply each as it comes back."""
        (exchange,) = self.exchanges
        timeout = self.context.federation.deadlines.step
        schedule = Schedule.of(phase)
        window = WINDOW if rule.parameters_frozen else 1 + schedule.overlap
        bottom, overlapping = self.state.networks["bottom"], schedule.overlap and not rule.parameters_frozen

        async def absorb() -> None:
            one = self.late.popleft() if self.late else await self._hear()
            if overlapping:
                one.hand_over(bottom)
            rule.step()
            for _ in range(1, schedule.local_steps):
                again = self.noise.clipped(self.state.embed(one.rows, one.phase, one.step).cpu())
                go_back(again, one.gradient)
                rule.step()

        steps, batch = part(phase, drawn), None
        for (step, rows), following in zip_longest(steps, steps[1:]):
            earlier = Earlier(bottom) if overlapping else None
            batch = self.state.batch(rows, phase, step) if batch is None else batch
            embedding = self.consent.sendable(self.state.embedded(batch, earlier).cpu())
            embedding = self.noise.apply(embedding, rows, phase.number, step)
            await exchange.send(EMBEDDING, phase, step, embedding, rows, timeout=timeout)
            # The link reads on, and the next batch is made ready, while the active party works on this one.
            await asyncio.sleep(0)
            batch = self.state.batch(following[1], phase, following[0]) if following else None
            if rule.needs_gradients:
                self.unanswered.append(Unanswered(phase, step, rows, report.rows, embedding, earlier))
                if len(self.late) + len(self.unanswered) == window:
                    await absorb()
        # The next phase, or part, applies what is left, where it would be applied without a cut.
        left_over = overlapping and (schedule.goes_on or end_of_part(phase, len(drawn)) < len(drawn))
        if overlapping and not left_over:
            # The training has ended. Applied in one go, without a batch in between, they would throw the model back.
            await self.settle()
            self.late.clear()
        while rule.needs_gradients and not left_over and self.unanswered:
            await absorb()

    async def _hear(self) -> Late:
        """Wait for the gradient of the oldest batch that has none yet."""
        (exchange,), one = self.exchanges, self.unanswered.popleft()
        timeout = self.context.federation.deadlines.step
        gradient = await exchange.receive(GRADIENT, one.phase, one.step, one.rows, timeout=timeout)
        gradient = self.consent.gradient(gradient, one.phase, rows=one.of_rows, sender=exchange.link.peer)
        go_back(one.embedding, gradient)
        return Late(one.phase, one.step, one.rows, gradient, one.earlier.gradients() if one.earlier else [])

    async def settle(self) -> None:
        """Wait for all gradients that are under way; they are applied when their turn comes."""
        while self.unanswered:
            self.late.append(await self._hear())

    async def run_rounds(self, phase: Phase, rule: Rule, drawn: list[Tensor], report: Report, tell: Tell) -> None:
        """Send h_i of a whole round in one message; both gradients and Ω come back in one go."""
        (exchange,) = self.exchanges
        timeout, messages = self.context.federation.deadlines.step, DualMessages(self.end_of(phase, report))
        if isinstance(rule, JointRounds):
            rule.begin(len(drawn), labelled=losses.of_labels(phase.loss), done=phase.first_step)
        for step, rows in part(phase, drawn):
            found = zip(embed_parts(self.state, rows, phase, step), parts_of(rows, phase.joint), PARTS, strict=True)
            sent = [
                self.noise.apply(self.consent.sendable(one.cpu()), its, phase.number, step, name)
                for one, its, name in found
            ]
            await exchange.send(EMBEDDING, phase, step, torch.cat(sent), rows, timeout=timeout)
            if isinstance(rule, JointRounds):
                answered = rows[: phase.joint.forget + phase.joint.remaining]
                gradient = await exchange.receive(GRADIENT, phase, step, answered, timeout=timeout)
                gradient = torch.cat(
                    [
                        self.consent.gradient(its, phase, rows=len(its), sender=exchange.link.peer)
                        for its in parts_of(gradient, phase.joint)[:HELD_OUT]
                        if len(its)
                    ]
                )
                omega = await messages.agree(None, most=rule.most, step=step) if phase.joint.forget else 0.0
                both = [
                    gradients_of(rule.parameters, one, its)
                    for one, its in zip(sent, parts_of(gradient, phase.joint), strict=False)
                ]
                report.rounds.add(change_squared=descend(self.state, rule, both[0], both[1], omega))

    async def find_rows(self, request: Request, pending: Sequence[int]) -> tuple[Tensor, bytes]:
        """Learn from the active party which rows a request means, and its secret."""
        (exchange,) = self.exchanges
        timeout = self.context.federation.deadlines.setup
        if request.HasField("request"):
            own = handed_rows(self.context.settings.keys, request.request.name, self.state.order.train)
            named = as_bits(own, len(self.state.order.train))
            await exchange.link.send(Parcel(forget=Forget(named=named)), timeout=timeout)
        parcel = await expect(
            exchange.link,
            "forget",
            timeout=timeout,
            most=ROW_BYTES * len(self.state.order.train) + SECRET_BYTES,
        )
        rows = check_rows(list(parcel.forget.rows), len(self.state.order.train), sender=exchange.link.peer)
        if len(parcel.forget.secret) != SECRET_BYTES:
            name = self.context.settings.name
            raise PartyError(exchange.link.peer, f"named rows to {name} without a secret of {SECRET_BYTES} bytes")
        if request.HasField("pending") and rows.tolist() != list(pending):
            said = (
                "has other rows of the pending requests than the active party: readmit a row at every party, or at none"
            )
            raise SettingsError(f"forget.pending: the list of {self.context.settings.name} {said}")
        return rows, parcel.forget.secret

    async def close(self) -> None:
        """Hang up."""
        if self._link:
            self._link.close()
        if self._channel:
            await self._channel.close()
