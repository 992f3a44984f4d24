"""`python -m envsched_core.cli` is `envsched`."""

from . import main

if __name__ == "__main__":  # worker processes import this module too
    main()
