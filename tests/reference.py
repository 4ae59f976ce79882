"""The same network in one process: plain autograd, torch's own optimizers, no messages. What the cluster must equal."""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional

from coordinator.job import Job
from coordinator.methods import Method, PhaseOutcome, R, Rollback, phases_in
from coordinator.methods.training import learning_rate
from fedora_vfl.sampling.rows import rows_of_round
from fedora_vfl.sampling.seeds import derive
from fedora_vfl.settings.model import Model
from fedora_vfl.wire.encodings import encoding_named
from party import models
from party.data.encoding import LabelEncoding, learn
from party.data.reading import read
from party.data.split import assign
from party.models import perceptrons
from party.settings import load_party
from party.unseen import stand
from protos.fedora.v1.phase_pb2 import DualAscent, Loss, Phase, PrimalDescent, Samples


@dataclass
class Joint:
    """All parties' tables side by side, and all parties' networks as one."""

    inputs: list[Tensor]  # one per party with features
    owners: list[str]
    labels: Tensor
    train: int
    bottoms: nn.ModuleList
    top: nn.Module
    classes: list[str]

    def logits(self, rows: Tensor, arrived: Callable[[str, Tensor], Tensor] = lambda _, one: one) -> Tensor:
        """Return the logits of rows; `arrived` makes of a party's embedding what the active party has of it."""
        logits: Tensor = self.top(torch.cat(self.embeddings(rows, arrived), dim=1))
        return logits

    def embeddings(self, rows: Tensor, arrived: Callable[[str, Tensor], Tensor]) -> list[Tensor]:
        """Return the embeddings of rows, party by party."""
        parts = zip(self.owners, self.bottoms, self.inputs, strict=True)
        return [arrived(owner, bottom(inputs[rows])) for owner, bottom, inputs in parts]

    def state(self) -> dict[str, dict[str, Tensor]]:
        """Return every party's parameters by the names that its saved model has."""
        state: dict[str, dict[str, Tensor]] = {"active": {}}
        for owner, bottom in zip(self.owners, self.bottoms, strict=True):
            state.setdefault(owner, {}).update({f"bottom.{name}": value for name, value in bottom.state_dict().items()})
        state["active"].update({f"top.{name}": value for name, value in self.top.state_dict().items()})
        return state

    def assert_saved(self, run: Path, model: str) -> None:
        """Hold every party's saved model against this one, to the bit."""
        for party, expected in self.state().items():
            saved = load_file(run / "models" / party / f"{model}.safetensors")
            assert saved.keys() == expected.keys()
            for name, value in expected.items():
                assert saved[name].equal(value), f"{party} {name} differs by {(saved[name] - value).abs().max()}"

    def accuracy(self) -> float:
        with torch.no_grad():
            test = torch.arange(self.train, len(self.labels))
            return float((self.logits(test).argmax(dim=1) == self.labels[test]).double().mean())


def join(run: Path, job: Job) -> Joint:
    """Read all parties' files of a run's folder and join them by id."""
    members = {path.stem: load_party(path) for path in sorted((run / "parties").glob("*.yaml"))}
    federation = next(iter(members.values()))[1]
    records = {name: read(settings.data, with_labels=name == "active") for name, (settings, _) in members.items()}
    active = records["active"]
    split = dict(
        zip(active.ids, assign(active.ids, active.split, members["active"][0].data.test_fraction), strict=True)
    )
    common = sorted(set.intersection(*(set(one.ids) for one in records.values())))
    order = [one for name in ("train", "validation", "test") for one in common if split[one] == name]
    train = sum(split[one] == "train" for one in common)
    model = job.model or Model()
    inputs, owners, bottoms = [], [], nn.ModuleList()
    for place, name in enumerate(federation.parties):
        where = {one: row for row, one in enumerate(records[name].ids)}
        aligned = records[name].select(np.array([where[one] for one in order]))
        if aligned.features is not None:
            encoded = learn(aligned.features, np.arange(train)).apply(aligned.features)
            inputs.append(encoded.batch(torch.arange(len(order))))
            owners.append(name)
            torch.manual_seed(derive(job.seed, "bottom", place))
            chosen = models.bottom(model.bottom, model.bottom_settings, origin="reference")
            bottoms.append(chosen.build(tuple(inputs[-1].shape[1:]), model.embedding))
        if aligned.labels is not None:
            classes = LabelEncoding.learn(aligned.labels)
            labels = torch.from_numpy(classes.apply(aligned.labels))
    torch.manual_seed(derive(job.seed, "top"))
    top = perceptrons.top(len(bottoms) * model.embedding, model.top, len(classes.classes))
    return Joint(inputs, owners, labels, train, bottoms, top, classes.classes)


def train(joint: Joint, job: Job, *, name: str = "train") -> None:
    """Train in the plainest way there is."""
    settings = job.train
    parameters = [*joint.bottoms.parameters(), *joint.top.parameters()]
    options: dict[str, Any] = {"weight_decay": settings.weight_decay}
    optimizer: torch.optim.Optimizer
    if settings.optimizer == "sgd":
        optimizer = torch.optim.SGD(parameters, momentum=settings.momentum, nesterov=settings.nesterov, **options)
    else:
        optimizer = torch.optim.Adam(parameters, betas=settings.betas, eps=settings.epsilon, **options)
    for epoch in range(settings.rounds):
        optimizer.param_groups[0]["lr"] = learning_rate(settings, epoch)
        seed = derive(derive(job.seed, name, epoch), "batches")
        order = torch.randperm(joint.train, generator=torch.Generator().manual_seed(seed))
        for rows in torch.split(order, settings.batch_size):
            optimizer.zero_grad()
            torch.autograd.backward(functional.cross_entropy(joint.logits(rows), joint.labels[rows]))
            optimizer.step()


def _pairs(labels: list[int], others: list[int], turn: int = 0) -> list[tuple[int, int]]:
    """Give each row, in turn with those of its label, one of the others that have another label; 16 times another."""
    pairs, taken = [], dict.fromkeys(labels, 0)
    for row, label in enumerate(labels):
        if fit := [place for place, other in enumerate(others) if other != label]:
            pairs.append((row, fit[(turn * len(fit) // 16 + taken[label]) % len(fit)]))
            taken[label] += 1
    return pairs


def _swapped(mine: list[Tensor], others: list[Tensor], pairs: list[tuple[int, int]], carrier: int) -> list[Tensor]:
    """Return one party's embeddings of the first row of each pair, and all others' of the second."""
    rows, partners = (list(one) for one in zip(*pairs, strict=True))
    blocks = enumerate(zip(mine, others, strict=True))
    return [own[rows] if place == carrier else other[partners] for place, (own, other) in blocks]


class _ThereAndBack(torch.autograd.Function):
    """An embedding as it arrives at the active party, and its gradient as it comes back."""

    @staticmethod
    def forward(
        ctx: Any, embedding: Tensor, there: Callable[[Tensor], Tensor], back: Callable[[Tensor], Tensor]
    ) -> Any:
        ctx.back = back
        return there(embedding)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return ctx.back(gradient), None, None


def rows_for_one(job: Job) -> float:
    """Return how many rows in `int8` take the bytes of one in `float32`."""
    width = (job.model or Model()).embedding
    return 4 * width / (2 + width)


@dataclass
class Unlearning:
    """Unlearning in the plainest way there is: it runs a method's phases on the joint network."""

    joint: Joint
    forget: Tensor  # D_u
    encoding: str = "int8"  # of joint rounds

    def __post_init__(self) -> None:
        train = torch.arange(self.joint.train)
        self.sets = {
            Samples.FORGET: self.forget,
            Samples.REMAINING: train[~torch.isin(train, self.forget)],
            # None of these data sets has validation rows.
            Samples.TEST: torch.arange(self.joint.train, len(self.joint.labels)),
        }
        self.parameters = [*self.joint.bottoms.parameters(), *self.joint.top.parameters()]
        self.initial = [one.detach().clone() for one in self.parameters]
        buffers = [*self.joint.bottoms.buffers(), *self.joint.top.buffers()]
        self.statistics = [one for one in buffers if one.is_floating_point()]
        self.initial_statistics = [one.clone() for one in self.statistics]
        self.omega: Any = None
        self.push: list[Tensor] = []
        self.g: list[Tensor] = []
        self.losses: list[float] = []  # L_u of every unlearning phase
        self.checkpoints: list[Any] = []
        self.standing: dict[str, Any] = {}  # of the first and the last comparison

    def perform(self, method: Method[R]) -> R:
        try:
            phase = next(method)
            while True:
                if isinstance(phase, Rollback):
                    self._rollback(phase.checkpoints)
                else:
                    outcomes = [self._run(one) for one in phases_in(phase)]
                    outcome = replace(outcomes[-1], earlier=tuple(outcomes[:-1]))
                phase = method.send(outcome)
        except StopIteration as stop:
            value: R = stop.value
            return value

    def _run(self, phase: Phase) -> PhaseOutcome:
        if phase.checkpoint:
            self.checkpoints.append(copy.deepcopy((self._values(), self.omega, self.push, self.g)))
        if phase.HasField("joint") or phase.update.HasField("retreat"):
            return self._run_joint(phase)
        before = self._values()
        batches = self._draw(phase)
        if phase.update.HasField("observe"):
            return self._observe(phase, torch.cat(batches))
        if phase.update.HasField("soften"):
            return self._soften(phase, batches)
        self.joint.bottoms.train(phase.train_mode)
        self.joint.top.train(phase.train_mode)
        run = self._ascend if phase.update.HasField("dual_ascent") else self._descend
        loss = run(phase, batches)
        rows = sum(len(batch) for batch in batches)
        pairs = zip(self.parameters, before, strict=True)
        change = math.sqrt(sum(float((now.detach().double() - then.double()).square().sum()) for now, then in pairs))
        size = sum(float(one.detach().double().square().sum()) for one in self.parameters)
        return PhaseOutcome(rows, loss, 0.0, change, 0.0, {"all": {"parameters_squared": size}})

    def _draw(self, phase: Phase) -> list[Tensor]:
        rows = self.sets[phase.over.set]
        if phase.over.share == 0:
            return []
        if phase.plan.shuffle or phase.over.share < 1:
            order = torch.randperm(
                len(rows), generator=torch.Generator().manual_seed(derive(phase.plan.seed, "batches"))
            )
            rows = rows[order[: max(1, math.ceil(phase.over.share * len(rows) - 1e-9))]]
        return list(torch.split(rows, phase.plan.batch_size))

    def _ascend(self, phase: Phase, batches: list[Tensor]) -> float:
        """Dual ascent: Ω ← max(0, Ω + σ(γ − L_u)), or with g in the place of L_u, parameter by parameter."""
        rule, count = phase.update.dual_ascent, sum(len(batch) for batch in batches)
        self._clear()
        total = 0.0
        for batch in batches:
            p = self.joint.logits(batch).log_softmax(dim=1)
            entropy = -(p.exp() * p).sum(dim=1)
            each = phase.loss.uncertainty.omega * (2 * entropy - torch.log(torch.tensor(float(p.shape[1]))))
            total += float(each.detach().sum())
            torch.autograd.backward(each.sum() if phase.loss.reduction == Loss.SUM else each.sum() / count)
        self.g = [one.grad.clone() if one.grad is not None else torch.zeros_like(one) for one in self.parameters]
        loss = total if phase.loss.reduction == Loss.SUM else total / count
        self.losses.append(loss)
        if rule.form == DualAscent.SCALAR:
            before = 0.0 if phase.update.fresh or self.omega is None else self.omega
            self.omega = max(0.0, before + rule.sigma * (rule.gamma - loss))
            self.push = [self.omega * one for one in self.g]
        else:
            fresh = phase.update.fresh or self.omega is None
            before = [torch.zeros_like(one) for one in self.g] if fresh else self.omega
            pairs = zip(before, self.g, strict=True)
            self.omega = [(old + rule.sigma * (rule.gamma - g)).clamp(0) for old, g in pairs]
            self.push = [g * omega for g, omega in zip(self.g, self.omega, strict=True)]
        return total / count

    def _descend(self, phase: Phase, batches: list[Tensor]) -> float:
        """Primal descent: Θ ← Θ − τ(∇L_r − push + ρ(Θ − Θ_init))."""
        rule = phase.update.primal_descent
        optimizer = torch.optim.SGD(self.parameters, lr=rule.tau)
        total = 0.0
        for batch in batches or [torch.arange(0)]:
            self._clear()
            if len(batch):
                each = functional.cross_entropy(self.joint.logits(batch), self.joint.labels[batch], reduction="none")
                total += float(each.detach().sum())
                torch.autograd.backward(each.mean())
            for place, one in enumerate(self.parameters):
                gradient = torch.zeros_like(one) if one.grad is None else one.grad
                if rule.push == PrimalDescent.AS_IT_IS and self.push:
                    gradient = gradient - self.push[place]
                one.grad = gradient + rule.rho * (one.detach() - self.initial[place]) if rule.rho else gradient
            optimizer.step()
        count = sum(len(batch) for batch in batches)
        return total / count if count else math.nan

    def _observe(self, phase: Phase, rows: Tensor) -> PhaseOutcome:
        """Look at L_u, the networks in eval mode."""
        self._mode(False)
        with torch.no_grad():
            p = self.joint.logits(rows).log_softmax(dim=1)
        entropy = -(p.exp() * p).sum(dim=1)
        each = phase.loss.uncertainty.omega * (2 * entropy - torch.log(torch.tensor(float(p.shape[1]))))
        return PhaseOutcome(len(rows), float(each.mean()), 0.0, 0.0, 0.0)

    def _soften(self, phase: Phase, batches: list[Tensor]) -> PhaseOutcome:
        """Scale the last layer until 2·H(P) − log C is at a level, by a search from both sides."""
        self._mode(False)
        with torch.no_grad():
            z = torch.cat([self.joint.logits(one) for one in batches]).double()

        def unsure(s: float) -> float:
            p = torch.softmax(s * z, dim=1)
            entropy = torch.logsumexp(s * z, dim=1) - (p * s * z).sum(dim=1)
            return float((2 * entropy).mean()) - math.log(z.shape[1])

        below, s, before = 0.0, 1.0, unsure(1.0)
        if before < phase.update.soften.level:
            while s - below > 1e-11:
                half = (s + below) / 2
                below, s = (half, s) if unsure(half) >= phase.update.soften.level else (below, half)
            s = below
        with torch.no_grad():
            for one in list(self.joint.top.parameters())[-2:]:
                one.mul_(s)
        return PhaseOutcome(len(z), phase.loss.uncertainty.omega * before, 0.0, 0.0, 0.0)

    def _run_joint(self, phase: Phase) -> PhaseOutcome:
        """Run joint rounds, a comparison, or a step back."""
        found: dict[str, float] = {}
        within = None
        match phase.update.WhichOneof("rule"):
            case "compare":
                found, within = self._compare(phase)
            case "retreat":
                with torch.no_grad():
                    moving = [*self.parameters, *self.statistics]
                    for one, initial in zip(moving, [*self.initial, *self.initial_statistics], strict=True):
                        one.add_(initial - one, alpha=phase.update.retreat.share)
            case _:
                self._rounds(phase)
        return PhaseOutcome(0, 0.0, 0.0, 0.0, 0.0, {"active": found}, within_bounds=within)

    def _some(self, phase: Phase, which: Any, count: int, k: int) -> Tensor:
        rows = self.sets[which]
        in_a_pass = len(rows) // count
        draw = torch.Generator().manual_seed(derive(phase.plan.seed, which, k // in_a_pass))
        order = torch.randperm(len(rows), generator=draw)
        return rows[order[: in_a_pass * count].reshape(in_a_pass, count)[k % in_a_pass]]

    def _mode(self, train: bool) -> None:
        self.joint.bottoms.train(train)
        self.joint.top.train(train)

    def _arrived(self, phase: Phase, rows: Tensor, k: int, first: int) -> list[Tensor]:
        """Return the embeddings of some rows of a round, of which `first` others come before them in each message."""

        def crossed(party: str, purpose: str, part: Tensor) -> Tensor:
            """Encode the whole message: a row's bytes do not depend on others, but what is random in them does."""
            message = torch.zeros(rows_of_round(phase.joint), part.shape[1])
            message[first : first + len(part)] = part
            encoding = encoding_named(self.encoding)()
            drawn = derive(phase.plan.seed, "encoding", party, purpose, k)
            encoding.draw_from(None if phase.forward_only else drawn)
            return encoding.decode(memoryview(encoding.encode(message)), *message.shape)[first : first + len(part)]

        def arrived(party: str, embedding: Tensor) -> Tensor:
            if party == "active":
                return embedding
            there, back = (partial(crossed, party, purpose) for purpose in ("embedding", "gradient"))
            found: Tensor = _ThereAndBack.apply(embedding, there, back)
            return found

        return self.joint.embeddings(rows, arrived)

    def _top(self, embeddings: list[Tensor]) -> Tensor:
        logits: Tensor = self.joint.top(torch.cat(embeddings, dim=1))
        return logits

    def _compare(self, phase: Phase) -> tuple[dict[str, float], bool | None]:
        forget = self._some(phase, Samples.FORGET, phase.joint.forget, 0)
        held_out = self._some(phase, phase.joint.held_out_set, phase.joint.held_out, 0)
        self._mode(False)
        labels = self.joint.labels
        with torch.no_grad():
            arrived = self._arrived(phase, forget, 0, 0), self._arrived(phase, held_out, 0, len(forget))
            logits = self._top(arrived[0]), self._top(arrived[1])
        gone = labels[forget][~torch.isin(labels[forget], labels[self.sets[Samples.REMAINING]])]
        rule = phase.update.compare
        standing = stand(logits[0], labels[forget], logits[1], labels[held_out], gone, rule)
        if phase.update.fresh:
            self.standing = {"right": standing.right}
        if phase.update.fresh and phase.loss.HasField("cross_entropy"):
            self.standing["mean loss"] = standing.mean_loss
            self.standing["carrier"] = self._carrier(rule, arrived, labels[forget].tolist(), labels[held_out].tolist())
        found = standing.accuracy(self.standing["right"], rule)
        if not phase.loss.HasField("cross_entropy"):
            return found, None
        found["carried"] = float(self.standing["carrier"] is not None)
        return found | standing.levels(), standing.holds

    def _carrier(
        self, rule: Any, arrived: tuple[list[Tensor], list[Tensor]], forget: list[int], held_out: list[int]
    ) -> int | None:
        """Find the party whose columns alone, beside held-out rows with other labels, make the labels of D_u likely."""
        found = []
        usual = [row for row, label in enumerate(held_out) if label in forget]
        if len(arrived[0]) < 2 or len(forget) < 4 or len(usual) < 4:
            return None
        for place in range(len(arrived[0])):
            leaning = []
            for mine, labels in ((arrived[0], forget), (arrived[1], held_out)):
                rows = list(range(len(labels)))
                p = torch.zeros(2, len(rows), dtype=torch.float64)
                for turn in range(16):
                    pairs = _pairs([labels[row] for row in rows], held_out, turn)
                    for its in (0, 1):
                        blocks = [
                            (one[[rows[k] for k, _ in pairs]], other[[partner for _, partner in pairs]])
                            for one, other in zip(mine, arrived[1], strict=True)
                        ]
                        swapped = [pair[(at == place) == bool(its)] for at, pair in enumerate(blocks)]
                        with torch.no_grad():
                            by_class = self._top(swapped).double().softmax(dim=1)
                        for at, (k, _) in enumerate(pairs):
                            p[its, k] += by_class[at, labels[rows[k]]] / 16
                odds = torch.log(p.clamp(1e-4, 1 - 1e-4) / (1 - p.clamp(1e-4, 1 - 1e-4)))
                leaning.append((odds[0] - odds[1]).tolist())
            ours, theirs = leaning
            alike = [theirs[row] for row in usual]
            apart = [[one for one, label in zip(theirs, held_out, strict=True) if label == c] for c in set(held_out)]
            within = sum((one - sum(rows) / len(rows)) ** 2 for rows in apart for one in rows) / (len(theirs) - 1)
            own = sum((one - sum(alike) / len(alike)) ** 2 for one in alike)
            spread = ((own + 10 * within) / (len(alike) + 9)) ** 0.5
            error = spread * (1 / len(ours) + 1 / len(alike)) ** 0.5
            found.append(((sum(ours) / len(ours) - sum(alike) / len(alike)) / error, place))
        errors, place = max(found, default=(0.0, 0))
        return place if errors > rule.carried else None

    def _rounds(self, phase: Phase) -> None:
        """θ ← θ − η·rms(θ_init)·Adam(∇L_r − push + ρ(θ − θ_init)), the push balanced and yielding as L_r rises."""
        rule, joint = phase.update.joint_rounds, phase.joint
        ceiling = max(rule.ceiling, self.standing.get("mean loss", 0.0))
        if phase.update.fresh:
            self.means, self.squares = ([torch.zeros_like(one) for one in self.parameters] for _ in range(2))
            self.omega = 0.0 if rule.form == DualAscent.SCALAR else [torch.zeros_like(one) for one in self.parameters]
            self.steps, self.rest = 0, -1.0  # L_r of the first round; none yet
        means, squares = self.means, self.squares
        for k in range(joint.rounds):
            rows = self._some(phase, Samples.REMAINING, joint.remaining, k)
            self._mode(True)
            remaining, others = rows, self._arrived(phase, rows, k, joint.forget)
            logits = self._top(others)
            each = functional.cross_entropy(logits, self.joint.labels[rows], reduction="none")
            gradients = self._gradients(each.mean())
            rest = float(each.detach().sum()) / len(each)
            g, gate = None, 0.0
            if joint.forget:
                rows = self._some(phase, Samples.FORGET, joint.forget, k)
                self._mode(False)
                mine = self._arrived(phase, rows, k, 0)
                logits = self._top(mine)
                if phase.loss.WhichOneof("form") == "uncertainty":
                    p = logits.log_softmax(dim=1)
                    entropy = -(p.exp() * p).sum(dim=1)
                    each = phase.loss.uncertainty.omega * (2 * entropy - torch.log(torch.tensor(float(p.shape[1]))))
                else:
                    each = functional.cross_entropy(logits, self.joint.labels[rows], reduction="none")
                loss = float(each.detach().clamp(max=ceiling).mean())
                self.losses.append(loss)
                known = each.detach().clamp(max=ceiling)
                below = each.detach() < ceiling
                if phase.loss.WhichOneof("form") == "cross_entropy":
                    own = self.joint.labels[rows][:, None] == torch.arange(logits.shape[1])
                    each = -(logits[own] - logits.masked_fill(own, -torch.inf).logsumexp(dim=1))
                aim, least = (each * below).mean(), 0.0
                if self.standing.get("carrier") is not None:
                    more, known, least = self._of_mixed(mine, rows, others, remaining, known, ceiling)
                    aim = aim + more
                g = self._gradients(aim)
                loss = float(known.mean())
                gate = float(loss < ceiling)
                if rule.form == DualAscent.SCALAR and gate:
                    raised = self.omega + rule.sigma / ceiling * (ceiling - loss)
                    gate = self.omega = min(rule.omega_max, max(0.0, raised))
                gate = max(gate, least) * self._left(rule, rest, ceiling)
                if rule.form == DualAscent.SCALAR:
                    self.omega = gate
            if g is not None:
                self.g, self.push = g, [torch.zeros_like(one) for one in g]
            self.steps += 1
            for place, one in enumerate(self.parameters):
                total = gradients[place]
                if g is not None and gate:
                    total = total - self._joint_push(rule, place, g[place], gradients[place], gate)
                if rule.rho:
                    total = total + rule.rho * (one.detach() - self.initial[place])
                means[place] = means[place] * 0.8
                means[place].add_(total, alpha=1 - 0.8)
                squares[place] = squares[place] * 0.8
                squares[place].addcmul_(total, total, value=1 - 0.8)
                rising = 1 - 0.8**self.steps
                size = float(self.initial[place].square().mean().sqrt())
                length = rule.step * min(1.0, self.steps / 5)
                length *= 1 - k / joint.rounds if rule.falling else 1.0
                with torch.no_grad():
                    direction = (means[place] / rising) / ((squares[place] / rising).sqrt() + 1e-12)
                    one.sub_(direction, alpha=length * size)

    def _left(self, rule: Any, rest: float, ceiling: float) -> float:
        """Return how much of the push is left as L_r has risen since the first round."""
        self.rest = rest if self.rest < 0 else self.rest
        allowance: float = rule.allowance if self.standing.get("carrier") is None else max(rule.allowance, 1.0)
        return min(1.0, max(0.0, 1 - (rest - self.rest) / (allowance * ceiling)))

    def _of_mixed(
        self,
        mine: list[Tensor],
        forget: Tensor,
        others: list[Tensor],
        remaining: Tensor,
        known: Tensor,
        ceiling: float,
    ) -> tuple[Tensor, Tensor, float]:
        """Return what mixed rows add to the aim, L_u with theirs, and the least Ω."""
        labels = self.joint.labels
        pairs = _pairs(labels[forget].tolist(), labels[remaining].tolist())
        if not pairs:
            return torch.zeros(()), known, 0.0
        logits = self._top(_swapped(mine, [one.detach() for one in others], pairs, self.standing["carrier"]))
        rows, partners = (torch.tensor(one) for one in zip(*pairs, strict=True))
        wanted = labels[forget][rows]
        own = functional.cross_entropy(logits, wanted, reduction="none").detach()
        mask = wanted[:, None] == torch.arange(logits.shape[1])
        odds = logits[mask] - logits.masked_fill(mask, -torch.inf).logsumexp(dim=1)
        wrong = functional.cross_entropy(logits, labels[remaining][partners])
        share = len(pairs) / len(forget)
        known = known.clone()
        known[rows] = torch.minimum(known[rows], own)
        aim = share * ((-odds * (own < ceiling)).mean() - 0.5 * wrong)
        return aim, known, 0.5 * min(1.0, share * float(wrong.detach()) / ceiling)

    def _joint_push(self, rule: Any, place: int, g: Tensor, gradient: Tensor, gate: float) -> Tensor:
        weight: Any = self.omega
        if rule.form == DualAscent.PARAMETERWISE:
            measured = g / (float(g.square().mean().sqrt()) or 1.0)
            raised = self.omega[place] + rule.sigma * (rule.gamma - measured)
            weight = self.omega[place] = raised.clamp(0, rule.omega_max)
        self.push[place] = push = g * weight
        if rule.form == DualAscent.PARAMETERWISE:
            push = push * gate
        long = float(g.norm())
        return push * (float(gradient.norm()) / long) if long else torch.zeros_like(g)

    def _gradients(self, loss: Tensor) -> list[Tensor]:
        found = torch.autograd.grad(loss, self.parameters, allow_unused=True)
        pairs = zip(self.parameters, found, strict=True)
        return [torch.zeros_like(one) if gradient is None else gradient for one, gradient in pairs]

    def _rollback(self, checkpoints: int) -> None:
        values, self.omega, self.push, self.g = self.checkpoints[-checkpoints]
        del self.checkpoints[-checkpoints:]
        with torch.no_grad():
            for one, value in zip(self.parameters, values, strict=True):
                one.copy_(value)

    def _values(self) -> list[Tensor]:
        return [one.detach().clone() for one in self.parameters]

    def _clear(self) -> None:
        for one in self.parameters:
            one.grad = None
