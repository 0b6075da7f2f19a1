"""One module for each command of `runjournal`."""
