#!/bin/sh
# Install what the project needs, at the versions of constraints.txt, into /opt/fedora. The Dockerfile runs this.
set -eu

list() {
    python3 - <<'PYTHON'
import os
import sys
import tomllib
from pathlib import Path

project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
known = project["optional-dependencies"]
extras = os.environ.get("EXTRAS", "").replace(",", " ").split()
for name in extras:
    if name not in known:
        sys.exit(f"error: EXTRAS: there is no extra {name!r}; known: {', '.join(sorted(known))}")
print(*project["dependencies"], *(one for name in extras for one in known[name]), sep="\n")
PYTHON
}

install() {
    /build/tools/bin/pip install --quiet "$@" 'setuptools>=77' &&
        /opt/fedora/bin/pip install --quiet --no-compile "$@" --requirement requirements.txt
}

list > requirements.txt
python3 -m venv /build/tools
python3 -m venv /opt/fedora
if ! install --constraint constraints.txt; then
    if [ -z "${PIP_NO_INDEX:-}" ]; then
        echo 'error: the packages of deploy/constraints.txt cannot be installed; pip says above which, or that an' \
            'index cannot be reached (PIP_INDEX_URL and PIP_EXTRA_INDEX_URL name others)' >&2
        exit 1
    fi
    # A base image that has its own wheels, and no index to ask, has settled the versions.
    echo 'note: the wheels in the base image are not those of deploy/constraints.txt; their versions are taken' >&2
    install
fi

/opt/fedora/bin/pip uninstall --quiet --yes pip
packages=$(/opt/fedora/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
echo /opt/project > "$packages/project.pth"
# Headers, libraries to compile against and the packages' own tests: a sixth of the whole, and of no use here.
rm -rf "$packages/torch/include" "$packages/torch/test" "$packages/pyarrow/include"
find "$packages/torch/bin" -type f ! -name torch_shm_manager -delete
find "$packages" -type d -name tests -prune -exec rm -rf {} +
find "$packages" -name '*.a' -delete
# Compiled now, as containers may not write here; checked by nobody later, as nothing changes any more.
# torch.testing holds a file for a later Python.
python3 -m compileall -q -j 0 -x torch/testing/_internal --invalidation-mode unchecked-hash "$packages"
find /opt/fedora -exec touch --no-dereference --date "@$SOURCE_DATE_EPOCH" {} +
