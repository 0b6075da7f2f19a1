"""A run as HTML: a whole page that needs no other file, or a fragment for a notebook. Pure.

What a run holds is shown as text and never executed: the page has no script, and its policy forbids scripts. `page` builds
both from the `Timeline` of a run; `chart` draws it, `conversation` shows messages and calls, `phrases` has the words,
`elements` escapes every text.
"""

from .page import fragment, page, summary

__all__ = ["fragment", "page", "summary"]
