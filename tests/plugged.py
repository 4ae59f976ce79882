"""A member that loads a file of a user's own first: python -m tests.plugged FILE.py MODULE --config …"""

import importlib
import runpy
import sys

if __name__ == "__main__":
    file, module = sys.argv[1:3]
    del sys.argv[1:3]
    runpy.run_path(file)
    sys.exit(importlib.import_module(f"{module}.__main__").main())
