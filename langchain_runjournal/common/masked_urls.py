"""Pure: URLs without their passwords, for logs, errors and `repr`.

Rule: if the place of a password in a URL is not certain, everything behind the scheme is masked.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote, unquote

MASK: Final = "***"
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")  # one letter is a Windows drive
_URL: Final = re.compile(rf"{_SCHEME.pattern}//")
_SHORT: Final = 4
_UNSEEN: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_PARTS: Final = re.compile(r"//([^/?#]*)([^?#]*)(?:\?([^#]*))?(#.*)?", re.DOTALL)
_HOST: Final = re.compile(r"(\[[^\]@]*\]|[^:@\[\]]*)(:[0-9]*)?")
_SECRET: Final = re.compile(r"password|passwd|passphrase|pwd|secret|token|credential|_key$", re.IGNORECASE)
ENCODE: Final = "signs such as / ? # & @ and % in a user or a password must be percent-encoded"
_USER_ALONE: Final = frozenset({"postgresql", "postgres", "sqlite"})
"""The schemes where text before an `@` without a colon is certainly the name of a user."""
_WITH_PATHS: Final = frozenset({"sqlite", "unix"})
"""The schemes where a file follows three slashes."""


def bare(url: str) -> str:
    """Return a URL without the white space around it, such as the line end of a file. A path may have any name."""
    found = url.strip()
    return found if _URL.match(found) else url


def has_unseen(url: str) -> bool:
    """Return whether a URL holds a line break, or another invisible sign."""
    return _UNSEEN.search(url) is not None


def masked(url: str) -> str:
    """Return the URL with `***` in place of each password, in one line. A path, without a scheme, stays as it is."""
    url = bare(url)
    return _UNSEEN.sub(lambda sign: quote(sign[0]), _masked(url)) if _SCHEME.match(url) else url


def _masked(url: str) -> str:
    found = _SCHEME.match(url)
    if found is None:
        return url
    scheme, rest = found[0], url[found.end() :]
    parts = _PARTS.fullmatch(rest)
    if parts is None:
        return scheme + MASK
    authority, path, query, fragment = parts.groups()
    user, at, hosts = authority.rpartition("@")
    if not authority and "@" in path and found[1].lower() not in _WITH_PATHS:
        return f"{scheme}//{MASK}"  # a third slash before the user
    if authority and ("@" in f"{path}{query}{fragment}" or not has_hosts(authority)):
        # A password with a sign that ends the authority: a slash, a question mark, a number sign.
        return f"{scheme}//{MASK}"
    path, ampersand, options = path.partition("&")  # options without the question mark before them
    path += ampersand and f"&{_masked_query(options)}"
    shown = _masked_user(user, alone=found[1].lower() in _USER_ALONE) + at + hosts + path
    return f"{scheme}//{shown}{'' if query is None else f'?{_masked_query(query)}'}{MASK if fragment else ''}"


def without(text: str, *secrets: str) -> str:
    """Return a message of a driver with `***` in place of passwords. A short one may be a part of any word."""
    for secret in secrets:
        text = re.sub(re.escape(secret) if len(secret) > _SHORT else rf"(?<!\w){re.escape(secret)}(?!\w)", MASK, text)
    return text


def has_hosts(authority: str) -> bool:
    """Return whether hosts and ports end this part of a URL. If not, it was ended by a sign in a password."""
    return all(map(_HOST.fullmatch, authority.rpartition("@")[2].split(",")))


def _masked_user(user: str, *, alone: bool) -> str:
    name, colon, _ = user.partition(":")
    if colon:
        return f"{name}:{MASK}"
    # For Redis it may be a password whose colon was forgotten.
    return name if alone or not name else MASK


def _masked_query(query: str) -> str:
    # libpq separates by `&` only, some drivers by `;` as well: a password may hold the other one.
    return "&".join(map(_masked_option, query.split("&")))


def _masked_option(option: str) -> str:
    name, equals, _ = option.partition("=")
    if _SECRET.search(unquote(name)):
        return f"{name}={MASK}"
    if not equals:
        return MASK if option else ""  # the rest of a password with a raw `&` in it
    return MASK if _SECRET.search(unquote(option)) else option
