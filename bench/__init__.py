"""The figures that the design promises, measured side by side in one run: ``python -m bench --help``."""
