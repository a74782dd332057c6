# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Remove credentials from texts for users: findings, reasons, results, diffs. No I/O.

`redact` recognises credentials in URLs, HTTP headers, command-line flags, JSON, TOML, YAML, ini,
and netrc. It searches for secret-looking keys and does not parse. So it also works on fragments,
on invalid texts, and on texts within texts. If a value may be a secret, `redact` hides it.

Source: RFC 3986, section 3.2.1 (user information in URLs); RFC 9110, section 11 (Authorization);
apt_auth.conf(5)
"""

from __future__ import annotations

import re

HIDDEN = "***"

# A key is secret if it ends in one of these: `registryPassword` and `--docker-token` are, but
# `secretName` and `authenticationTokenWebhook` are not.
_WORD = (
    r"(?:pass(?:word|wd|phrase)|_pass|secret|token|auth|credentials?|api[_-]?key"
    r"|(?:secret|private)(?:[_-]?access)?[_-]?key|client-key-data|authorization)"
)
_KEY = re.compile(
    rf"(?P<word>{_WORD})(?P<close>\\*[\"']?)[ \t]*(?P<sign>=>|[:=])[ \t]*", re.IGNORECASE
)
# The text before the word determines the extent of the value. Longer keys do not occur.
_NEAR = 120
_LEADS_LINE = re.compile(r"[ \t#;+<>-]*(?:(?:export|set)[ \t]+)?[\"']?[\w.-]*\Z")
_IN_STRING = re.compile(r"[\"'][\w.-]*\Z")
_PROSE = re.compile(r"(?:token|auth|credentials?)\Z", re.IGNORECASE)
# Before a word that also occurs in sentences, one of these indicates a key.
_KEY_BEFORE = re.compile(r"(?:[\w.-]|[{,(\"'][ \t]*)\Z")

_STRINGS = tuple(
    re.compile(pattern)
    for pattern in (
        r"(?P<open>\"\"\")(?:(?!\"\"\").|\n)*",
        r"(?P<open>''')(?:(?!''').|\n)*",
        r"(?P<open>\")(?:\\.|[^\"\\\n]|\n[ \t]+)*",
        r"(?P<open>')(?:''|[^'\n]|\n[ \t]+)*",
        r"(?P<open>\\+[\"'])(?:(?!(?P=open)).)*",
    )
)
_LIST = re.compile(r"(?P<open>\[)[^\]]*")
# These values are no secrets.
_HARMLESS = re.compile(
    r"\{|(?:true|false|null|none|yes|no|on|off|~)?[ \t]*[,;}\])]*[ \t]*(?:[#;].*)?$",
    re.IGNORECASE | re.MULTILINE,
)
_TO_QUOTE = re.compile(r"[^\"'\n]*")
_TO_BLANK = re.compile(r"[^\s\"'&]*")
_INDENT = re.compile(r"[ \t]*")

# Credentials with a form of their own. The groups `before` and `after` stay.
_FORMS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"(?P<before>-----BEGIN [A-Z ]{0,30}PRIVATE KEY(?: BLOCK)?-----)[^-]+(?P<after>)",
        # A "/" in a password must be written as %2F, but some URLs contain it unescaped.
        r"(?P<before>://)[^\s/?#:@\"'<>\[]+:(?!\d{0,5}(?:[/?#\s\"'<>]|\Z))[^\s@\"'<>]{0,300}(?P<after>@)",
        # Everything before the last "@" of the host; the digest of an image is no host.
        r"(?P<before>://)[^\s/?#\"'<>]*(?P<after>@)(?!sha\d+:)",
        r"(?P<before>proxy[\"']?[ \t]*[:=][ \t]*[\"']?)[^\s/:@\"',]+:[^\s/@\"',]*(?P<after>@)",
        rf"(?P<before>--[\w-]{{0,60}}{_WORD}(?:[ \t]+|\\*[\"'],[ \t]*\\*[\"']))"
        r"(?![-=:])[^\s\"'\\]+(?P<after>)",
        r"(?P<before>\blogin[ \t]+\S+\s+password[ \t]+)\S+(?P<after>)",
    )
)


def redact(text: str) -> str:
    """Return the text with every credential replaced by `***`."""
    for form in _FORMS:
        text = form.sub(rf"\g<before>{HIDDEN}\g<after>", text)
    parts, done = [], 0
    while (key := _KEY.search(text, done)) is not None:
        start, end = _value(text, key)
        parts += [text[done:start], HIDDEN if text[start:end].strip() else text[start:end]]
        done = end
    return "".join((*parts, text[done:]))


def _value(text: str, key: re.Match[str]) -> tuple[int, int]:
    """Return start and end of the value of a secret key; both are equal if there is none."""
    start = key.end()
    line = text.rfind("\n", 0, key.start()) + 1
    head = text[max(line, key.start() - _NEAR) : key.start()]
    leads_line = bool(_LEADS_LINE.match(head))
    is_key = leads_line or key["close"] or key["sign"] != ":" or _KEY_BEFORE.search(head)
    if not is_key and _PROSE.match(key["word"]):  # "unexpected token: ..."
        return start, start
    for form in (*_STRINGS, _LIST):
        if (match := form.match(text, start)) is not None:
            return match.end("open"), match.end()
    if _HARMLESS.match(text, start):
        return start, start
    if _IN_STRING.search(head) and not key["close"]:
        return start, _end(_TO_QUOTE, text, start)
    if leads_line:
        below = _end(_INDENT, text, line) - line + 1
        end = _end(_lines(below), text, start)
        return start, start + len(text[start:end].rstrip(", \t\r\n"))
    if key["word"].lower() == "authorization":
        return start, _end(_TO_QUOTE, text, start)
    end = _end(_TO_BLANK, text, start)
    return start, start + len(text[start:end].rstrip(",;)}]"))


def _lines(indent: int) -> re.Pattern[str]:
    """Match the rest of a line, and the following lines that are indented at least so far."""
    return re.compile(rf"[^\n]*(?:(?:\n[ \t]*)*\n[ \t]{{{indent},}}[^\s][^\n]*)*")


def _end(form: re.Pattern[str], text: str, start: int) -> int:
    match = form.match(text, start)
    return match.end() if match else start
