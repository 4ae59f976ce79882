"""The party file: one party's data, model and machine. It never leaves the party."""

import re
from pathlib import Path
from typing import Any

from pydantic import PositiveInt

from party.data.settings import DataSettings
from settings.federation import Address, Federation, Name, load_federation
from settings.files import Settings, load
from settings.model import MODEL_NAME
from wire.errors import PartyError, SettingsError


class PartySettings(Settings):
    """What a party is told about itself. Relative paths start at the folder of the file they are written in."""

    name: Name
    federation: Path
    data: DataSettings
    models: Path = Path("models")  # folder where trained models are kept, one file per name
    model: dict[str, Any] | None = None  # this party's own bottom model, in place of the job's: {bottom: ..., ...}
    threads: PositiveInt | None = None  # compute threads; all cores unless told
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
    places = {"federation": folder / settings.federation, "models": folder / settings.models, "data": data}
    settings = settings.model_copy(update=places)
    federation = load_federation(settings.federation)
    if settings.name not in federation.parties:
        members = ", ".join(federation.parties)
        raise SettingsError(f"{path}: name: {settings.name!r} is not a party of {settings.federation}: {members}")
    return settings, federation
