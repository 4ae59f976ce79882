"""Addresses as users write them: HOST:PORT."""

from fedora_vfl.errors import SettingsError


def split(address: str) -> tuple[str, int]:
    """Return the host, without an IPv6 address's brackets, and the port; a ValueError says what is wrong."""
    host, separator, port = address.rpartition(":")
    if not separator or not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536:
        raise ValueError(f"{address!r} is not an address: write HOST:PORT, such as 10.0.0.1:7000")
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise ValueError(f"{address!r} is not an address: write one of IPv6 with brackets, such as [fd00::1]:7000")
    return host.strip("[]"), int(port)


def check_address(address: str, *, option: str) -> None:
    """Refuse what is not an address on a command line."""
    try:
        split(address)
    except ValueError as error:
        raise SettingsError(f"{option}: {error}") from None
