"""A user as a process of its own: submits the job of a file, follows it, and keeps what it leaves.

    python -m fedora_vfl.bench.faults.user HOST:PORT FILE FOLDER SECONDS ID

With an ID it follows a job that was submitted before, else the ID is empty. A line of standard output is an event that
is kept: the time, and what it was. It is a process because the coordinator may be on a host of its own, which this one
is started on.
"""

import sys
import time
from pathlib import Path

from fedora_vfl.cluster.runs import keep
from fedora_vfl.cluster.submission import RemoteJobs
from fedora_vfl.process.lifecycle import run_until_done
from fedora_vfl.settings.federation import Deadlines
from protos.fedora.v1.control_pb2 import Event


def told(event: Event) -> None:
    """Say what has happened, and when."""
    if event.number:
        content = event.WhichOneof("content")
        said = f"{event.finished.name} {event.finished.round}" if content == "finished" else event.note
        print(f"{time.time():.3f} {content} {said}", flush=True)


async def work(address: str, job: str, folder: Path, patience: float, id: str) -> None:
    """Submit and follow."""
    async with RemoteJobs(address, deadlines=Deadlines(join=patience)) as jobs:
        id = id or (await jobs.submit(job, origin="job.yaml")).id
        print(f"{time.time():.3f} submitted {id}", flush=True)
        keep(await jobs.follow(id, told, patience=patience), folder)


if __name__ == "__main__":
    address, file, folder, patience, id = sys.argv[1:]
    sys.exit(run_until_done(work(address, Path(file).read_text(encoding="utf-8"), Path(folder), float(patience), id)))
