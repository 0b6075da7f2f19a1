"""`python -m langchain_runjournal`: the same as the command `runjournal`."""

from .cli import main

if __name__ == "__main__":
    main()
