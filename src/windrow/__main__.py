"""``python -m windrow``: the command."""

from windrow.cli.main import main

if __name__ == "__main__":
    main()
