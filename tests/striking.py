"""A member that strikes itself at named instants: python -m tests.striking ROLE FOLDER BLOW PLACES --config FILE

ROLE is `coordinator` or `party`. PLACES is JSON, `{"commit.after": 4}`: the fourth time that a process of this member
reaches that instant, once in all its processes, which a file in FOLDER remembers. BLOW is `kill`, `stop` or `full`: a
disk.
"""

import json
import os
import signal
import sys
from pathlib import Path

from fedora_vfl import fault_points

SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}


def install(folder: Path, blow: str, places: dict[str, int]) -> None:
    """Strike at these places."""
    seen = dict.fromkeys(places, 0)

    def strike(name: str) -> None:
        if name not in places:
            return
        seen[name] += 1
        if seen[name] >= places[name] and not (folder / name).exists():
            (folder / name).touch()
            if blow in SIGNALS:
                os.kill(os.getpid(), SIGNALS[blow])
                return
            raise OSError(28, "No space left on device", "the disk")

    fault_points.strike = strike


if __name__ == "__main__":
    role, folder, blow, places = (sys.argv.pop(1) for _ in range(4))
    install(Path(folder), blow, json.loads(places))
    if role == "coordinator":
        from coordinator.__main__ import main
    else:
        from party.__main__ import main
    sys.exit(main())
