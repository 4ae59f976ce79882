"""One data set in, one file per party out."""

from pathlib import Path

from datasets.chance import held, limited
from datasets.datafile import DataFile, data_file
from datasets.settings import CsvData, DataSource, DigitsData, FilesData, IncomeData, NpzData, ParquetData
from datasets.shares import Whole

__all__ = ["DataFile", "cut"]


def cut(settings: DataSource, folder: Path, *, seed: int) -> dict[str, DataFile]:
    """Write every party's file into `folder`; a user's own files are not written but looked into."""
    if isinstance(settings, FilesData):
        from datasets.own_files import describe

        return describe(settings)
    whole = _load(settings, seed)
    common = limited(whole.training, settings.limit, seed)
    files = {}
    for party, share in whole.shares.items():
        rows = held(common, party, seed, drop=settings.drop, shuffle=settings.shuffle)
        path = share.write(folder, party, rows)
        files[party] = data_file(path, len(rows), share.columns, share.reading)
    return files


def _load(settings: IncomeData | DigitsData | NpzData | CsvData | ParquetData, seed: int) -> Whole:
    """Load a data set; each brings its own library, which is loaded only then."""
    match settings:
        case IncomeData():
            from datasets.income.loading import load_income

            return load_income(settings)
        case DigitsData():
            from datasets.images import load_digits

            return load_digits(settings, seed)
        case NpzData():
            from datasets.images import load_npz

            return load_npz(settings)
        case CsvData() | ParquetData():
            from datasets.own_tables import load_table

            return load_table(settings)
