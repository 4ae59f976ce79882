"""What public image sets promise: read from the files their authors give out, and one sentence where that fails."""

import builtins
import hashlib
import http.server
import io
import os
import pickle
import shutil
import socket
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedora_vfl.datasets import downloads, tiny_imagenet
from fedora_vfl.datasets.cutting import cut
from fedora_vfl.errors import FedoraError, SettingsError
from fedora_vfl.settings import optional_packages as extras
from party.data.records import Records
from tests.test_datasets import pixels_of, read_all, source

SIBLING = Path(__file__).parents[2] / "shared" / "data"  # packed image sets, on machines that have them
CLASSES = ["n02000000", "n01000000", "n03000000"]  # not in alphabetical order, as in the real list


def load(out: Path, *, seed: int = 0, **content: Any) -> tuple[Records, "np.ndarray[Any, Any]"]:
    """Cut a set; return the active party's records and the images, put together again."""
    records = read_all(cut(source(**content), out / "cut", seed=seed).files)
    stripes = [pixels_of(one) for one in records.values() if one.features is not None]
    return records["active"], np.concatenate(stripes, axis=2)


def refused(out: Path, **content: Any) -> str:
    """Return the sentence by which a set is refused; it is a single one, and nothing is written."""
    with pytest.raises(FedoraError) as caught:
        cut(source(**content), out / "cut", seed=0)
    assert not (out / "cut").exists()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def images(*shape: int) -> "np.ndarray[Any, np.dtype[np.uint8]]":
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def archive(path: Path, size: int, *, channels: int | None = 3, labels: int = 1) -> dict[str, Any]:
    """Write a small npz file in MedMNIST's layout."""
    tail = () if channels is None else (channels,)
    arrays: dict[str, Any] = {}
    for part, count in (("train", 6), ("val", 2), ("test", 3)):
        arrays[f"{part}_images"] = images(count, size, size, *tail)
        arrays[f"{part}_labels"] = np.arange(count * labels, dtype=np.uint8).reshape(count, labels) % 3
    np.savez(path, **arrays)
    return arrays


# Where the files lie


def test_the_folder_is_the_one_given_or_the_environment_s_or_a_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv(downloads.FOLDER, raising=False)
    assert downloads.folder_of(None) == tmp_path / ".cache" / "fedora"
    monkeypatch.setenv(downloads.FOLDER, str(tmp_path / "machine"))
    assert downloads.folder_of(None) == tmp_path / "machine"
    assert downloads.folder_of(Path("~/mine")) == tmp_path / "mine"
    (tmp_path / "file").touch()
    with pytest.raises(
        SettingsError, match=r"data.root: .*file is a file; the folder that holds the data set is needed"
    ):
        downloads.folder_of(tmp_path / "file")


# MedMNIST


@pytest.mark.parametrize("channels", [None, 3])
@pytest.mark.parametrize(("size", "name"), [(28, "organamnist.npz"), (64, "organamnist_64.npz")])
def test_a_set_of_medmnist_is_read_from_the_package_s_file(
    tmp_path: Path, channels: int | None, size: int, name: str
) -> None:
    arrays = archive(tmp_path / name, size, channels=channels)
    active, pixels = load(tmp_path, source="medmnist", name="organamnist", root=tmp_path, size=size)
    whole = np.concatenate([arrays[f"{part}_images"] for part in ("train", "val", "test")])
    np.testing.assert_array_equal(pixels, whole if channels else whole[..., np.newaxis])
    assert active.split == ["train"] * 6 + ["validation"] * 2 + ["test"] * 3
    assert active.labels == ["0", "1", "2"] * 2 + ["0", "1"] + ["0", "1", "2"]


def test_sets_of_medmnist_that_are_not_flat_images_of_one_class_are_refused(tmp_path: Path) -> None:
    where = {"source": "medmnist", "root": tmp_path}
    with pytest.raises(SettingsError, match="`name` is organmnist3d, whose images have three dimensions"):
        source(**where, name="organmnist3d")
    pytest.importorskip("medmnist")
    assert "chestmnist gives an image several labels; allowed are sets of one class" in refused(
        tmp_path, **where, name="chestmnist"
    )
    assert "'pathmnst' is not a set of MedMNIST; allowed: pathmnist, " in refused(tmp_path, **where, name="pathmnst")
    archive(tmp_path / "chestmnist.npz", 28, channels=None, labels=14)
    assert "`train_labels` gives every image 14 labels" in refused(tmp_path, **where, name="chestmnist")
    archive(tmp_path / "pathmnist.npz", 64)
    assert "pathmnist.npz: holds images of 64×64 where `data.size` is 28" in refused(
        tmp_path, **where, name="pathmnist"
    )


def test_the_name_of_a_set_cannot_lead_to_another_folder(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"data.name: String should match pattern"):
        source(source="medmnist", root=tmp_path, name="../pathmnist")


# CIFAR


def write_cifar(root: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> "np.ndarray[Any, Any]":
    """Write small files in CIFAR's layout, and have torchvision know their md5 for the time of a test."""
    module = pytest.importorskip("torchvision.datasets.cifar")
    kind = {"cifar10": module.CIFAR10, "cifar100": module.CIFAR100}[name]
    folder = root / kind.base_folder
    folder.mkdir(parents=True)
    key = "labels" if name == "cifar10" else "fine_labels"
    written: list[np.ndarray[Any, Any]] = []

    def write(file: str, content: dict[str, Any]) -> str:
        (folder / file).write_bytes(pickle.dumps(content, protocol=2))
        return hashlib.md5((folder / file).read_bytes()).hexdigest()

    def batches(listed: list[list[str]]) -> list[list[str]]:
        known = []
        for file, _ in listed:
            rows = images(3, 3072) // (len(written) + 1)  # every file another content
            written.append(rows)
            known.append([file, write(file, {"data": rows, key: [len(written) % 4, 1, 0], "coarse_labels": [9] * 3})])
        return known

    monkeypatch.setattr(kind, "train_list", batches(kind.train_list))
    monkeypatch.setattr(kind, "test_list", batches(kind.test_list))
    meta = write(kind.meta["filename"], {kind.meta["key"]: ["a", "b", "c", "d"]})
    monkeypatch.setattr(kind, "meta", {**kind.meta, "md5": meta})
    # The files hold red, green and blue planes one after the other.
    return np.concatenate(written).reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)


@pytest.mark.parametrize(("name", "train"), [("cifar10", 15), ("cifar100", 3)])
def test_cifar_is_read_from_its_authors_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, train: int
) -> None:
    whole = write_cifar(tmp_path, name, monkeypatch)
    active, pixels = load(tmp_path, source=name, root=tmp_path)
    np.testing.assert_array_equal(pixels, whole)
    assert active.split == ["train"] * train + ["test"] * 3
    assert active.labels is not None
    assert active.labels[:3] == ["1", "1", "0"]
    assert [active.ids[0], active.ids[-1]] == ["train-000001", "test-000003"]


def test_cifar_files_of_another_content_are_never_unpickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Trap:
        def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
            return os.mkdir, (str(tmp_path / "sprung"),)

    write_cifar(tmp_path, "cifar10", monkeypatch)
    folder = tmp_path / "cifar-10-batches-py"
    for name in ("data_batch_3", "batches.meta"):
        kept = (folder / name).read_bytes()
        (folder / name).write_bytes(pickle.dumps(Trap()))
        said = refused(tmp_path, source="cifar10", root=tmp_path)
        assert f"{name}: is not the original file (its md5 differs); remove the folder to have it downloaded" in said
        (folder / name).write_bytes(kept)
    assert not (tmp_path / "sprung").exists()
    (folder / "test_batch").unlink()
    assert "cifar-10-batches-py: lacks the file test_batch; " in refused(tmp_path, source="cifar10", root=tmp_path)


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "tiny-imagenet"])
def test_an_npz_file_in_the_folder_does_as_well(tmp_path: Path, name: str) -> None:
    arrays = archive(tmp_path / f"{name}.npz", 32)
    active, pixels = load(tmp_path, source=name, root=tmp_path, limit=4)
    assert active.split == ["train"] * 4 + ["validation"] * 2 + ["test"] * 3
    np.testing.assert_array_equal(pixels[4:6], arrays["val_images"])


# Tiny ImageNet


def jpeg(path: Path, *, grey: bool = False, size: tuple[int, int] = (64, 64), seed: int = 0) -> None:
    image = pytest.importorskip("PIL.Image")
    shade = np.random.default_rng(seed).integers(0, 256, 3)
    pixels = np.broadcast_to(shade.astype(np.uint8), (size[1], size[0], 3))
    path.parent.mkdir(parents=True, exist_ok=True)
    picture = image.fromarray(np.ascontiguousarray(pixels))
    (picture.convert("L") if grey else picture).save(path, "JPEG", quality=95)


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """Write a small folder in Tiny ImageNet's layout; one training and one validation image are grey."""
    folder = tmp_path / "tiny-imagenet-200"
    for number, name in enumerate(CLASSES):
        for image in (0, 2, 10, 1):
            jpeg(folder / "train" / name / "images" / f"{name}_{image}.JPEG", grey=image == 2, seed=10 * number + image)
    lines = []
    for image, name in enumerate([CLASSES[2], CLASSES[0]]):
        jpeg(folder / "val" / "images" / f"val_{image}.JPEG", grey=image == 1, seed=100 + image)
        lines.append(f"val_{image}.JPEG\t{name}\t0\t0\t62\t62\n")
    (folder / "val" / "val_annotations.txt").write_text("".join(lines))
    (folder / "wnids.txt").write_text("\n".join(CLASSES) + "\n")
    return folder


def test_tiny_imagenet_is_read_from_its_folder(tmp_path: Path, tiny: Path) -> None:
    active, pixels = load(tmp_path, source="tiny-imagenet", root=tmp_path)
    numbers = [0, 1, 2, 10]
    assert active.ids == [*(f"{name}_{number}" for name in CLASSES for number in numbers), "val_0", "val_1"]
    assert active.labels == ["0"] * 4 + ["1"] * 4 + ["2"] * 4 + ["2", "0"]
    assert active.split == ["train"] * 12 + ["test"] * 2
    assert pixels.shape == (14, 64, 64, 3)
    shades = [
        np.random.default_rng(10 * number + image).integers(0, 256, 3) for number in range(3) for image in numbers
    ]
    coloured = [row for row in range(12) if numbers[row % 4] != 2]
    assert np.abs(pixels[coloured, 30, 30].astype(int) - np.array(shades)[coloured]).max() <= 4  # JPEG is lossy
    for row in (2, 13):
        assert (pixels[row] == pixels[row][..., :1]).all(), "a grey image is grey in all three channels"


def test_only_the_training_images_that_are_drawn_are_decoded(tmp_path: Path, tiny: Path) -> None:
    everything, all_pixels = load(tmp_path, source="tiny-imagenet", root=tmp_path)
    shutil.rmtree(tmp_path / "cut")
    drawn, pixels = load(tmp_path, source="tiny-imagenet", root=tmp_path, limit=5, seed=3)
    assert drawn.split == ["train"] * 5 + ["test"] * 2
    rows = [everything.ids.index(one) for one in drawn.ids]
    np.testing.assert_array_equal(pixels, all_pixels[rows])
    for path in (tiny / "train").rglob("*.JPEG"):
        if path.stem not in drawn.ids:
            path.write_bytes(b"not an image")
    shutil.rmtree(tmp_path / "cut")
    assert load(tmp_path, source="tiny-imagenet", root=tmp_path, limit=5, seed=3)[0].ids == drawn.ids


def no_classes(folder: Path) -> None:
    (folder / "wnids.txt").unlink()


def empty_classes(folder: Path) -> None:
    (folder / "wnids.txt").write_text("\n")


def broken_text(folder: Path) -> None:
    (folder / "wnids.txt").write_bytes(b"\xff\xfe\x00")


def broken_image(folder: Path) -> None:
    path = folder / "train" / CLASSES[1] / "images" / f"{CLASSES[1]}_2.JPEG"
    path.write_bytes(path.read_bytes()[:300])


def another_format(folder: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    content = io.BytesIO()
    image.new("RGB", (64, 64)).save(content, "PNG")
    (folder / "val" / "images" / "val_1.JPEG").write_bytes(content.getvalue())


def another_size(folder: Path) -> None:
    jpeg(folder / "val" / "images" / "val_0.JPEG", size=(48, 64))


def no_images(folder: Path) -> None:
    shutil.rmtree(folder / "train" / CLASSES[2])


def no_annotations(folder: Path) -> None:
    (folder / "val" / "val_annotations.txt").unlink()


def annotation_without_image(folder: Path) -> None:
    (folder / "val" / "images" / "val_1.JPEG").unlink()


def annotation_of_an_unknown_class(folder: Path) -> None:
    (folder / "val" / "val_annotations.txt").write_text("val_0.JPEG\tn09999999\t0\t0\t1\t1\n")


def annotation_without_class(folder: Path) -> None:
    (folder / "val" / "val_annotations.txt").write_text(f"val_0.JPEG\t{CLASSES[0]}\nval_1.JPEG\n")


def annotation_that_leads_out(folder: Path) -> None:
    (folder / "val" / "val_annotations.txt").write_text(f"../../wnids.txt\t{CLASSES[0]}\n")


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (no_classes, "wnids.txt: cannot be read: No such file or directory; is tiny-imagenet-200 unpacked as a whole?"),
        (empty_classes, "wnids.txt: is empty"),
        (broken_text, "wnids.txt: is not UTF-8 text"),
        (broken_image, "n01000000_2.JPEG: is not a JPEG file that can be decoded"),
        (another_format, "val_1.JPEG: is not a JPEG file that can be decoded"),
        (another_size, "val_0.JPEG: has 64×48 pixels where all should have 64×64"),
        (no_images, "images: holds no JPEG files of the class n03000000, which"),
        (no_annotations, "val_annotations.txt: cannot be read: No such file or directory"),
        (annotation_without_image, "val_1.JPEG: is missing, though line 2 of"),
        (annotation_of_an_unknown_class, "line 1 should name an image and one of the classes in wnids.txt"),
        (annotation_without_class, "line 2 should name an image and one of the classes in wnids.txt"),
        (annotation_that_leads_out, "wnids.txt: is missing, though line 1 of"),
    ],
)
def test_a_malformed_folder_gives_one_sentence(
    tmp_path: Path, tiny: Path, spoil: Callable[[Path], None], sentence: str
) -> None:
    spoil(tiny)
    assert sentence in refused(tmp_path, source="tiny-imagenet", root=tmp_path)


# Downloads


class Server(http.server.ThreadingHTTPServer):
    """A server for one file; without one it accepts connections and says nothing."""

    content: bytes | None = None
    over = threading.Event()


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers any request with the server's content."""

    server: Server

    def do_GET(self) -> None:
        """Send the content, or nothing until the test is over."""
        if self.server.content is None:
            self.server.over.wait()
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.server.content)))
        self.end_headers()
        self.wfile.write(self.server.content)

    def log_message(self, format: str, *args: object) -> None:
        """Keep quiet."""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Handler) as running:
        running.over = threading.Event()
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield running
        running.over.set()
        running.shutdown()
        thread.join()


@pytest.fixture
def offered(server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    """Have Tiny ImageNet looked for at the server."""
    pytest.importorskip("torchvision")
    monkeypatch.setattr(tiny_imagenet, "URL", f"http://127.0.0.1:{server.server_port}/tiny-imagenet-200.zip")
    return server


def zipped(folder: Path) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as file:
        for path in sorted(folder.rglob("*")):
            file.write(path, path.relative_to(folder.parent))
    return content.getvalue()


def test_a_missing_set_is_downloaded_once_and_whole(
    tmp_path: Path, tiny: Path, offered: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    offered.content = zipped(tiny)
    monkeypatch.setattr(tiny_imagenet, "MD5", hashlib.md5(offered.content).hexdigest())
    root = tmp_path / "new" / "root"
    active, _ = load(tmp_path, source="tiny-imagenet", root=root)
    assert len(active.ids) == 14
    assert [path.name for path in root.iterdir()] == ["tiny-imagenet-200"], "neither the archive nor a scratch folder"
    offered.content = b"gone"
    shutil.rmtree(tmp_path / "cut")
    assert load(tmp_path, source="tiny-imagenet", root=root)[0].ids == active.ids


def test_a_damaged_download_leaves_nothing_behind(tmp_path: Path, offered: Server) -> None:
    offered.content = b"PK not the archive"
    said = refused(tmp_path, source="tiny-imagenet", root=tmp_path / "root")
    assert "tiny-imagenet-200: is not there, nor is tiny-imagenet.npz beside it, and the download failed (" in said
    assert "corrupted" in said
    assert not list((tmp_path / "root").iterdir())


def test_a_download_that_hangs_has_a_deadline(tmp_path: Path, offered: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "SILENCE_SECONDS", 0.2)
    before = socket.getdefaulttimeout()
    assert "(the server said nothing for 0 seconds)" in refused(
        tmp_path, source="tiny-imagenet", root=tmp_path / "root"
    )
    assert socket.getdefaulttimeout() == before
    assert not list((tmp_path / "root").iterdir())


@pytest.mark.parametrize(
    ("content", "file", "instead"),
    [
        ({"source": "cifar10"}, "cifar-10-batches-py", "cifar10.npz"),
        ({"source": "cifar100"}, "cifar-100-python", "cifar100.npz"),
        ({"source": "medmnist", "name": "pathmnist"}, "pathmnist.npz", None),
        ({"source": "tiny-imagenet"}, "tiny-imagenet-200", "tiny-imagenet.npz"),
    ],
)
@pytest.mark.parametrize("allowed", [True, False])
def test_a_set_that_is_neither_there_nor_to_be_had_gives_one_sentence(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    content: dict[str, Any],
    file: str,
    instead: str | None,
    allowed: bool,
) -> None:
    pytest.importorskip("torchvision")
    pytest.importorskip("medmnist")

    def no_network(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", no_network)
    said = refused(tmp_path, **content, root=tmp_path / "root", download=allowed)
    beside = f", nor is {instead} beside it" if instead else ""
    assert said.startswith(f"{tmp_path / 'root' / file}: is not there{beside}, and ")
    assert ("the download failed (Name or service not known)" if allowed else "`download` is off") in said
    assert "put it there by hand, from http" in said
    assert "or set `data.root` to the folder that holds it" in said


# Packages that may be missing


@pytest.mark.parametrize(
    ("content", "package"),
    [
        ({"source": "cifar10"}, "torchvision"),
        ({"source": "medmnist", "name": "pathmnist"}, "medmnist"),
        ({"source": "tiny-imagenet"}, "torchvision"),
    ],
)
def test_a_missing_package_is_named_with_the_command_that_brings_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: dict[str, Any], package: str
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        SettingsError, match=rf"{content['source']} needs {package}: pip install 'fedora-vfl\[vision\]'"
    ):
        cut(source(**content, root=tmp_path), tmp_path / "cut", seed=0)


def test_neither_package_is_needed_for_files_that_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        assert name.partition(".")[0] not in ("torchvision", "medmnist")
        return real(name, *rest)

    archive(tmp_path / "cifar10.npz", 32)
    archive(tmp_path / "pathmnist.npz", 28)
    monkeypatch.setattr(builtins, "__import__", without)
    monkeypatch.setattr(extras, "import_module", without)
    load(tmp_path, source="cifar10", root=tmp_path)
    load(tmp_path, source="medmnist", name="pathmnist", root=tmp_path)


# The real ones


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function that finds the folder of a real npz file."""

    def find(name: str) -> Path:
        given = os.environ.get(downloads.FOLDER)
        if given and (Path(given) / f"{name}.npz").exists():
            return Path(given)
        if not (SIBLING / name).is_dir():
            pytest.skip(f"needs {name}.npz in the folder that {downloads.FOLDER} names")
        folder = tmp_path_factory.mktemp(name)
        subprocess.run([sys.executable, SIBLING / "unpack.py", name, folder], check=True, capture_output=True)
        return folder

    return find


def test_pathmnist_itself_is_read(tmp_path: Path, real: Callable[[str], Path]) -> None:
    active, pixels = load(tmp_path, source="medmnist", name="pathmnist", root=real("pathmnist"), limit=500)
    assert pixels.shape[1:] == (28, 28, 3)
    assert active.labels is not None
    assert set(active.labels) == {str(number) for number in range(9)}
    assert active.split is not None
    assert active.split.count("train") == 500


def test_cifar10_itself_is_read(tmp_path: Path, real: Callable[[str], Path]) -> None:
    active, pixels = load(tmp_path, source="cifar10", root=real("cifar10"), limit=500)
    assert pixels.shape == (10500, 32, 32, 3)
    assert active.labels is not None
    assert active.labels[500:510] == list("3880661631"), "a cat, two ships, an aeroplane, …"
    assert [active.labels[500:].count(str(number)) for number in range(10)] == [1000] * 10
