"""What a process does with memory that batches pass through: it keeps it."""

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource
from fedora_vfl.process.memory import keep_freed_memory

keep_freed_memory()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for size in (2, 3, 4, 6, 20):
    one, other = bytearray(size << 20), bytearray(size << 20)
    del one, other
before = faults()
for _ in range(10):
    for size in (2, 3, 4, 6, 20):
        one, other = bytearray(size << 20), bytearray(size << 20)
        del one, other
print(faults() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc's malloc can be told")
def test_blocks_of_the_size_of_batches_are_used_again() -> None:
    told = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert int(told.stdout) < 2000  # of 179,200 pages that were asked for
