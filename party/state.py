"""One party's state in a job, all of it: what it knows of rows, networks, rules and requests, and how that is kept."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from fedora_vfl.errors import DataError, PartyError, SettingsError
from fedora_vfl.settings.model import Model
from party import models
from party.account import Account
from party.attack import Attack
from party.audit import AuditNotes
from party.augmentation import augment
from party.batches import SampleSets, part_of
from party.codec import LinkMemories
from party.confidence import Confidence
from party.data.encoding import Encoding, Inputs, LabelEncoding, from_json, learn
from party.data.records import Records
from party.lineage import Lineage
from party.models import perceptrons
from party.privacy import Releases
from party.randomness import drawing
from party.tensor_files import flatten, read_tensors, restore, write_tensors
from party.updates import Rule, RuleMemory
from protos.fedora.v1.exchange_pb2 import Order
from protos.fedora.v1.phase_pb2 import Phase, Samples

MODEL_FORMAT = "fedora-model-2"
STATE_FORMAT = "fedora-state-1"
CPU = torch.device("cpu")
SETS = ("train", "validation", "test", "probe")  # of the common order, as they follow each other

Recorded = dict["Samples.Set", tuple[Tensor, Tensor]]  # row numbers and logits, by sample set


@dataclass(frozen=True)
class Checkpoint:
    """All state that a rollback brings back, as it was at one moment."""

    networks: dict[str, Tensor]
    rules: dict[str, dict[str, Any]]


@dataclass
class PartyState:
    """The state of one party in one job. It has one owner, the party's role.

    What can be made again from the party's own file (inputs, labels) is not saved; all else is in `state_dict`.
    """

    order: Order  # the rows that all parties have in common
    description: dict[str, Any]  # stored with the networks: all that is needed to use them again
    networks: nn.ModuleDict
    inputs: Inputs | None
    labels: Tensor | None
    truth: Tensor | None  # the true classes, where labels were changed on purpose
    sets: SampleSets
    memory: RuleMemory = field(default_factory=RuleMemory)
    checkpoints: list[Checkpoint] = field(default_factory=list)  # the last two
    releases: Releases = field(default_factory=Releases)  # how often each row has left this party
    account: Account | None = None  # from the moment a request names rows
    links: LinkMemories = field(default_factory=LinkMemories)  # what error feedback remembers of what was sent
    # Active party
    recorded: Recorded = field(default_factory=dict)  # predictions of the phases just observed
    confidence: Confidence = field(default_factory=Confidence)
    attack: Attack | None = None  # the paper's, once it is fitted to the original model
    figures: dict[str, dict[str, float]] = field(default_factory=dict)  # by model
    audit: AuditNotes = field(default_factory=AuditNotes)  # what models have shown of each row
    device: torch.device = CPU  # where the networks are; rows and labels stay in main memory

    def state_dict(self) -> dict[str, Any]:
        """Return all that this party knows of the job: tensors and plain values, in dicts and lists.

        Only the rows' ids are still in their message, which never changes: they may be millions.
        """
        return {
            "order": self.order,
            "description": self.description,
            "networks": dict(self.networks.state_dict()),
            "sets": {Samples.Set.Name(which): rows for which, rows in self.sets.rows.items()},
            "rules": self.memory.kept,
            "initial": self.memory.initial,
            "statistics": self.memory.statistics,
            "checkpoints": [[one.networks, one.rules] for one in self.checkpoints],
            "releases": self.releases.counts,
            "account": asdict(self.account) if self.account else None,
            "links": self.links.state_dict(),
            "recorded": {Samples.Set.Name(which): list(pair) for which, pair in self.recorded.items()},
            "confidence": self.confidence.state_dict(),
            "attack": self.attack.state_dict() if self.attack else None,
            "figures": self.figures,
            "audit": self.audit.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over all of a saved state of the same job; tensors are shared with it, not copied."""
        self.order = Order(**state["order"])
        self.description = state["description"]
        self.networks.load_state_dict(state["networks"])
        self.sets = SampleSets({_set_named(which): rows for which, rows in state["sets"].items()})
        self.memory = RuleMemory(state["rules"], state["initial"], state["statistics"])
        self.checkpoints = [Checkpoint(networks, rules) for networks, rules in state["checkpoints"]]
        self.releases.counts = state["releases"]
        self.account = Account(**state["account"]) if state["account"] else None
        self.links = LinkMemories(state["links"])
        self.recorded = {_set_named(which): tuple(pair) for which, pair in state["recorded"].items()}
        self.confidence.load_state_dict(state["confidence"])
        self.attack = Attack.from_state_dict(state["attack"]) if state["attack"] else None
        self.figures = state["figures"]
        self.audit = AuditNotes.from_state_dict(state["audit"])

    def write(self, path: Path) -> str:
        """Write the whole state to a file; return its SHA-256."""
        tensors: dict[str, Tensor] = {}
        # Two names may stand for one tensor, which safetensors refuses.
        state = {**self.state_dict(), "order": ids_in(self.order)}
        description = {"state": flatten(copied(state), tensors)}
        return write_tensors(path, tensors, description, format=STATE_FORMAT)

    @classmethod
    def read(cls, path: Path, records: Records) -> "PartyState":
        """Return the state that a file holds, its rows taken from the party's own records."""
        tensors, description = read_tensors(path, format=STATE_FORMAT, what="a party's state")
        return cls.restored(restore(description["state"], tensors), records)

    @classmethod
    def restored(cls, saved: Mapping[str, Any], records: Records) -> "PartyState":
        """Return a saved state, its rows taken from the party's own records."""
        state = _build(records, Order(**saved["order"]), saved["description"], place=0, seed=0)
        state.load_state_dict(saved)
        return state

    @property
    def lineage(self) -> Lineage:
        """Where the model comes from, which is stored with it."""
        return Lineage.from_json(self.description.get("lineage", {}))

    @lineage.setter
    def lineage(self, lineage: Lineage) -> None:
        self.description["lineage"] = lineage.to_json()

    @property
    def model(self) -> Model:
        """The names and sizes of the networks."""
        return Model.model_validate(self.description["model"])

    @property
    def ids(self) -> list[str]:
        """Those of all rows, in the common order."""
        return [one for name in SETS for one in getattr(self.order, name)]

    def ids_for(self, over: Samples) -> list[str]:
        """Return what a draw goes by: ids where it is of a part, nothing else."""
        return self.ids if over.HasField("part") else []

    def learned_from(self, over: Samples) -> None:
        """Note with the model which part of the rows it has learned from, where that is not all of them."""
        self.description.pop("part", None)
        if over.HasField("part"):
            _, below = part_of(self.sets.rows[over.set], over.part, self.ids)
            self.description["part"] = {"seed": over.part.seed, "below": below}

    def embed(self, rows: Tensor, phase: Phase, step: int, network: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """Return h_i = φ_i(A_i; θ_i) for some rows, or with other parameters by a network that has them."""
        return self.embedded(self.batch(rows, phase, step), network)

    def batch(self, rows: Tensor, phase: Phase, step: int) -> Tensor:
        """Return what the bottom model is given of some rows; no parameter has a part in it."""
        assert self.inputs is not None
        batch = self.inputs.batch(rows)
        if batch.dim() == 4 and (phase.augmentation.flip or phase.augmentation.shift):
            batch = augment(batch, phase.augmentation, phase.plan.seed, step)
        return batch.to(self.device)

    def embedded(self, batch: Tensor, network: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """Return h_i of a batch that was prepared."""
        return (network or self.networks["bottom"])(batch)

    def move_to(self, device: torch.device) -> None:
        """Compute on this device from now on."""
        self.device = device
        self.networks.to(device)
        memory = self.memory
        kept, initial, statistics = (_on(device, one) for one in (memory.kept, memory.initial, memory.statistics))
        self.memory = RuleMemory(kept, initial, statistics)
        self.confidence.move_to(device)

    @property
    def classes(self) -> int:
        """How many classes the labels have; none are known at a passive party."""
        return len(self.description.get("classes", {}).get("classes", []))

    @property
    def parameters(self) -> int:
        """How many numbers are trained here."""
        return sum(parameter.numel() for parameter in self.networks.parameters())

    def layers(self, network: str) -> int:
        """Return how many layers of weights the bottom or the top model has; 0 for one that is not here."""
        return sum(θ.dim() > 1 for θ in self.networks[network].parameters()) if network in self.networks else 0

    def snapshot(self) -> list[Tensor]:
        """Return a copy of all parameters."""
        return [parameter.detach().clone() for parameter in self.networks.parameters()]

    def statistics(self) -> list[Tensor]:
        """Return the running statistics of batch norm."""
        return [one for one in self.networks.buffers() if one.is_floating_point()]

    def finish(self, rule: Rule) -> dict[str, float]:
        """End a phase's rule and return its figures.

        Where it takes parameters back, running statistics go back with them: those of one model make nonsense of
        another's.
        """
        figures = rule.finish()
        if rule.update.HasField("retreat"):
            for now, then in zip(self.statistics(), self.memory.statistics, strict=True):
                now.add_(then - now, alpha=rule.update.retreat.share)
        return figures

    def change_squared(self, before: list[Tensor]) -> float:
        """Return ‖θ − θ_before‖², in double precision."""
        pairs = zip(self.networks.parameters(), before, strict=True)
        return sum(float((now.detach().double() - then.double()).square().sum()) for now, then in pairs)

    def checkpoint(self) -> None:
        """Remember the state as it is now, and as it was at the last checkpoint."""
        now = Checkpoint(copied(dict(self.networks.state_dict())), copied(self.memory.kept))
        self.checkpoints = [*self.checkpoints[-1:], now]

    def rollback(self, checkpoints: int) -> None:
        """Return to the last checkpoint, or to the one before it; that one and later ones are gone then."""
        if not 0 < checkpoints <= len(self.checkpoints):
            kept = len(self.checkpoints)
            raise PartyError("coordinator", f"asked to go back {checkpoints} checkpoints where {kept} are kept")
        checkpoint = self.checkpoints[-checkpoints]
        del self.checkpoints[-checkpoints:]
        self.networks.load_state_dict(checkpoint.networks)
        self.memory.kept = checkpoint.rules
        if self.account:
            self.account.model = None

    def begin(self) -> None:
        """Take the parameters as they are for θ_init, and forget what update rules remember."""
        statistics = [one.clone() for one in self.statistics()]
        self.memory, self.checkpoints = RuleMemory(initial=self.snapshot(), statistics=statistics), []

    def restart(self, path: Path | None, *, place: int, seed: int, secret: bytes = b"") -> None:
        """Go on from a saved model, or from fresh parameters."""
        self.links.clear()
        if path is None:
            shape = self.inputs.shape if self.inputs else None
            self.networks = _networks(self.description, shape, place=place, seed=seed, secret=secret).to(self.device)
            self.description.pop("identity", None)
            self.description.pop("part", None)
            # θ_init stays the trained model: how far a retrained one is from it is measured in the end.
            self.memory = RuleMemory(initial=self.memory.initial, statistics=self.memory.statistics)
            self.checkpoints = []
        else:
            description = _load(self.networks, path)
            if description.get("encoding") != self.description.get("encoding"):
                raise DataError(f"{path}: was trained on rows that are encoded in another way than this job's")
            self.description = description
            self.begin()

    def save_model(self, path: Path, identity: str, training: str, *, overwrite: bool = True) -> str:
        """Write the networks and their description; return the file's SHA-256.

        Unless it may `overwrite`, a file that holds another model stays, and FileExistsError is raised.
        """
        made_of = self.description.get("identity", "")
        if identity != made_of:  # a mere copy has the parent that the model had
            self.lineage = replace(self.lineage, parent=made_of)
        self.description |= {"identity": identity, "training": training}
        values = self.networks.state_dict()
        return write_tensors(path, values, self.description, format=MODEL_FORMAT, replace=overwrite)


def ids_in(order: Order) -> dict[str, list[str]]:
    """Return the ids of all rows, by set."""
    return {name: list(getattr(order, name)) for name in SETS}


def _set_named(name: str) -> "Samples.Set":
    return cast("Samples.Set", Samples.Set.Value(name))  # whose stubs say int


def _on(device: torch.device, state: Any) -> Any:
    """Return containers with the tensors in them on a device; Adam's counts of steps stay where they are."""
    match state:
        case Tensor():
            return state.to(device) if state.dim() else state
        case dict():
            return {key: _on(device, value) for key, value in state.items()}
        case list():
            return [_on(device, value) for value in state]
        case _:
            return state


def copied(state: Any) -> Any:
    """Copy containers and the tensors in them; ten times as fast as a deep copy, which every round would wait for."""
    match state:
        case Tensor():
            return state.detach().clone()
        case dict():
            return {key: copied(value) for key, value in state.items()}
        case list():
            return [copied(value) for value in state]
        case _:
            return state


def assemble(
    records: Records,
    order: Order,
    *,
    party: str,
    place: int,
    seed: int,
    model: Model,
    own_bottom: dict[str, Any] | None,
    passive: list[str] | None,
    secret: bytes = b"",
) -> PartyState:
    """Make a party's state with fresh parameters.

    Args:
        records: The party's own rows.
        order: The rows that all parties have in common.
        party: The party's name.
        place: Its place among the bottom models.
        seed: What fresh parameters are drawn from.
        model: The job's networks.
        own_bottom: The party's own choice of a bottom model, in place of the job's.
        passive: All passive parties, for the active party, which gets the top model; None for others.
        secret: What fresh parameters are drawn from beside the seed, so that nobody else can draw them.
    """
    aligned, train = _align(records, order), np.arange(len(order.train))
    description: dict[str, Any] = {"party": party, "model": model.model_dump(), "own_bottom": own_bottom}
    if aligned.features is not None:
        description["encoding"] = learn(aligned.features, train).to_json()
    if passive is not None:
        assert aligned.labels is not None
        named = [*aligned.labels, *(aligned.truth or [])]
        description["classes"] = LabelEncoding.learn(named, origin=aligned.origin).to_json()
        description["passive"] = passive
    return _build(records, order, description, place=place, seed=seed, secret=secret)


def reload(
    records: Records, order: Order, path: Path, *, wanted: Model | None, passive: list[str] | None
) -> PartyState:
    """Make a party's state from a saved model.

    Args:
        records: The party's own rows.
        order: The rows that all parties have in common.
        path: The saved model's file.
        wanted: The model that the job describes, if it describes one: the saved one must be the same.
        passive: All passive parties, for the active party; None for others.
    """
    values, description = _read_model(path)
    if wanted is not None and wanted != Model.model_validate(description["model"]):
        kept = description["model"]
        raise SettingsError(f"model: differs from the saved model, which is {kept}: leave the section out to use that")
    if passive != description.get("passive"):
        trained, now = (", ".join(names or ["nobody"]) for names in (description.get("passive"), passive))
        raise DataError(f"{path}: was trained with passive parties {trained}, in this order; now there are {now}")
    state = _build(records, order, description, place=0, seed=0)
    _fill(state.networks, values, path)
    return state


def _read_model(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return a saved model's parameters and description."""
    if not path.exists():
        raise DataError(f"{path}: there is no saved model of that name")
    return read_tensors(path, format=MODEL_FORMAT, what="a saved model")


def model_lineage(path: Path) -> Lineage:
    """Return where a saved model comes from."""
    return Lineage.from_json(_read_model(path)[1].get("lineage", {}))


def _load(networks: nn.ModuleDict, path: Path) -> dict[str, Any]:
    """Put a saved model's parameters into networks; return its description."""
    values, description = _read_model(path)
    _fill(networks, values, path)
    return description


def _fill(networks: nn.ModuleDict, values: dict[str, Tensor], path: Path) -> None:
    """Put saved parameters into networks."""
    try:
        networks.load_state_dict(values)
    except RuntimeError:
        raise DataError(f"{path}: its parameters do not fit its own description") from None


def _align(records: Records, order: Order) -> Records:
    """Put the party's own rows into the common order."""
    where = {one: row for row, one in enumerate(records.ids)}
    return records.select(np.array([where[one] for name in SETS for one in getattr(order, name)]))


def _build(
    records: Records, order: Order, description: dict[str, Any], *, place: int, seed: int, secret: bytes = b""
) -> PartyState:
    """Encode the rows and make the networks that a description tells of."""
    aligned = _align(records, order)
    inputs = labels = truth = None
    if "encoding" in description:
        encoding: Encoding = from_json(description["encoding"])
        if aligned.features is None:
            raise DataError(f"{aligned.origin}: has no features, but the saved model was trained with some")
        inputs = encoding.apply(aligned.features)
    if "classes" in description:
        classes = LabelEncoding.from_json(description["classes"])
        assert aligned.labels is not None
        labels = torch.from_numpy(classes.apply(aligned.labels, origin=aligned.origin))
        if aligned.truth is not None:
            truth = torch.from_numpy(classes.apply(aligned.truth, origin=aligned.origin))
    networks = _networks(description, inputs.shape if inputs else None, place=place, seed=seed, secret=secret)
    sets = SampleSets.consecutive(*(len(getattr(order, name)) for name in SETS))
    return PartyState(order, description, networks, inputs, labels, truth, sets)


def _networks(
    description: dict[str, Any], shape: tuple[int, ...] | None, *, place: int, seed: int, secret: bytes
) -> nn.ModuleDict:
    """Make the networks that a description tells of, with fresh parameters."""
    model = Model.model_validate(description["model"])
    networks = nn.ModuleDict()
    if shape is not None:
        with drawing(secret, seed, "bottom", place):
            networks["bottom"] = chosen_bottom(model, description["own_bottom"]).build(shape, model.embedding)
    if "classes" in description:
        members = len(description["passive"]) + ("bottom" in networks)
        with drawing(secret, seed, "top"):
            networks["top"] = perceptrons.top(
                members * model.embedding, model.top, len(description["classes"]["classes"])
            )
    return networks


def own_bottom(own: dict[str, Any], *, default: str) -> models.Bottom:
    """Return the checked settings of the bottom model that a party file chooses."""
    settings = {key: value for key, value in own.items() if key != "bottom"}
    return models.bottom(str(own.get("bottom", default)), settings, origin="the party file's model")


def chosen_bottom(model: Model, own: dict[str, Any] | None) -> models.Bottom:
    """Return the checked settings of a bottom model: the party's own choice, or else the job's."""
    if own is not None:
        return own_bottom(own, default=model.bottom)
    return models.bottom(model.bottom, model.bottom_settings, origin="model")
