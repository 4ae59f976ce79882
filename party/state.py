"""One party's state in a job: its aligned rows, its networks, what its update rules remember, and how they are kept."""

import json
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from fedora_vfl.errors import DataError, PartyError, SettingsError
from fedora_vfl.sampling.seeds import derive
from fedora_vfl.settings.model import Model
from fedora_vfl.storage import write_atomically
from party import models
from party.augmentation import augment
from party.batches import SampleSets
from party.data.encoding import Encoding, Inputs, LabelEncoding, from_json, learn
from party.data.records import Records
from party.updates import Memory
from protos.fedora.v1.exchange_pb2 import Order
from protos.fedora.v1.phase_pb2 import Phase

FORMAT = "fedora-model-1"
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Checkpoint:
    """All state that phases change, as it was at one moment."""

    networks: dict[str, Tensor]
    kept: dict[str, Any]


@dataclass
class PartyState:
    """The state of one party in one job. It has one owner, the party's role."""

    model: Model
    networks: nn.ModuleDict
    inputs: Inputs | None
    labels: Tensor | None
    sets: SampleSets
    description: dict[str, Any]  # stored with the networks: all that is needed to use them again
    truth: Tensor | None = None  # the true classes, where labels were changed on purpose
    memory: Memory = field(default_factory=Memory)
    device: torch.device = CPU  # where the networks are; rows and labels stay in main memory
    _checkpoints: list[Checkpoint] = field(default_factory=list)

    def embed(self, rows: Tensor, phase: Phase, step: int) -> Tensor:
        """Return h_i = φ_i(A_i; θ_i) for some rows."""
        assert self.inputs is not None
        batch = self.inputs.batch(rows)
        if batch.dim() == 4 and (phase.augmentation.flip or phase.augmentation.shift):
            batch = augment(batch, phase.augmentation, phase.plan.seed, step)
        embedding: Tensor = self.networks["bottom"](batch.to(self.device))
        return embedding

    def move_to(self, device: torch.device) -> None:
        """Compute on this device from now on."""
        self.device = device
        self.networks.to(device)

    @property
    def classes(self) -> int:
        """How many classes the labels have; none are known at a passive party."""
        return len(self.description.get("classes", {}).get("classes", []))

    @property
    def parameters(self) -> int:
        """How many numbers are trained here."""
        return sum(parameter.numel() for parameter in self.networks.parameters())

    def snapshot(self) -> list[Tensor]:
        """Return a copy of all parameters."""
        return [parameter.detach().clone() for parameter in self.networks.parameters()]

    def change_squared(self, before: list[Tensor]) -> float:
        """Return ‖θ − θ_before‖², in double precision."""
        pairs = zip(self.networks.parameters(), before, strict=True)
        return sum(float((now.detach().double() - then.double()).square().sum()) for now, then in pairs)

    def checkpoint(self) -> None:
        """Remember the state as it is now, and as it was at the last checkpoint."""
        now = Checkpoint(_copied(dict(self.networks.state_dict())), _copied(self.memory.kept))
        self._checkpoints = [*self._checkpoints[-1:], now]

    def rollback(self, checkpoints: int) -> None:
        """Return to the state of a mark, the last one or the one before it; that one and later ones are gone then."""
        if not 0 < checkpoints <= len(self._checkpoints):
            raise PartyError(
                "coordinator", f"asked to take back {checkpoints} checkpoints where {len(self._checkpoints)} are kept"
            )
        checkpoint = self._checkpoints[-checkpoints]
        del self._checkpoints[-checkpoints:]
        self.networks.load_state_dict(checkpoint.networks)
        self.memory.kept = checkpoint.kept

    def begin(self) -> None:
        """Take the parameters as they are for θ_init, and forget what update rules remember."""
        self.memory, self._checkpoints = Memory(initial=self.snapshot()), []

    def restart(self, path: Path | None, *, place: int, seed: int) -> None:
        """Go on from a saved model, or from fresh parameters."""
        if path is None:
            self.networks = self._fresh_networks(place, seed).to(self.device)
            self.description.pop("identity", None)
            # θ_init stays the trained model: how far a retrained one is from it is measured in the end.
            self.memory, self._checkpoints = Memory(initial=self.memory.initial), []
        else:
            description, values = _read_model(path)
            _fill(self.networks, values, path)
            self.description = description
            self.begin()

    def _fresh_networks(self, place: int, seed: int) -> nn.ModuleDict:
        shape = self.inputs.shape if self.inputs else None
        return _networks(self.description, shape, place=place, seed=seed)

    def save(self, path: Path, identity: str, training: str) -> str:
        """Write the networks and their description; return the file's SHA-256."""
        self.description |= {"identity": identity, "training": training}
        # One entry only: safetensors writes several in an order that changes from process to process.
        metadata = {FORMAT: json.dumps(self.description)}
        content = save({name: value.cpu().contiguous() for name, value in self.networks.state_dict().items()}, metadata)
        write_atomically(path, content)
        return sha256(content).hexdigest()


def _copied(state: Any) -> Any:
    """Copy containers and the tensors in them; ten times as fast as a deep copy, which every round would wait for."""
    match state:
        case Tensor():
            return state.detach().clone()
        case dict():
            return {key: _copied(value) for key, value in state.items()}
        case list() | tuple():
            return type(state)(_copied(value) for value in state)
        case _:
            return state  # numbers, and dual variables, which are replaced and never changed


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
) -> PartyState:
    """Make a party's state with fresh parameters. `passive` is given to the active party, which gets the top model."""
    aligned, sets = _align(records, order)
    train = np.arange(len(order.train))
    description: dict[str, Any] = {"party": party, "model": model.model_dump(), "own_bottom": own_bottom}
    if aligned.features is not None:
        description["encoding"] = learn(aligned.features, train).to_json()
    if passive is not None:
        assert aligned.labels is not None
        named = [*aligned.labels, *(aligned.truth or [])]
        description["classes"] = LabelEncoding.learn(named, origin=aligned.origin).to_json()
        description["passive"] = passive
    return _build(aligned, sets, description, place=place, seed=seed)


def reload(
    records: Records, order: Order, path: Path, *, place: int, wanted: Model | None, passive: list[str] | None
) -> PartyState:
    """Make a party's state from a saved model; it must be the model the job describes, if the job describes one."""
    description, values = _read_model(path)
    if wanted is not None and wanted != Model.model_validate(description["model"]):
        kept = description["model"]
        raise SettingsError(f"model: differs from the saved model, which is {kept}: leave the section out to use that")
    if passive != description.get("passive"):
        trained, now = (", ".join(names or ["nobody"]) for names in (description.get("passive"), passive))
        raise DataError(f"{path}: was trained with passive parties {trained}, in this order; now there are {now}")
    aligned, sets = _align(records, order)
    state = _build(aligned, sets, description, place=place, seed=0)
    _fill(state.networks, values, path)
    return state


def _read_model(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return a saved model's description and parameters."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            values = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except FileNotFoundError:
        raise DataError(f"{path}: there is no saved model of that name") from None
    except (OSError, SafetensorError) as error:
        raise DataError(f"{path}: is not a model that can be loaded: {error}") from None
    if FORMAT not in metadata:
        raise DataError(f"{path}: is not a model of this software ({FORMAT})")
    return json.loads(metadata[FORMAT]), values


def _fill(networks: nn.ModuleDict, values: dict[str, Tensor], path: Path) -> None:
    """Put saved parameters into networks."""
    try:
        networks.load_state_dict(values)
    except RuntimeError:
        raise DataError(f"{path}: its parameters do not fit its own description") from None


def _align(records: Records, order: Order) -> tuple[Records, SampleSets]:
    """Put the party's own rows into the common order."""
    where = {one: row for row, one in enumerate(records.ids)}
    parts = (order.train, order.validation, order.test, order.probe)
    rows = np.array([where[one] for part in parts for one in part])
    return records.select(rows), SampleSets.consecutive(*(len(part) for part in parts))


def _build(aligned: Records, sets: SampleSets, description: dict[str, Any], *, place: int, seed: int) -> PartyState:
    """Encode the rows and make the networks that a description tells of."""
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
    networks = _networks(description, inputs.shape if inputs else None, place=place, seed=seed)
    return PartyState(Model.model_validate(description["model"]), networks, inputs, labels, sets, description, truth)


def _networks(description: dict[str, Any], shape: tuple[int, ...] | None, *, place: int, seed: int) -> nn.ModuleDict:
    """Make the networks that a description tells of, with fresh parameters."""
    model = Model.model_validate(description["model"])
    networks = nn.ModuleDict()
    if shape is not None:
        networks["bottom"] = _bottom(model, description["own_bottom"], shape, derive(seed, "bottom", place))
    if "classes" in description:
        members = len(description["passive"]) + ("bottom" in networks)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive(seed, "top"))
            networks["top"] = models.mlp.top(
                members * model.embedding, model.top, len(description["classes"]["classes"])
            )
    return networks


def own_bottom(own: dict[str, Any], *, default: str) -> models.Bottom:
    """Return the checked settings of the bottom model that a party file chooses."""
    settings = {key: value for key, value in own.items() if key != "bottom"}
    return models.bottom(str(own.get("bottom", default)), settings, origin="the party file's model")


def _bottom(model: Model, own: dict[str, Any] | None, shape: tuple[int, ...], seed: int) -> nn.Module:
    """Make a bottom model: the party's own choice, or else the job's."""
    if own is not None:
        chosen = own_bottom(own, default=model.bottom)
    else:
        chosen = models.bottom(model.bottom, model.bottom_settings, origin="model")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return chosen.build(shape, model.embedding)
