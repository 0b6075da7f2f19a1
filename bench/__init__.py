"""The figures that the design promises, measured side by side in one run: see ``python -m bench --help``."""
