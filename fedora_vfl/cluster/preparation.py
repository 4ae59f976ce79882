"""From a job file to a folder that a local cluster can be started in: data cut, party files written, models brought."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from coordinator.job import Forget, Job
from fedora_vfl.cluster.local import lay_out, loopback_federation
from fedora_vfl.datasets.catalogue import DataSource
from fedora_vfl.datasets.cutting import cut
from fedora_vfl.datasets.settings import ACTIVE, Backdoor
from fedora_vfl.errors import DataError, SettingsError
from fedora_vfl.plugins import load_plugin
from fedora_vfl.settings.federation import Deadlines, Federation
from fedora_vfl.settings.files import Settings, check, load
from fedora_vfl.storage import write_atomically
from party import models
from party.dropped import bring_list
from party.settings import PrivacySettings

JOB_FILE = "job.yaml"  # in a prepared folder: what to submit to the cluster
LOADED = "loaded"  # what a model taken `from` an earlier run is called in the new one


class _Data(Settings):
    data: DataSource


class _BackdoorSection(Settings):
    backdoor: Backdoor


class _PrivacySection(Settings):
    privacy: dict[str, PrivacySettings]


def load_job(path: Path, plugins: Sequence[Path] = ()) -> Job:
    """Run plug-in files, read a job file, and check what can be checked before any process starts."""
    for file in plugins:
        load_plugin(file)
    job = load(path, Job)
    if job.model:
        models.bottom(job.model.bottom, job.model.bottom_settings, origin=f"{path}: model")
    if job.forget and isinstance(job.forget.ids, str):
        job = job.model_copy(update={"forget": Forget(ids=_read_ids(job.forget.ids, path))})
    return job


def as_yaml(job: Job) -> str:
    """Write a job as the coordinator gets it."""
    return yaml.safe_dump(job.model_dump(mode="json", by_alias=True, exclude_unset=True), sort_keys=False)


def prepare(
    job: Job,
    *,
    origin: Path,
    out: Path,
    threads: int | None = None,
    deadlines: Deadlines | None = None,
    tls: bool = False,
    alignment: str = "plain",
    drops: str = "for-good",
) -> Federation:
    """Cut the data and write all that a local run needs into its folder; `job.yaml` is what to submit to it.

    Args:
        job: What to do; its `data` section says what is cut for the parties.
        origin: The job's file. Errors name it, and paths in the job start at its folder.
        out: The folder of the run.
        threads: Compute threads of each party; the cores are shared out unless told.
        deadlines: How long members wait for each other.
        tls: Whether connections are secured, with certificates made for this run.
        alignment: How the parties find their common rows; one user's own files need not be hidden from each other.
        drops: The party files' setting of that name; experiments that forget the same rows again have `for-the-job`.
    """
    earlier, model = _earlier(job.train.load, origin.parent) if job.train.load else (None, None)
    if earlier and earlier.absolute() == out.absolute():
        raise SettingsError(f"{origin}: train.from: is the folder that this run would replace; choose another --out")
    source = check({"data": job.data} if job.data else {}, _Data, origin=str(origin)).data
    made = cut(_beside(source, origin.parent), out / "data", seed=job.seed, backdoor=_backdoor(job, origin))
    if made.poisoned:
        # The poisoned rows are the ones to forget; their labels no longer tell which they are.
        job = job.model_copy(update={"forget": Forget(ids=list(made.poisoned))})
    files = made.files
    passive = [name for name in files if name != ACTIVE]
    federation = loopback_federation(passive, deadlines=deadlines, alignment=alignment)
    reading = {name: file.reading for name, file in files.items()}
    privacy = _privacy(job, federation, origin)
    lay_out(out, federation, reading, threads=threads, privacy=privacy, tls=tls, drops=drops)
    if earlier:
        _bring_models(earlier, model, out, federation.parties)
        for party in federation.parties:
            bring_list(earlier / "keys" / party, out / "keys" / party)
        job = job.model_copy(update={"train": job.train.model_copy(update={"load": LOADED})})
    write_atomically(out / JOB_FILE, as_yaml(job))
    return federation


def _privacy(job: Job, federation: Federation, origin: Path) -> dict[str, dict[str, object]]:
    """Return each party's privacy settings; in a local run the noise is repeatable unless its `seed` is null."""
    section = check({"privacy": job.privacy or {}}, _PrivacySection, origin=str(origin)).privacy
    chosen: dict[str, dict[str, object]] = {}
    for name, settings in section.items():
        if name != "passive" and name not in federation.parties:
            known = ", ".join(["passive", *federation.parties])
            raise SettingsError(f"{origin}: privacy.{name}: there is no such party; allowed: {known}")
        seed = settings.seed if "seed" in settings.model_fields_set else job.seed
        for member in federation.passive if name == "passive" else [name]:
            chosen[member] = {**settings.model_dump(mode="json"), "seed": seed}
    return chosen


def _read_ids(name: str, origin: Path) -> list[str]:
    """Read a file of ids, one per line; empty lines do not count."""
    path = _existing(Path(name), origin.parent)
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        hint = "a single id is written as a list: [ID]"
        raise SettingsError(f"{origin}: forget.ids: {path} cannot be read: {error.strerror}; {hint}") from None
    except UnicodeDecodeError:
        raise SettingsError(f"{origin}: forget.ids: {path} is not a UTF-8 text of one id per line") from None
    ids = [line.strip() for line in lines if line.strip()]
    if not ids:
        raise SettingsError(f"{origin}: forget.ids: {path} holds no ids")
    return ids


def _backdoor(job: Job, origin: Path) -> Backdoor | None:
    """Return the backdoor that is put into the rows to forget."""
    if job.backdoor is None:
        return None
    forget = job.forget
    if forget is None or forget.ids is not None or forget.pending or forget.request:
        raise SettingsError(f"{origin}: backdoor: needs `forget` with `classes` or `samples`, the rows it is put into")
    for name in ("classes", "percent", "samples"):
        if name in job.backdoor:
            raise SettingsError(f"{origin}: backdoor.{name}: is not set here; the rows to forget carry the trigger")
    rows = {"samples": forget.samples} if forget.samples else {"classes": forget.classes, "percent": forget.percent}
    given = {name: value for name, value in rows.items() if value is not None}
    return check({"backdoor": {**job.backdoor, **given}}, _BackdoorSection, origin=str(origin)).backdoor


def _beside(source: DataSource, folder: Path) -> DataSource:
    """Find the files that a data section names."""
    changed: dict[str, Any] = {}
    for name, value in source:
        if isinstance(value, Path):
            changed[name] = _existing(value, folder)
        elif isinstance(value, dict):
            changed[name] = {
                key: _existing(one, folder) if isinstance(one, Path) else one for key, one in value.items()
            }
    return source.model_copy(update=changed)


def _existing(path: Path, folder: Path) -> Path:
    """Find a path named in a job file: from the file's own folder, or else from the current one."""
    return folder / path if (folder / path).exists() else path


def _earlier(written: str, folder: Path) -> tuple[Path, str | None]:
    """Return the folder that `train.from` means, and the model in it if one is named: DIR, or DIR#MODEL."""
    whole = _existing(Path(written), folder)
    path, mark, model = written.rpartition("#")
    if whole.exists() or not mark:
        return whole, None
    return _existing(Path(path), folder), model


def _bring_models(earlier: Path, model: str | None, out: Path, parties: list[str]) -> None:
    """Copy every party's model of an earlier run into the new run's folder."""
    name = model or _newest(earlier, parties)
    for party in parties:
        path = earlier / "models" / party / f"{name}.safetensors"
        if not path.exists():
            kept = ", ".join(sorted(one.stem for one in path.parent.glob("*.safetensors"))) or "none"
            raise DataError(f"train.from: {earlier} holds no model {name!r} of {party}; its saved models are: {kept}")
        target = out / "models" / party / f"{LOADED}.safetensors"
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)


def _newest(earlier: Path, parties: list[str]) -> str:
    """Return the name of the last model that an earlier run has made: the one that has forgotten, if it got so far."""
    try:
        job = yaml.safe_load((earlier / JOB_FILE).read_text(encoding="utf-8"))
        trained, unlearned = (job.get(section, {}).get("save") for section in ("train", "unlearn"))
    except (OSError, ValueError, yaml.YAMLError, AttributeError):
        raise DataError(f"train.from: {earlier} is not the folder of a run: it has no {JOB_FILE}") from None
    last = unlearned or "unlearned"
    made = all((earlier / "models" / party / f"{last}.safetensors").exists() for party in parties)
    return last if "forget" in job and made else trained or "original"
