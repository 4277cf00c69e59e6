"""`python -m draftmux`, and so `torchrun -m draftmux`: the command line."""

from __future__ import annotations

from draftmux.cli.main import main

if __name__ == "__main__":
    main(prog_name="draftmux")
