"""`python -m qualgate` is the command `qualgate`."""

from qualgate.cli import main

if __name__ == "__main__":
    main()
