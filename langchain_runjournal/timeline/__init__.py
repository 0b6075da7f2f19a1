"""One fold of a run for eyes, without any markup. Pure.

Imports `messages` and `events`."""
