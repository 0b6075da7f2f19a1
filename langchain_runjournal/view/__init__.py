"""A run as HTML: a whole page that needs no other file, or a fragment for a notebook. Pure.

What a run holds is shown as text and never executed: the page has no script, and its policy forbids scripts. `page` builds
both from the `Timeline` of a run; `chart` and `chart_rows` draw it, `picture` draws it as an image, `conversation` and
`calls` show what was said and called, `anchors` links them, `texts` folds what is long, `phrases` has the words, `elements`
escapes every text.
"""

from .page import bundle, fragment, page, summary, svg

__all__ = ["bundle", "fragment", "page", "summary", "svg"]
