"""Fuzz one reader or one service for a while.

python -m tests.fuzzing --target certificates --seconds 600 [--seed N] [--found FOLDER]
python -m tests.fuzzing --service exchange --seconds 600 [--tls] [--seed N]
python -m tests.fuzzing --hostile passive-1 --seconds 600 [--seed N] [--alignment private]
"""

import argparse
import asyncio
import importlib.util
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.fuzzing.laying_out import for_jobs, laid_out
from tests.fuzzing.running import MEMBERS, attack
from tests.fuzzing.services import GROWTH_BYTES, SERVICES, fuzz, fuzz_party
from tests.fuzzing.targets import TARGETS, try_mutations
from tests.stalls import STALL_SECONDS


def main() -> None:
    """Read the options, fuzz, and say what came of it."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m tests.fuzzing", description=__doc__, formatter_class=form)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--target", choices=TARGETS, help="a reader, without processes; by coverage if there is atheris")
    what.add_argument("--service", choices=[*SERVICES, "party"], help="a member that runs")
    what.add_argument("--hostile", choices=MEMBERS, help="a member that changes its messages in jobs that run")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tls", action="store_true", help="show a member's certificate (not with party)")
    parser.add_argument("--alignment", choices=("plain", "private"), default="plain", help="of jobs that run")
    parser.add_argument("--found", type=Path, default=Path("fuzzing"), help="folder for inputs that atheris keeps")
    asked = parser.parse_args()
    if asked.target:
        fuzz_target(asked.target, seconds=asked.seconds, seed=asked.seed, found=asked.found / asked.target)
    elif asked.hostile:
        attack_jobs(asked.hostile, seconds=asked.seconds, seed=asked.seed, alignment=asked.alignment)
    else:
        fuzz_service(asked.service, seconds=asked.seconds, seed=asked.seed, tls=asked.tls)


def fuzz_target(name: str, *, seconds: float, seed: int, found: Path) -> None:
    """Fuzz a reader, by coverage where that is possible."""
    if importlib.util.find_spec("atheris"):
        from tests.fuzzing.guided import fuzz_guided

        fuzz_guided(name, seconds=seconds, seed=seed, found=found)
    else:
        count = try_mutations(name, seed=seed, seconds=seconds)
        print(f"{count} inputs to {name}, which kept its promises (without coverage: atheris is not installed)")


def attack_jobs(hostile: str, *, seconds: float, seed: int, alignment: str) -> None:
    """Run jobs with a hostile member."""
    with tempfile.TemporaryDirectory() as folder:
        federation = for_jobs(Path(folder), alignment=alignment)
        found = asyncio.run(attack(Path(folder) / "run", federation, hostile, seconds=seconds, seed=seed))
    for sentence, times in Counter(found.failures).most_common():
        print(f"{times:5} × {sentence}")
    waits = f"longest wait {found.longest_wait:.2f} s, in {found.longest_stall:.2f} s of which the member worked"
    print(f"{found.finished} jobs finished, {len(found.failures)} failed; {waits}")
    print(f"growth in bytes: {found.growth}; the same result afterwards: {found.same_result}")
    same = [] if found.same_result else ["the result is another than before"]
    _judge([*found.misplaced, *found.unforeseen, *same], found.longest_stall, max(found.growth.values()))


def fuzz_service(name: str, *, seconds: float, seed: int, tls: bool) -> None:
    """Fuzz a member that runs."""
    with tempfile.TemporaryDirectory() as folder:
        federation = laid_out(Path(folder), seconds=seconds, tls=tls)
        out = Path(folder) / "run"
        if name == "party":
            count = asyncio.run(fuzz_party(out, "passive-1", seconds=seconds, seed=seed))
            print(f"{count} messages to a party, which failed only as foreseen")
            return
        outcome = asyncio.run(fuzz(name, out, federation, seconds=seconds, seed=seed, tls=tls))
    print(outcome)
    _judge(outcome.unforeseen, outcome.longest_stall, outcome.growth)


def _judge(wrong: list[str], stalled: float, growth: int) -> None:
    """End with a code of its own if a member did what none may."""
    if stalled >= STALL_SECONDS:
        wrong = [*wrong, f"a member kept others waiting for {stalled:.1f} s"]
    if growth >= GROWTH_BYTES:
        wrong = [*wrong, f"a member grew by {growth} bytes"]
    for one in wrong:
        print(f"WRONG: {one}")
    if wrong:
        sys.exit(1)


if __name__ == "__main__":
    main()
