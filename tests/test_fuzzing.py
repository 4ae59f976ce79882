"""What messages that nobody should send cannot do: end a member, keep it from answering, or fill its memory.

`python -m tests.fuzzing --service exchange --seconds 600` does the same for longer.
"""

import asyncio
from pathlib import Path

import pytest

from tests.fuzzing.laying_out import laid_out
from tests.fuzzing.mutation import mutated
from tests.fuzzing.services import GROWTH_BYTES, SERVICES, STALL_SECONDS, fuzz, fuzz_party

SECONDS = 3.0


@pytest.mark.parametrize("tls", [False, True], ids=["plaintext", "certificate"])
@pytest.mark.parametrize("service", SERVICES)
def test_a_member_answers_whatever_it_is_sent(service: str, tls: bool, tmp_path: Path) -> None:
    federation = laid_out(tmp_path, seconds=SECONDS, tls=tls)
    outcome = asyncio.run(fuzz(service, tmp_path / "run", federation, seconds=SECONDS, seed=1, tls=tls))
    assert outcome.messages > 20
    assert outcome.longest_wait < STALL_SECONDS
    assert outcome.growth < GROWTH_BYTES


def test_a_party_fails_only_as_foreseen_whatever_its_coordinator_sends(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    laid_out(tmp_path, seconds=SECONDS, tls=False)
    assert asyncio.run(fuzz_party(tmp_path / "run", "passive-1", seconds=SECONDS, seed=1)) > 5
    assert "Traceback" not in caplog.text and "unexpected" not in caplog.text


def test_the_same_seed_makes_the_same_messages() -> None:
    first, second = mutated("exchange", 3), mutated("exchange", 3)
    assert [next(first) for _ in range(50)] == [next(second) for _ in range(50)]
