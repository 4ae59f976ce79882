"""The largest that a job may ask for, each with its reason: what lies above would fail deep inside, or never end."""

from typing import Annotated

from pydantic import Field

# Each round is a line of result.json, and a job must end.
MOST_ROUNDS = 100_000
Rounds = Annotated[int, Field(gt=0, le=MOST_ROUNDS)]
RoundsOrNone = Annotated[int, Field(ge=0, le=MOST_ROUNDS)]

# A batch is one message between parties. Its size also depends on the embedding's width; see MOST_BATCH_VALUES.
BatchSize = Annotated[int, Field(gt=0, le=1_048_576)]

# As float32 64 MiB: half of the largest message, and a receiver may have to hold four of them.
MOST_BATCH_VALUES = 16 * 1024 * 1024
Embedding = Annotated[int, Field(gt=0, le=16_384)]

# Two layers of this width next to each other are a gigabyte.
Layer = Annotated[int, Field(gt=0, le=16_384)]
# A gigabyte of float32, of which training holds about five: gradients, moments, copies to go back to.
MOST_PARAMETERS = 268_435_456
