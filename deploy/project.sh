#!/bin/sh
# Install the project itself, without the packages it needs, into /opt/project. The Dockerfile runs this.
set -eu
/build/tools/bin/pip wheel --quiet --no-build-isolation --no-deps --wheel-dir wheels .
/build/tools/bin/pip install --quiet --no-index --no-deps --no-compile --target /opt/project wheels/fedora_vfl-*.whl
# Scripts name the Python that installed them, which stays behind.
sed -i '1s|.*|#!/opt/fedora/bin/python|' /opt/project/bin/*
python3 -m compileall -q --invalidation-mode unchecked-hash /opt/project
find /opt/project -exec touch --no-dereference --date "@$SOURCE_DATE_EPOCH" {} +
