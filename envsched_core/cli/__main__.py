"""`python -m envsched_core.cli` is `envsched`."""

from . import main

main()
