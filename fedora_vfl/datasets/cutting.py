"""One data set in, one file per party out."""

from pathlib import Path

import numpy as np

from fedora_vfl.datasets.catalogue import SOURCES
from fedora_vfl.datasets.chance import held, limited
from fedora_vfl.datasets.datafile import Cut, DataFile, data_file
from fedora_vfl.datasets.partition import Whole
from fedora_vfl.datasets.settings import ACTIVE, Backdoor, CutSource, Source
from fedora_vfl.errors import SettingsError

__all__ = ["Cut", "DataFile", "cut"]


def cut(source: Source, folder: Path, *, seed: int, backdoor: Backdoor | None = None) -> Cut:
    """Write every party's file into `folder`; files that are cut already are not written but looked into.

    Args:
        source: Where the data come from, and how they are cut.
        folder: Where the parties' files go.
        seed: Decides all that is random: rows that are drawn, dropped, shuffled or poisoned, and noise.
        backdoor: What is put into some of the rows, if anything.
    """
    if isinstance(source, CutSource):
        return _cut(_load(source, seed), source, folder, seed, backdoor)
    if backdoor is not None:
        able = ", ".join(name for name in SOURCES.names if issubclass(SOURCES.get(name), CutSource))
        raise SettingsError(
            f"backdoor: cannot be put into `source: {source.source}`, whose files are used as they are; allowed: {able}"
        )
    return Cut(source.describe())


def _cut(whole: Whole, source: CutSource, folder: Path, seed: int, backdoor: Backdoor | None) -> Cut:
    """Give every party its rows, noise and a backdoor if there are any, and write them."""
    if source.noise is not None and source.noise.sigma:
        from fedora_vfl.datasets.noise import with_noise

        whole = with_noise(whole, source.noise, seed)
    every = np.arange(len(whole))
    rows = {party: held(every, party, seed, drop=source.drop, shuffle=source.shuffle) for party in whole.shares}
    implant = None
    if backdoor is not None:
        from fedora_vfl.datasets.backdoors import plan

        implant = plan(backdoor, whole, rows, seed)
    files = {}
    for party, share in whole.shares.items():
        chosen = (
            implant.put_into(share, rows[party], with_labels=party == ACTIVE) if implant else share.take(rows[party])
        )
        path = chosen.write(folder, party)
        files[party] = data_file(path, len(chosen), chosen.columns, chosen.reading)
    return Cut(files, implant.poisoned_ids() if implant else ())


def _load(source: CutSource, seed: int) -> Whole:
    """Load a data set, without the training rows above its limit."""
    whole = source.load(seed)
    kept = limited(whole.training, source.limit, seed)
    # Taking all rows would be a copy for nothing.
    return whole if len(kept) == len(whole) else whole.take(kept)
