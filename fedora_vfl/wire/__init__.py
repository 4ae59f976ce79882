"""How messages travel."""

import os

# gRPC's C core writes lines of its own to standard error, about connections that end, beside those a user should read.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
