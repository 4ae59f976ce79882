"""What the measurement of private alignment promises: bytes as predicted, and nobody kept waiting meanwhile."""

import asyncio
from dataclasses import replace

from fedora_vfl.bench.alignment import COLUMNS, as_page, measure


def test_real_processes_align_in_the_bytes_predicted_and_their_event_loops_go_on() -> None:
    point = asyncio.run(measure(500, 1))
    assert point.predicted_bytes < point.protobuf_bytes < 1.02 * point.predicted_bytes
    assert point.longest_pause < 1.0  # within which health checks are answered
    assert set(point.memory_bytes) == {"active", "passive-1"}
    point = replace(point, load=0.0)
    page = as_page([point, replace(point, ids=6000)])
    assert "The machine was busy" not in page
    assert "`fedora bench alignment --ids 500 --ids 6000 --passive 1`" in page
    assert "The machine was busy" in as_page([replace(point, load=1000.0)])
    lines = [line for line in page.splitlines() if line.startswith("| ")]
    assert len(lines) == 4 and all(line.count(" | ") == len(COLUMNS) - 1 for line in lines)
