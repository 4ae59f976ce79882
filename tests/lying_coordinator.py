"""A coordinator that asks parties to sign what is not so: python -m tests.lying_coordinator --config FEDERATION.yaml"""

import sys
from typing import Any

from coordinator.__main__ import main
from coordinator.job_runner import Forgotten, JobRunner
from coordinator.methods import UnlearningTask
from fedora_vfl.certificates.joint import Asked, JointStatement

# By what they are about, changes to parts of the joint statement; the job's seed tells which of them is made.
UNTRUE: dict[str, dict[str, Any]] = {
    "method": {"method": {"name": "retrain", "settings": {"method": "retrain"}, "goal": None}},
    "dual": {"method": {"dual": "parameterwise"}},
    "settings": {"method": {"settings": {"method": "fedora", "omega": 7.0}}},
    "rounds": {"method": {"rounds": 1000}},
    "phases": {"phases": {"unlearning": 1000}},
    "time": {"time": "2020-02-02T02:02:02Z"},
    "rows": {"request": {"rows": 19}},
    "commitment": {"request": {"commitment": "ab" * 32}},
    "asked": {"request": {"asked": "ab" * 32}},
    "parties": {"parties": {"passive": ["passive-1"]}},
    "models": {"models": {"before": "before-0"}},
}


def lie() -> None:
    """Change the joint statement of every job."""
    honest = JobRunner._joint

    def wrong(self: JobRunner, asked: Asked, task: UnlearningTask, forgotten: Forgotten) -> JointStatement:
        said = honest(self, asked, task, forgotten).model_dump()
        for name, change in list(UNTRUE.values())[self._job.seed].items():
            said[name] = said[name] | change if isinstance(change, dict) else change
        return JointStatement.model_validate(said)

    JobRunner._joint = wrong  # type: ignore[method-assign]


if __name__ == "__main__":
    lie()
    sys.exit(main())
