"""The parties of a folder that is prepared for a cluster, brought together in one process."""

from pathlib import Path

from coordinator.job import Job
from fedora_vfl.bench.attacks.defences import NONE, Defence
from fedora_vfl.bench.one_process.parties import Line, OneProcess
from fedora_vfl.datasets.settings import ACTIVE
from fedora_vfl.settings.model import Model
from fedora_vfl.wire.choice import Encodings
from party.codec import Codec
from party.data.reading import read
from party.data.records import Records
from party.data.split import assign
from party.privacy import Noise
from party.settings import load_party
from party.state import assemble
from protos.fedora.v1.exchange_pb2 import Order


def join(folder: Path, job: Job, defence: Defence = NONE) -> OneProcess:
    """Make the parties of a folder that `fedora_vfl.cluster.preparation.prepare` has made, rows joined by id."""
    members = {path.stem: load_party(path) for path in sorted((folder / "parties").glob("*.yaml"))}
    names = next(iter(members.values()))[1].parties
    settings = {name: members[name][0] for name in names}
    records = {name: read(settings[name].data, with_labels=name == ACTIVE) for name in names}
    order = _order(records, settings[ACTIVE].data.test_fraction)
    passive = [name for name in names if name != ACTIVE]
    states = {
        name: assemble(
            records[name],
            order,
            party=name,
            place=len(passive) if name == ACTIVE else passive.index(name),
            seed=job.seed,
            model=job.model or Model(),
            own_bottom=settings[name].model,
            passive=passive if name == ACTIVE else None,
        )
        for name in [*passive, ACTIVE]
    }
    noises = {name: Noise(defence.privacy(name == ACTIVE, seed=job.seed), party=name) for name in states}
    lines = {}
    for name in passive:
        encodings = Encodings.of(job.wire.link(name))
        ends = (states[ACTIVE].links.of(name), states[name].links.of(ACTIVE))
        active, own = (Codec(encodings, passive=name, memory=memory) for memory in ends)
        lines[name] = Line(own, active)
    return OneProcess(states, records, order, lines, noises, defence)


def _order(records: dict[str, Records], test_fraction: float) -> Order:
    """Arrange the rows that all hold as the active party does."""
    active = records[ACTIVE]
    split = dict(zip(active.ids, assign(active.ids, active.split, test_fraction, origin=active.origin), strict=True))
    common = sorted(set.intersection(*(set(one.ids) for one in records.values())))
    sets = ("train", "validation", "test", "probe")
    return Order(**{name: [one for one in common if split[one] == name] for name in sets})
