"""Fuzzing that follows coverage, with atheris (the extra `fuzz`): it keeps inputs that reach new lines and goes on from
them.
"""

import gc
from pathlib import Path
from types import FunctionType

import atheris

from tests.fuzzing.mutation import CORPUS
from tests.fuzzing.targets import LARGEST, TARGETS, attempt

OWN = ("coordinator.", "fedora_vfl.", "party.")
MOST_MEMORY_MB = 2048  # of the whole process; torch alone takes a fifth of it


def fuzz_guided(name: str, *, seconds: float, seed: int, found: Path) -> None:
    """Fuzz one target for some time and end the process, as atheris does; what is found is kept in a folder."""
    for one in gc.get_objects():
        if isinstance(one, FunctionType) and (one.__module__ or "").startswith(OWN):
            atheris.instrument_func(one)
    found.mkdir(parents=True, exist_ok=True)
    options = [
        f"-max_total_time={int(seconds)}",
        f"-seed={seed + 1}",  # 0 would be a seed of its own choice
        f"-max_len={LARGEST}",
        f"-rss_limit_mb={MOST_MEMORY_MB}",
        f"-artifact_prefix={found.parent}/{name}-",
        "-print_final_stats=1",
    ]
    if TARGETS[name].pieces:  # libFuzzer ends at once where its dictionary is empty
        pieces = found.parent / f"{name}.pieces"
        pieces.write_text("".join(f'"{_escaped(piece)}"\n' for piece in TARGETS[name].pieces))
        options.append(f"-dict={pieces}")

    def read(data: bytes) -> None:
        attempt(name, data)

    atheris.Setup(["fuzzing", *options, str(found), str(CORPUS / TARGETS[name].corpus)], read)
    atheris.Fuzz()


def _escaped(piece: bytes) -> str:
    return "".join(f"\\x{one:02x}" for one in piece)
