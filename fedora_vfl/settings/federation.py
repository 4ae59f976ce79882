"""The federation file: who takes part and where they are reached. It is the same for every member."""

from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, Field, PositiveFloat, model_validator

from fedora_vfl.errors import SettingsError
from fedora_vfl.settings.files import Settings, load
from fedora_vfl.settings.matching import Matching
from fedora_vfl.signing import is_public_key
from fedora_vfl.wire import addresses
from fedora_vfl.wire.protocol import COORDINATOR, is_name
from fedora_vfl.wire.tls import ROLES, is_loopback


def _checked_name(name: str) -> str:
    if not is_name(name) or name == COORDINATOR:
        raise ValueError(f"{name!r} is not a name: letters, digits, '.', '_' and '-', at most 63, not 'coordinator'")
    return name


def _checked_address(address: str) -> str:
    addresses.split(address)
    return address


def check_member(name: str, role: str) -> None:
    """Refuse what cannot be a member's name and role on a command line."""
    if role not in ROLES:
        raise SettingsError(f"--role: {role!r} is not a role; allowed: {', '.join(ROLES)}")
    if (role == COORDINATOR) != (name == COORDINATOR):
        raise SettingsError(f"the coordinator's name and role are {COORDINATOR!r}, and nobody else's are")
    if role != COORDINATOR:
        try:
            _checked_name(name)
        except ValueError as error:
            raise SettingsError(str(error)) from None


def _checked_key(key: str) -> str:
    if not is_public_key(key):
        raise ValueError(f"{key!r} is not a public key: write an Ed25519 key's 64 hexadecimal digits in lower case")
    return key


Name = Annotated[str, AfterValidator(_checked_name)]
Address = Annotated[str, AfterValidator(_checked_address)]
PublicKey = Annotated[str, AfterValidator(_checked_key)]


class Coordinator(Settings):
    """Where the coordinator is reached."""

    address: Address


class Active(Settings):
    """The party with the labels, and where passive parties reach it."""

    name: Name = "active"
    address: Address


class Deadlines(Settings):
    """How long, in seconds, anything is waited for."""

    join: PositiveFloat = 60  # until every party has joined, and for a party, until the coordinator is reached
    setup: PositiveFloat = 600  # for reading files, joining rows and making models
    step: PositiveFloat = 60  # for one message of the other side while a phase runs
    silence: PositiveFloat = 10  # until a stopped or cut-off process is taken for lost
    absence: PositiveFloat = 3600  # for a member that was lost in a job to come back; then the job is suspended
    commit_every: PositiveFloat = 30  # seconds of work, at most, that a loss may cost


class Federation(Settings):
    """The members of a federation."""

    coordinator: Coordinator
    active: Active
    passive: list[Name] = Field(min_length=1, max_length=32)
    deadlines: Deadlines = Deadlines()
    alignment: str = "private"  # how the parties find the rows they have in common; `plain` shows ids to the active one
    open_ids: bool = False  # whether ids may be compared in the open beyond one machine
    matching: Matching = Matching()  # what may differ between two spellings of one id
    plaintext: bool = False  # whether connections beyond one machine may go without certificates
    keys: dict[str, PublicKey] = Field(default={})  # by member: the key that its signatures are checked with

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        names = [self.active.name, *self.passive]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"the name {name!r} is given to two parties")
            # In certificates, and in the folders of some machines, they would be one name.
            if alike := [other for other in names if other != name and other.lower() == name.lower()]:
                raise ValueError(f"the names {name!r} and {alike[0]!r} differ only in case")
        return self

    @model_validator(mode="after")
    def _keys_of_members(self) -> Self:
        members = [COORDINATOR, *self.parties]
        for name, key in self.keys.items():
            if name not in members:
                raise ValueError(f"keys: {name!r} is not a member of this federation: {', '.join(members)}")
            if sharing := [other for other in self.keys if other != name and self.keys[other] == key]:
                raise ValueError(f"keys: {name} and {sharing[0]} have the same key; every member has its own")
        return self

    @model_validator(mode="after")
    def _ids_in_the_open(self) -> Self:
        beyond = [one for one in (self.coordinator.address, self.active.address) if not is_loopback(one)]
        if self.alignment == "plain" and beyond and not self.open_ids:
            raise ValueError(
                f"alignment: `plain` shows every id to the active party, and {beyond[0]} is beyond this machine: take "
                "`private`, or ask for it by name: `open_ids: true`"
            )
        return self

    @property
    def parties(self) -> list[str]:
        """All parties, in the order in which the top model sees their embeddings."""
        return [*self.passive, self.active.name]

    def role(self, party: str) -> str:
        """Return a party's role."""
        return "active" if party == self.active.name else "passive"


def load_federation(path: Path) -> Federation:
    """Read a federation file."""
    return load(path, Federation)
