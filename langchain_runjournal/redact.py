"""What a journal must not keep: `RunJournal(url, redact=patterns(["email", "sk-[a-z]{20}"]))`.

Rule: a redaction sees text before anything is written, and what it returns is written instead. Text of a model comes in
pieces, so a secret may be cut in two: of a text that can still grow, a redaction holds back what could be the beginning of
a secret, and gets it again, with what follows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from .errors import InvalidArgument, UnknownOption

__all__ = ["Held", "Pattern", "Redact", "Text", "patterns"]

LONGEST: Final = 256
BEFORE: Final = 256
"""Characters of a text that a redaction sees again as `Text.before`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """One text of an event on its way into the journal: what a redaction is given."""

    text: str
    """What is to be written: all of a text, or the next part of one that a model streams."""
    before: str = ""
    """Up to 256 characters of the same text that came before, as the model said them: for a look behind."""
    more: bool = False
    """Whether the text can still grow. Then the redaction may hold back its end (see `Held`)."""
    run_id: str = ""
    call_id: str | None = None
    """The model or tool call that the event belongs to, if any."""
    kind: str = ""
    """The kind of the event."""
    path: tuple[str | int, ...] = ()
    """Where the text stands in `Event.data`, such as ``("message", "data", "content")``. A string in the arguments of a tool
    call that are streamed as JSON has the path of the arguments."""


@dataclass(frozen=True, slots=True)
class Held:
    """What a redaction returns to hold back the end of a text that can still grow."""

    text: str
    """What is written now."""
    rest: str
    """The end of `Text.text`, unchanged: the next `Text.text` begins with it. Raises where `Text.more` is False."""


Redact: TypeAlias = Callable[[Text], "str | Held"]
"""A redaction: returns what is written in place of a text, "" to drop it. It must not wait, and may be called from any
thread. It keeps nothing between two calls: what it needs to remember of a text, it holds back."""


@dataclass(frozen=True)
class Pattern:
    """A regular expression, what replaces its matches, and how its matches begin and grow while text is streamed.

    Of a text that can still grow, the last `longest` characters are held back: a match could begin there. Two hints make
    that less. `begins`: the literal text that each match begins with; it is read off an expression such as ``sk-[a-z]{20}``.
    `within`: a regular expression for one character of a match; behind any other character, nothing is held back.

    A match that grows is held back until it ends, or is `longest` characters long: then it is replaced, and what follows
    is written. So `longest` must be as long as the longest secret, with all that a look ahead of more than one character
    sees. Whole texts have no such limit.
    """

    regex: str | re.Pattern[str]
    replacement: str = "[redacted]"
    longest: int = LONGEST
    begins: str | None = None
    within: str | None = None
    accept: Callable[[str], bool] | None = None
    """Called with the text of a match; where it returns False, the match is not one."""
    _regex: re.Pattern[str] = field(init=False, repr=False, compare=False)
    _within: re.Pattern[str] | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        regex = _compiled("Pattern.regex", self.regex)
        within = None if self.within is None else _compiled("Pattern.within", self.within)
        if not isinstance(regex.pattern, str) or regex.match("") is not None:
            raise InvalidArgument(name="Pattern.regex", expected="one for text that is not empty", value=self.regex)
        if not isinstance(self.replacement, str):
            raise InvalidArgument(name="Pattern.replacement", expected="a str", value=self.replacement)
        if type(self.longest) is not int or self.longest < 1:
            raise InvalidArgument(name="Pattern.longest", expected="an int of 1 or more", value=self.longest)
        put = object.__setattr__  # frozen
        put(self, "_regex", regex)
        put(self, "_within", within)
        put(self, "begins", self.begins or _literal_start(regex))

    def find(self, text: str, start: int) -> tuple[int, int] | None:
        """Return the first match from `start` on, as its start and end."""
        while (found := self._regex.search(text, start)) is not None:
            if found.end() > found.start() and (self.accept is None or self.accept(found.group())):
                return found.span()
            start = found.start() + 1
        return None

    def undecided(self, text: str, start: int) -> int:
        """Return the first place from `start` on where a match may begin that more text makes or changes."""
        start = max(start, len(text) - self.longest + 1)
        if self._within is not None:
            end = len(text)
            while end > start and self._within.match(text[end - 1]):
                end -= 1
            start = end
        if not self.begins:
            return start
        place = text.find(self.begins, start)
        if place >= 0:
            return place
        sizes = range(min(len(self.begins) - 1, len(text) - start), 0, -1)
        return next((len(text) - size for size in sizes if text.endswith(self.begins[:size])), len(text))


def _compiled(name: str, regex: str | re.Pattern[str]) -> re.Pattern[str]:
    try:
        return re.compile(regex)
    except (re.error, TypeError) as exc:
        raise InvalidArgument(name=name, expected=f"a regular expression ({exc})", value=regex) from exc


_SPECIAL: Final = frozenset("\\.^$*+?{}[]|()")


def _literal_start(regex: re.Pattern[str]) -> str | None:
    """Return the literal text that all matches of an expression begin with, if its first characters say so."""
    source = regex.pattern.removeprefix(r"\b")
    if regex.flags & (re.IGNORECASE | re.VERBOSE) or "|" in source:
        return None
    end = next((at for at, sign in enumerate(source) if sign in _SPECIAL), len(source))
    if source[end : end + 1] in ("*", "?", "{"):
        end -= 1  # the character in front of it may be missing
    return source[: max(0, end)] or None


def _is_card(text: str) -> bool:
    """Check digit by Luhn's rule."""
    digits = [int(sign) for sign in text if sign.isdigit()]
    doubled = [digit * 2 - 9 * (digit > 4) for digit in digits[-2::-2]]
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


_FOUR: Final = r"[ -]?[0-9]{4}"
_CARDS: Final = (
    rf"(?:4[0-9]{{3}}|5[1-5][0-9]{{2}}|2[2-7][0-9]{{2}}|6(?:011|[245][0-9]{{2}})|35[0-9]{{2}}){_FOUR}{_FOUR}{_FOUR}",
    r"3[47][0-9]{2}[ -]?[0-9]{6}[ -]?[0-9]{5}",
    r"3(?:0[0-5]|[689][0-9])[0-9][ -]?[0-9]{6}[ -]?[0-9]{4}",
)
"""Sixteen digits of Visa, Mastercard, Discover, UnionPay and JCB, fifteen of American Express, fourteen of Diners Club."""

_READY: Final = {
    "email": Pattern(
        r"[\w.!#$%&*+/=?^{|}~-]{1,64}@(?:[\w-]{1,63}\.)+[\w-]{2,63}",
        within=r"[\w.!#$%&*+/=?^{|}~@-]",
        longest=320,
    ),
    "credit_card": Pattern(rf"(?<![0-9])(?:{'|'.join(_CARDS)})(?![0-9])", within="[0-9 -]", longest=24, accept=_is_card),
}


class _Patterns:
    """A redaction by patterns: at each place the first pattern that matches there wins."""

    def __init__(self, of: tuple[Pattern, ...]) -> None:
        self._patterns = of

    def __repr__(self) -> str:
        return f"patterns({list(self._patterns)!r})"

    def __call__(self, text: Text) -> str | Held:
        """Return the text with all matches replaced, and hold back what could become one."""
        window, place = text.before + text.text, len(text.before)
        end = len(window)
        limit = min(one.undecided(window, place) for one in self._patterns) if text.more else end
        done: list[str] = []
        spans = [one.find(window, place) for one in self._patterns]
        while (found := self._first(spans, window, place)) is not None:
            pattern, start, stop = found
            if start >= limit:
                break
            if text.more and stop == end and stop - start < pattern.longest:
                limit = start  # it may be longer
                break
            done += (window[place:start], pattern.replacement)
            place = stop
        cut = max(place, limit)
        done.append(window[place:cut])
        return Held("".join(done), window[cut:]) if cut < end else "".join(done)

    def _first(self, spans: list[tuple[int, int] | None], text: str, start: int) -> tuple[Pattern, int, int] | None:
        """Return the first match from `start` on. `spans`: the next match of each pattern, as far as it is known.

        A match is looked for again only if it begins before `start`: a pattern that matches nowhere would read all of the
        text for each match of another one.
        """
        for at, span in enumerate(spans):
            if span is not None and span[0] < start:
                spans[at] = self._patterns[at].find(text, start)
        found = [(span[0], at, span[1]) for at, span in enumerate(spans) if span is not None]
        if not found:
            return None
        begin, at, stop = min(found)
        return self._patterns[at], begin, stop


def patterns(
    of: Iterable[str | re.Pattern[str] | Pattern], *, replacement: str = "[redacted]", longest: int = LONGEST
) -> Redact:
    """Return a redaction that replaces what the patterns match, also where a secret is cut over several tokens.

    `of`: regular expressions, a `Pattern` for one with options of its own, or the names "email" and "credit_card" (numbers
    of the usual cards, checked by Luhn's rule). `replacement` and `longest`: those of the expressions; `longest` is the
    number of characters of the longest match that may be cut (see `Pattern`).
    """
    if isinstance(of, (str, re.Pattern, Pattern)):
        raise InvalidArgument(name="patterns", expected='a list, such as ["email"]', value=of)
    found: list[Pattern] = []
    for one in of:
        if isinstance(one, Pattern):
            found.append(one)
        elif isinstance(one, str) and one in _READY:
            found.append(replace(_READY[one], replacement=replacement))
        else:
            _refuse_misspelled(one)
            found.append(Pattern(one, replacement, longest))
    if not found:
        raise InvalidArgument(name="patterns", expected="a list of at least one pattern", value=found)
    return _Patterns(tuple(found))


def _refuse_misspelled(one: object) -> None:
    """Raise `UnknownOption` for a word like a name: the expression "emails" matches that word, and no address."""
    if not isinstance(one, str) or not re.fullmatch(r"[A-Za-z _-]+", one):
        return
    from difflib import get_close_matches  # here, because only a plain word needs it

    if get_close_matches(one.lower(), _READY, n=1, cutoff=0.8):
        hint = f"To redact this very word, give Pattern({one!r})"
        raise UnknownOption(name="patterns", what="name", unknown=[one], known=list(_READY), hint=hint)
