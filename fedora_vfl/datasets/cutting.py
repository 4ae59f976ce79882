"""One data set in, one file per party out."""

from pathlib import Path

import numpy as np

from fedora_vfl.datasets.chance import held, limited
from fedora_vfl.datasets.datafile import Cut, DataFile, data_file
from fedora_vfl.datasets.partition import Whole
from fedora_vfl.datasets.settings import (
    ACTIVE,
    SOURCES,
    Backdoor,
    CifarData,
    CsvData,
    DataSource,
    DigitsData,
    FilesData,
    IncomeData,
    MedmnistData,
    NpzData,
    ParquetData,
    TinyImagenetData,
)
from fedora_vfl.errors import SettingsError

__all__ = ["Cut", "DataFile", "cut"]

_Source = (
    IncomeData | DigitsData | NpzData | CsvData | ParquetData | MedmnistData | CifarData | TinyImagenetData
)  # fmt: skip


def cut(settings: DataSource, folder: Path, *, seed: int, backdoor: Backdoor | None = None) -> Cut:
    """Write every party's file into `folder`; a user's own files are not written but looked into."""
    if isinstance(settings, FilesData):
        from fedora_vfl.datasets.own_files import describe

        if backdoor is not None:
            able = ", ".join(source for source in SOURCES if source != "files")
            raise SettingsError(
                f"backdoor: cannot be put into `source: files`, whose files are used as they are; allowed: {able}"
            )
        return Cut(describe(settings))
    return _cut(_load_some(settings, seed), settings, folder, seed, backdoor)


def _cut(whole: Whole, settings: _Source, folder: Path, seed: int, backdoor: Backdoor | None) -> Cut:
    """Give every party its rows, noise and a backdoor if there are any, and write them."""
    if settings.noise is not None and settings.noise.sigma:
        from fedora_vfl.datasets.noise import with_noise

        whole = with_noise(whole, settings.noise, seed)
    every = np.arange(len(whole))
    rows = {party: held(every, party, seed, drop=settings.drop, shuffle=settings.shuffle) for party in whole.shares}
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


def _load_some(settings: _Source, seed: int) -> Whole:
    """Load a data set, without the training rows above its limit."""
    whole = _load(settings, seed)
    kept = limited(whole.training, settings.limit, seed)
    # Taking all rows would be a copy for nothing.
    return whole if len(kept) == len(whole) else whole.take(kept)


def _load(settings: _Source, seed: int) -> Whole:
    """Load a data set; each brings its own library, which is loaded only then."""
    match settings:
        case IncomeData():
            from fedora_vfl.datasets.income.loading import load_income

            return load_income(settings)
        case DigitsData():
            from fedora_vfl.datasets.images import load_digits

            return load_digits(settings, seed)
        case NpzData():
            from fedora_vfl.datasets.images import load_npz

            return load_npz(settings, settings.path)
        case CsvData() | ParquetData():
            from fedora_vfl.datasets.own_tables import load_table

            return load_table(settings)
        case MedmnistData():
            from fedora_vfl.datasets.medical_images import load_medmnist

            return load_medmnist(settings)
        case CifarData():
            from fedora_vfl.datasets.cifar import load_cifar

            return load_cifar(settings)
        case TinyImagenetData():
            from fedora_vfl.datasets.tiny_imagenet import load_tiny_imagenet

            return load_tiny_imagenet(settings, seed)
