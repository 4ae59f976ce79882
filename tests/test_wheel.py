"""The wheel installs beside packages that use the same words, works there, and leaves no trace when it goes."""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.conftest import write_people

ROOT = Path(__file__).parent.parent
OURS = ("coordinator", "fedora_vfl", "party", "protos")
SOURCE = (*OURS, "deploy", "tests", "pyproject.toml", "README.md", "LICENSE")

# Another project's package, with the names that ours once had: `protos` itself, and `protos/tensor.proto`.
NEIGHBOUR_PROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "neighbour"
version = "1.0"

[tool.setuptools]
packages = ["protos"]
package-data = { protos = ["*.proto"] }
"""
NEIGHBOUR_MESSAGES = """
syntax = "proto3";
package neighbour;
message Tensor { string of_their_own = 1; }
"""

ONE_PROCESS = """
from protos import tensor_pb2 as theirs
from protos.fedora.v1 import tensor_pb2 as ours
read = theirs.Tensor.FromString(theirs.Tensor(of_their_own="kept").SerializeToString())
sizes = ours.Tensor.FromString(ours.Tensor(shape=[2, 3]).SerializeToString()).shape
print(read.of_their_own, list(sizes), theirs.DESCRIPTOR.name, ours.DESCRIPTOR.name)
"""
WHERE = """
import coordinator, fedora_vfl, party, protos.fedora
print(*(one.__file__ for one in (coordinator, fedora_vfl, party, protos.fedora)), sep="\\n")
"""


@dataclass(frozen=True)
class Wheels:
    """What is installed together; Hugging Face's wheel only where an index could be reached."""

    ours: Path
    neighbour: Path
    hugging_face: Path | None
    needed: tuple[Path, ...]  # folders with what the three need to run

    @property
    def others(self) -> list[Path]:
        """All but ours."""
        return [self.neighbour, *([self.hugging_face] if self.hugging_face else [])]


@dataclass(frozen=True)
class Stay:
    """What was seen of our package in one environment, from its installation to its removal."""

    wheels: Wheels
    site: Path
    modules: list[Path]  # where our packages were imported from
    figures: dict[str, float]  # of a job that ran there
    one_process: str  # said by a program that uses our messages and the neighbour's
    hugging_face: str | None  # said by a program that imports Hugging Face's package


def run(*command: str | Path, folder: Path) -> str:
    """Run a program to its end, without this repository among its modules, and return what it said."""
    surroundings = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PIP_TARGET"))}
    ended = subprocess.run([*map(str, command)], cwd=folder, env=surroundings, capture_output=True, text=True)
    assert ended.returncode == 0, f"{' '.join(map(str, command))}\n{ended.stdout}\n{ended.stderr}"
    return ended.stdout


def pip(python: Path, *arguments: str | Path) -> None:
    """Have pip change an environment."""
    quiet = ("--quiet", "--disable-pip-version-check")
    run(sys.executable, "-m", "pip", "--python", python, *arguments, *quiet, folder=python.parent)


def make_environment(folder: Path, needed: tuple[Path, ...]) -> Path:
    """Make a virtual environment that finds its packages in some folders after its own; return its Python."""
    run(sys.executable, "-m", "venv", "--without-pip", folder, folder=folder.parent)
    site_of(folder).joinpath("needed.pth").write_text("".join(f"{one}\n" for one in needed))
    return folder / "bin" / "python"


def site_of(environment: Path) -> Path:
    """Return the folder that an environment's packages are in."""
    return Path(sysconfig.get_path("purelib", "venv", {"base": str(environment), "platbase": str(environment)}))


def copy_source(folder: Path) -> Path:
    """Copy all that a wheel is built from, and what must not get into it."""
    folder.mkdir()
    for one in (ROOT / name for name in SOURCE):
        if one.is_dir():
            shutil.copytree(one, folder / one.name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(one, folder)
    return folder


def lend(folder: Path) -> Path:
    """Link what is installed here into a folder, but for this project: torch takes minutes to install."""
    folder.mkdir()
    for place in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        for one in Path(place).iterdir():
            if not one.name.startswith(("fedora_vfl", "__editable__")) and one.suffix != ".pth":
                (folder / one.name).symlink_to(one)
    return folder


def write_neighbour(folder: Path) -> Path:
    """Write another project, its messages compiled by protoc."""
    (folder / "protos").mkdir(parents=True)
    (folder / "pyproject.toml").write_text(NEIGHBOUR_PROJECT)
    (folder / "protos" / "__init__.py").write_text('"""Somebody else\'s."""\n')
    (folder / "protos" / "tensor.proto").write_text(NEIGHBOUR_MESSAGES)
    run(sys.executable, "-m", "grpc_tools.protoc", "-I.", "--python_out=.", "protos/tensor.proto", folder=folder)
    return folder


def fetch_hugging_face(folder: Path, lent: Path) -> tuple[Path | None, Path]:
    """Return Hugging Face's wheel and a folder with what it needs; no wheel where no index can be reached."""
    python = make_environment(folder / "lender", (lent,))
    site = site_of(folder / "lender")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--dest", str(folder), "datasets"]
    if subprocess.run([*command, "--retries", "0", "--timeout", "5"], capture_output=True).returncode:
        return None, site
    (wheel,) = folder.glob("datasets-*.whl")
    pip(python, "install", wheel)
    pip(python, "uninstall", "--yes", "datasets")
    return wheel, site


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Wheels:
    """Our wheel, built from a copy (a build leaves files in its folder), and those it has to get on with."""
    folder = tmp_path_factory.mktemp("wheels")
    source = copy_source(folder / "source")
    neighbour = write_neighbour(folder / "neighbour")
    build = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation")
    run(*build, "--wheel-dir", folder, source, neighbour, folder=folder)
    (ours,), (theirs,) = folder.glob("fedora_vfl-*.whl"), folder.glob("neighbour-*.whl")
    lent = lend(folder / "lent")
    hugging_face, needed = fetch_hugging_face(folder, lent)
    return Wheels(ours, theirs, hugging_face, (needed, lent))


@pytest.fixture(scope="module", params=["ours first", "ours last"])
def stay(request: pytest.FixtureRequest, wheels: Wheels, tmp_path_factory: pytest.TempPathFactory) -> Stay:
    """Install all wheels in one order, use them, and take ours away again."""
    folder = tmp_path_factory.mktemp("stay")
    python = make_environment(folder / "environment", wheels.needed)
    orders = {"ours first": [[wheels.ours], wheels.others], "ours last": [wheels.others, [wheels.ours]]}
    for some in orders[request.param]:
        pip(python, "install", "--no-deps", *some)
    seen = Stay(
        wheels=wheels,
        site=site_of(folder / "environment"),
        modules=[Path(line) for line in run(python, "-c", WHERE, folder=folder).splitlines()],
        figures=run_job(python.with_name("fedora"), folder),
        one_process=run(python, "-c", ONE_PROCESS, folder=folder),
        hugging_face=import_hugging_face(python, folder) if wheels.hugging_face else None,
    )
    pip(python, "uninstall", "--yes", "fedora-vfl")
    return seen


def run_job(command: Path, folder: Path) -> dict[str, float]:
    """Run a small job with the installed command."""
    data = {"source": "csv", "path": str(write_people(folder / "people.csv", rows=120)), "id": "person"}
    (folder / "job.yaml").write_text(yaml.safe_dump({"data": data, "train": {"epochs": 1}}))
    run(command, "run", "job.yaml", "--out", "result", folder=folder)
    figures: dict[str, float] = json.loads((folder / "result" / "result.json").read_text())["original"]
    return figures


def import_hugging_face(python: Path, folder: Path) -> str:
    """Import Hugging Face's package and ours of the same name, and use the former."""
    program = (
        "import datasets, fedora_vfl.datasets.cutting\n"
        "print(datasets.__file__, datasets.Features({'age': datasets.Value('int64')}))\n"
    )
    return run(python, "-c", program, folder=folder)


def content(wheel: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the files of a wheel; the list of them is written anew when it is installed."""
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if not name.endswith(".dist-info/RECORD"):
                yield name, archive.read(name)


def test_the_wheel_has_four_names_of_which_protos_is_shared_with_others(wheels: Wheels) -> None:
    names = [name for name, _ in content(wheels.ours) if ".dist-info/" not in name]
    assert sorted({name.partition("/")[0] for name in names}) == list(OURS)
    shared = [name for name in names if name.startswith("protos/")]
    assert shared and all(name.startswith("protos/fedora/") for name in shared)


def test_the_wheel_has_every_module_and_data_file_and_nothing_from_tests_or_deploy(wheels: Wheels) -> None:
    names = {name for name, _ in content(wheels.ours) if ".dist-info/" not in name}
    kept = {one for folder in OURS for one in (ROOT / folder).rglob("*") if one.is_file()}
    assert names == {str(one.relative_to(ROOT)) for one in kept if one.parent.name != "__pycache__"}
    assert not [name for name in names if re.search(r"(^|/)(tests?|deploy|conftest)(/|_|\.|$)", name)]


def test_a_job_runs_from_what_was_installed(stay: Stay) -> None:
    assert len(stay.modules) == 4
    assert all(module.is_relative_to(stay.site) for module in stay.modules)
    assert 0 < stay.figures["test_accuracy"] <= 1


def test_our_messages_and_another_package_s_are_used_in_one_process(stay: Stay) -> None:
    assert stay.one_process.split("\n")[0] == "kept [2, 3] protos/tensor.proto protos/fedora/v1/tensor.proto"


def test_hugging_face_s_datasets_is_imported_beside_ours(stay: Stay) -> None:
    if stay.hugging_face is None:
        pytest.skip("no package index can be reached to fetch Hugging Face's datasets from")
    assert stay.hugging_face.startswith(f"{stay.site / 'datasets' / '__init__.py'} ")
    assert "Value" in stay.hugging_face


def test_a_removal_leaves_every_file_of_others_as_it_was(stay: Stay) -> None:
    for wheel in stay.wheels.others:
        files = dict(content(wheel))
        assert files
        changed = [name for name, data in files.items() if (stay.site / name).read_bytes() != data]
        assert not changed, f"of {wheel.name}"


def test_a_removal_leaves_no_file_of_ours(stay: Stay) -> None:
    assert not [name for name, _ in content(stay.wheels.ours) if (stay.site / name).exists()]
    folders = ("coordinator", "fedora_vfl", "party", "protos/fedora")
    assert not [name for name in folders if (stay.site / name).exists()]
    assert not list(stay.site.glob("fedora_vfl*"))
    assert not (stay.site.parents[2] / "bin" / "fedora").exists()
