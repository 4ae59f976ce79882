from dataclasses import dataclass
from pathlib import Path
from rich.console import Console
@dataclass(frozen=True)
class Material:
    extent: object
    results: object
    command: str
def write_report(m: Material, p: Path) -> None: ...
def print_tables(m: Material, c: Console) -> None: ...
