"""The party file: one party's data, model and machine. It never leaves the party."""

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from fedora_vfl.errors import PartyError, SettingsError
from fedora_vfl.settings.federation import Address, Federation, Name, load_federation
from fedora_vfl.settings.files import Settings, load
from fedora_vfl.settings.model import MODEL_NAME
from party.data.settings import DataSettings
from party.policy import OptionalPolicy, Policy


class PrivacySettings(Settings):
    """Noise on every row this party sends: embeddings, or gradients if it is the active one. See docs/privacy.md."""

    noise: Annotated[float, Field(ge=0)]  # standard deviation of the noise on every value
    clip: PositiveFloat | None = 1.0  # largest L2 norm of a row; null: rows stay as they are, and no ε can be stated
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-5  # the δ for which ε is stated
    seed: int | None = None  # for experiments that are to be repeatable; null: the operating system's entropy


class PartySettings(Settings):
    """What a party is told about itself. Relative paths start at the folder of the file they are written in."""

    name: Name
    federation: Path
    data: DataSettings
    models: Path = Path("models")  # folder where trained models are kept, one file per name
    certificates: Path | None = None  # folder of this party's certificate and key; needed beyond one machine
    keys: Path = Path("keys")  # folder of what only this party may read: its signing key, the requests it was sent
    model: dict[str, Any] | None = None  # this party's own bottom model, in place of the job's: {bottom: ..., ...}
    drops: Literal["for-good", "for-the-job"] = (
        "for-good"  # for-the-job: an experiment that forgets the same rows again
    )
    padding: PositiveInt | None = None  # hides how many ids this party has: the number is rounded up to such steps
    threads: PositiveInt | None = None  # compute threads; all cores unless told
    device: Annotated[str, Field(pattern=r"^(cpu|cuda(:\d+)?)$")] = "cpu"  # where this party computes
    privacy: PrivacySettings | None = None  # noise on what this party sends; none unless told
    # For experiments that are to be repeatable: fresh parameters are drawn from it and the job's seed, by all who know
    # both. Without it they are drawn from a secret of this party's own.
    seed: Annotated[int | None, Field(ge=0, lt=2**63)] = None
    policy: OptionalPolicy = Policy()  # what this party agrees to; None, written `open`: to everything
    listen: Address | None = None  # active party: where to listen, when that differs from the federation's address

    def model_path(self, name: str) -> Path:
        """Return the file of a saved model; a coordinator's name must not lead out of the folder."""
        if not re.fullmatch(MODEL_NAME, name):
            raise PartyError("coordinator", f"asked for a model named {name!r}, which is not a name")
        return self.models / f"{name}.safetensors"


def load_party(path: Path) -> tuple[PartySettings, Federation]:
    """Read a party file and the federation file it names."""
    settings = load(path, PartySettings)
    folder = path.parent
    data = settings.data.model_copy(update={"path": folder / settings.data.path})
    paths = ("federation", "models", "keys", *(["certificates"] if settings.certificates else []))
    places = {name: folder / getattr(settings, name) for name in paths} | {"data": data}
    settings = settings.model_copy(update=places)
    federation = load_federation(settings.federation)
    if settings.name not in federation.parties:
        members = ", ".join(federation.parties)
        raise SettingsError(f"{path}: name: {settings.name!r} is not a party of {settings.federation}: {members}")
    return settings, federation
