"""What both roles have in common: a job is set up once, then runs phases, then is closed."""

import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from party import batches, share
from party.alignment import Alignment, PlainComparison
from party.data.records import Records
from party.exchange import TensorExchange
from party.settings import PartySettings
from party.share import Share
from party.updates import Rule, rule_for
from protos.control_pb2 import Ready, Setup
from protos.exchange_pb2 import Order
from protos.phase_pb2 import Phase, Progress, Report
from settings.federation import Federation
from settings.files import parse
from settings.model import Model
from wire.errors import DataError, PartyError
from wire.meter import Meter

Tell = Callable[[Progress], Awaitable[None]]


@dataclass(frozen=True)
class Surroundings:
    """What a party has before any job: its settings, its rows, its byte meter."""

    settings: PartySettings
    federation: Federation
    records: Records
    meter: Meter


class Role(ABC):
    """A passive or active party in one job."""

    def __init__(self, around: Surroundings, setup: Setup) -> None:
        self.around, self.job = around, setup
        self.alignment: Alignment = PlainComparison()
        self.share: Share | None = None
        self.exchanges: list[TensorExchange] = []

    @abstractmethod
    async def connect(self) -> Order:
        """Open the streams to the other side and agree on the rows."""

    @abstractmethod
    async def run_batches(self, phase: Phase, rule: Rule, drawn: list[Tensor], report: Report, tell: Tell) -> None:
        """Run the batches of a phase and add to the report."""

    @abstractmethod
    async def close(self) -> None:
        """Leave the job: close streams, forget its state."""

    async def prepare(self) -> Ready:
        """Join the rows and make the networks."""
        order = await self.connect()
        settings, setup = self.around.settings, self.job
        model = parse(setup.model, Model, origin="model") if setup.model else None
        active = settings.name == self.around.federation.active.name
        # The coordinator's order counts, whatever the order in this party's copy of the federation file.
        passive = list(setup.passive)
        place = len(passive) if active else passive.index(settings.name)
        _check_writable(settings.models)
        if setup.load:
            path = settings.model_path(setup.load)
            made = share.reload(
                self.around.records, order, path, place=place, wanted=model, passive=passive if active else None
            )
        else:
            made = share.assemble(
                self.around.records,
                order,
                party=settings.name,
                place=place,
                seed=setup.seed,
                model=model or Model(),
                own_bottom=settings.model,
                passive=passive if active else None,
            )
        self.share = made
        for exchange in self.exchanges:
            exchange.width = made.model.embedding
        return Ready(
            own_rows=len(self.around.records.ids),
            parameters=made.parameters,
            embedding=made.model.embedding,
            train=len(order.train),
            validation=len(order.validation),
            test=len(order.test),
            classes=made.classes,
            features=made.inputs is not None,
            identity=made.description.get("identity", "") if setup.load else "",
        )

    async def run(self, phase: Phase, tell: Tell) -> Report:
        """Run one phase and report on it."""
        if self.share is None:
            raise PartyError("coordinator", "sent a phase before the job was set up")
        began = time.perf_counter()
        drawn = batches.draw(self.share.sets, phase.over, phase.plan)
        rule = rule_for(phase.update, self.share.networks.parameters(), self.share.memory)
        self.share.networks.train(phase.train_mode)
        before = self.share.snapshot() if rule.needs_gradients else []
        for exchange in self.exchanges:
            exchange.waited = 0.0
        report = Report(phase=phase.number, rows=sum(len(rows) for rows in drawn), steps=len(drawn))
        with torch.set_grad_enabled(rule.needs_gradients):
            await self.run_batches(phase, rule, drawn, report, tell)
        report.figures.update(rule.finish())
        if before:
            report.change_squared = self.share.change_squared(before)
        report.compute_seconds = max(0.0, time.perf_counter() - began - report.wait_seconds)
        return report


def _check_writable(folder: Path) -> None:
    """Find out before the training, not after it, that a model could not be saved."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise DataError(f"{folder}: models cannot be saved there: {error.strerror}") from None
