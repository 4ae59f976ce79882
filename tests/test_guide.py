"""The guide for several machines is followed word by word: each machine a host of its own, with its own folder."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from fedora_vfl.bench.hosts.network import HostLine, Network, why_not

GUIDE = Path(__file__).parent.parent / "docs" / "several-machines.md"
PARTIES = ("bank", "hospital", "insurer")
MACHINES = ("coordinator", *PARTIES)  # in the order of their addresses
MISSING = why_not(closed=True, delay=True)
# All of the guide runs before the first test of it.
pytestmark = pytest.mark.timeout(900)
PASSIVE = HostLine(rate=50e6, delay=0.003, closed=True)
# In place of a network of friendly hosts: copies into the other one's folder, and keeps a copy of all that was sent.
SEND = """\
#!/bin/bash
set -e
where=${2%%:*}
test -d "$GUIDE_FOLDER/$where" || { echo "nobody is called $where" >&2; exit 1; }
cp "$1" "$GUIDE_FOLDER/$where/${2#*:}"
cat "$1" >> "$GUIDE_FOLDER/sent"
"""


@dataclass(frozen=True)
class Block:
    """Commands, and whose they are."""

    whose: tuple[str, ...]
    text: str


def blocks() -> list[Block]:
    """Return the shell blocks of the guide."""
    found = re.findall(r"^```(\S*) ?([^\n]*)\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    assert all(language == "sh" for language, _, _ in found)
    return [Block(tuple(whose.split()), text) for _, whose, text in found]


def test_every_block_of_the_guide_says_whose_it_is() -> None:
    assert len(blocks()) > 10
    for block in blocks():
        assert block.whose and set(block.whose) <= set(MACHINES), block


class Followed:
    """The guide on four hosts."""

    def __init__(self, folder: Path, network: Network) -> None:
        self.folder, self.network = folder, network
        tools = folder / "tools"
        for path in (tools, *(folder / name for name in MACHINES)):
            path.mkdir()
        (tools / "scp").write_text(SEND)
        (tools / "scp").chmod(0o755)
        search = os.pathsep.join([str(tools), str(Path(sys.executable).parent), os.environ["PATH"]])
        project = str(GUIDE.parent.parent)
        self._environment = {**os.environ, "PATH": search, "PYTHONPATH": project, "GUIDE_FOLDER": str(folder)}

    def follow(self, block: Block) -> dict[str, str]:
        """Run a block at each of those whose it is; return what was printed."""
        return {name: self._run(name, block.text) for name in block.whose}

    def _run(self, machine: str, text: str) -> str:
        said = self.folder / "said"
        with said.open("w") as output:
            # Not a pipe: processes that a block leaves running would hold it open.
            process = subprocess.Popen(
                self.network.command(machine, "bash", "-e", "-o", "pipefail", "-c", text),
                cwd=self.folder / machine,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
            code = process.wait(timeout=120)
        assert code == 0, f"at the {machine}:\n{text}\n{said.read_text()}\n{self._logs()}"
        return said.read_text()

    def _logs(self) -> str:
        return "\n".join(f"{path}:\n{path.read_text()}" for path in sorted(self.folder.glob("*/*.log")))

    def stop(self) -> None:
        """End what blocks have left running."""
        for process in (one for name in MACHINES for one in self.network.processes(name)):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)


Said = tuple[Path, list[tuple[Block, dict[str, str]]]]


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Said]:
    """Follow the whole guide; yield its folder, and what every block printed."""
    if MISSING:
        pytest.skip(MISSING)
    folder = tmp_path_factory.mktemp("guide")
    ports = {"coordinator": 7000, "bank": 7001}
    lines = {name: HostLine(closed=True, open_ports=(ports[name],)) if name in ports else PASSIVE for name in MACHINES}
    with Network(lines, addresses="192.0.2") as network:
        followed = Followed(folder, network)
        try:
            yield folder, [(block, followed.follow(block)) for block in blocks()]
        finally:
            followed.stop()


def test_the_guide_leads_to_a_proof_that_everybody_can_check(said: Said) -> None:
    folder, printed = said
    checked = {name: text for block, texts in printed if "fedora verify" in block.text for name, text in texts.items()}
    assert set(checked) == set(PARTIES)
    for name, text in checked.items():
        assert "✗" not in text
        assert f"{name} signed with the key that you gave for it" in text
        assert f"{name}'s model after is models/{name}/spring-2.safetensors" in text
    assert (folder / "bank/results/spring-2/ledger.csv").exists()


def test_no_private_key_and_no_table_is_sent(said: Said) -> None:
    folder, _ = said
    sent = (folder / "sent").read_bytes()
    assert b"BEGIN CERTIFICATE REQUEST" in sent
    assert b"PRIVATE KEY" not in sent
    assert b"train-0" not in sent  # how the ids of the example's rows begin


def test_models_and_tables_stay_where_they_are(said: Said) -> None:
    folder, _ = said
    for name in PARTIES:
        kept = {path.parent.name for path in (folder / name).rglob("*.safetensors")}
        assert kept == {name}
        assert len(list((folder / name).rglob("*.csv"))) == (3 if name == "bank" else 1)  # two of them ledgers
    kept_by_coordinator = {path.suffix for path in (folder / "coordinator").rglob("*")}
    assert not kept_by_coordinator & {".safetensors", ".csv", ".txt"}
