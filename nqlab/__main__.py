"""The command line: ``python -m nqlab``. Exit code 0, 1 for a failed run, 2 for bad input, 130 after Ctrl-C."""

from nqlab.cli import main

if __name__ == "__main__":
    main()
