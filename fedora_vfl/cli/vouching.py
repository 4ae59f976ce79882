"""Options by which a user vouches for the keys that a certificate is signed with."""

from pathlib import Path
from typing import Annotated

import typer

FederationOption = Annotated[
    Path | None, typer.Option(help="Your own federation file, whose `keys` say which key is whose.", metavar="FILE")
]
TrustedKeysOption = Annotated[
    Path | None, typer.Option(help="A file of yours with `keys`, as in a federation file.", metavar="FILE")
]
TrustOption = Annotated[
    list[str] | None, typer.Option(help="A member's key; once for each member.", metavar="NAME=KEY")
]
