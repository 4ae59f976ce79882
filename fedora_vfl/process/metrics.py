"""Figures for Prometheus, served over HTTP: read from a process's own books when they are asked for, never pushed."""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fedora_vfl.errors import PortError
from fedora_vfl.wire.addresses import check_address, split
from fedora_vfl.wire.meter import Sums, Totals
from fedora_vfl.wire.protocol import PROTOCOL, VERSION
from fedora_vfl.wire.tls import Credentials
from protos.fedora.v1.meter_pb2 import Kind

LINK = ("direction", "sender", "receiver", "phase", "kind")

_COUNTED = {
    "messages": "Messages",
    "tensor_bytes": "Bytes of tensors' values",
    "protobuf_bytes": "Bytes of serialized messages",
}

Values = Mapping[tuple[str, ...], float]


@dataclass(frozen=True)
class Figure:
    """One metric of a process: its values by the values of its labels, as they are now."""

    name: str  # without `fedora_` in front; a counter's without `_total` behind
    help: str
    labels: tuple[str, ...]
    values: Values
    counts: bool = False  # a counter, which only grows; else a gauge


class Source(Protocol):
    """Something with figures to tell; it is asked from another thread than the one it works in."""

    def figures(self) -> Iterable[Figure]:
        """Return all figures as they are now."""


@dataclass(frozen=True)
class TrafficMetrics:
    """The figures of a process's byte meters."""

    member: str
    totals: Totals

    def figures(self) -> Iterator[Figure]:
        """Return messages and bytes by link, phase and kind, as the ledger has them, rounds added up."""
        read: dict[tuple[str, ...], Sums] = {
            ("sent" if line.sender == self.member else "received", *line[:3], Kind.Name(line.kind).lower()): sums
            for line, sums in self.totals.read().items()
        }
        for name, what in _COUNTED.items():
            values = {labels: float(getattr(sums, name)) for labels, sums in read.items()}
            yield Figure(name, f"{what} that this member has sent or received.", LINK, values, counts=True)


@dataclass(frozen=True)
class CertificateMetrics:
    """The figure of a process's certificate, if it has one."""

    credentials: Credentials | None

    def figures(self) -> Iterator[Figure]:
        """Return when the certificate expires."""
        if self.credentials:
            when = self.credentials.renewed().expires.timestamp()
            said = "When this member's certificate expires, in seconds since 1970."
            yield Figure("certificate_expires_timestamp_seconds", said, (), {(): when})


class _Exposition(Collector):
    """Puts the figures of some sources into Prometheus's form, each with the member's name as a label."""

    def __init__(self, member: str, role: str, sources: Iterable[Source]) -> None:
        self._member, self._role, self._sources = member, role, list(sources)
        self._process = ProcessCollector(registry=None)

    def describe(self) -> list[Metric]:
        """Promise nothing; registering would otherwise read all figures once."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Read all figures."""
        about: Values = {(self._role, VERSION, str(PROTOCOL)): 1.0}
        yield self._family(Figure("member_info", "Who this is.", ("role", "version", "protocol"), about))
        for source in self._sources:
            for figure in source.figures():
                yield self._family(figure)
        for family in self._process.collect():
            family.samples = [one._replace(labels={"member": self._member, **one.labels}) for one in family.samples]
            yield family

    def _family(self, figure: Figure) -> Metric:
        make = CounterMetricFamily if figure.counts else GaugeMetricFamily
        family = make(f"fedora_{figure.name}", figure.help, labels=["member", *figure.labels])
        for labels, value in figure.values.items():
            family.add_metric([self._member, *labels], value)
        return family


@contextlib.contextmanager
def served(address: str | None, *, member: str, role: str, sources: Iterable[Source]) -> Iterator[None]:
    """Serve the figures of some sources at an address while inside; nowhere if there is none."""
    if address is None:
        yield
        return
    check_address(address, option="--metrics")
    host, port = split(address)
    registry = CollectorRegistry()  # of this process's own: the library's global one would be shared by all in a test
    registry.register(_Exposition(member, role, sources))
    try:
        server, thread = start_http_server(port, addr=host, registry=registry)
    except OSError as error:
        raise PortError(f"--metrics: {address} cannot be listened on: {error.strerror or error}") from None
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
