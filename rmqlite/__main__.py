"""python -m rmqlite: the command line."""

from rmqlite.cli.main import main

if __name__ == "__main__":
    main()
