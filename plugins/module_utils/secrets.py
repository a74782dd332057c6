# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Keep credentials out of what people read: findings, reasons, results, diffs. No I/O.

`redact` knows the forms that credentials have in the files and the output that this collection
quotes: URLs, HTTP headers, command-line flags, JSON, TOML, YAML, ini, and netrc. It looks for
secret-looking keys and does not parse, so that it also works on a fragment, on a broken text, and
on a text in a text. Where a value may be a secret or may not, `redact` hides it.

Source: RFC 3986, section 3.2.1 (user information in URLs); RFC 9110, section 11 (Authorization);
apt_auth.conf(5)
"""

from __future__ import annotations

import re

HIDDEN = "***"

# A key is secret when it ends in one of these: `registryPassword` and `--docker-token`, but
# neither `secretName` nor `authenticationTokenWebhook`.
_WORD = (
    r"(?:pass(?:word|wd|phrase)|_pass|secret|token|auth|credentials?|api[_-]?key"
    r"|(?:secret|private)(?:[_-]?access)?[_-]?key|client-key-data|authorization)"
)
_KEY = re.compile(
    rf"(?P<word>{_WORD})(?P<close>\\*[\"']?)[ \t]*(?P<sign>=>|[:=])[ \t]*", re.IGNORECASE
)
# What stands before the word tells how far the value goes. Longer keys than this do not occur.
_NEAR = 120
_LEADS_LINE = re.compile(r"[ \t#;+<>-]*(?:(?:export|set)[ \t]+)?[\"']?[\w.-]*\Z")
_IN_STRING = re.compile(r"[\"'][\w.-]*\Z")
_PROSE = re.compile(r"(?:token|auth|credentials?)\Z", re.IGNORECASE)
# What makes a key of a word that people also use in sentences.
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
# These say nothing about a password.
_HARMLESS = re.compile(
    r"\{|(?:true|false|null|none|yes|no|on|off|~)?[ \t]*[,;}\])]*[ \t]*(?:[#;].*)?$",
    re.IGNORECASE | re.MULTILINE,
)
_TO_QUOTE = re.compile(r"[^\"'\n]*")
_TO_BLANK = re.compile(r"[^\s\"'&]*")
_INDENT = re.compile(r"[ \t]*")

# These are found by their own form: what `before` matches stays, and what `after` matches.
_FORMS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"(?P<before>-----BEGIN [A-Z ]{0,30}PRIVATE KEY(?: BLOCK)?-----)[^-]+(?P<after>)",
        # A "/" belongs into a password only as %2F. People write it all the same.
        r"(?P<before>://)[^\s/?#:@\"'<>\[]+:(?!\d{0,5}(?:[/?#\s\"'<>]|\Z))[^\s@\"'<>]{0,300}(?P<after>@)",
        # All that stands before the last "@" of the host; the digest of an image is no host.
        r"(?P<before>://)[^\s/?#\"'<>]*(?P<after>@)(?!sha\d+:)",
        r"(?P<before>proxy[\"']?[ \t]*[:=][ \t]*[\"']?)[^\s/:@\"',]+:[^\s/@\"',]*(?P<after>@)",
        rf"(?P<before>--[\w-]{{0,60}}{_WORD}(?:[ \t]+|\\*[\"'],[ \t]*\\*[\"']))"
        r"(?![-=:])[^\s\"'\\]+(?P<after>)",
        r"(?P<before>\blogin[ \t]+\S+\s+password[ \t]+)\S+(?P<after>)",
    )
)


def redact(text: str) -> str:
    """Return the text with `***` in the place of every credential in it."""
    for form in _FORMS:
        text = form.sub(rf"\g<before>{HIDDEN}\g<after>", text)
    parts, done = [], 0
    while (key := _KEY.search(text, done)) is not None:
        start, end = _value(text, key)
        parts += [text[done:start], HIDDEN if text[start:end].strip() else text[start:end]]
        done = end
    return "".join((*parts, text[done:]))


def _value(text: str, key: re.Match[str]) -> tuple[int, int]:
    """Return where the value of a secret key begins and ends; at the same place for none."""
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
    """Match the rest of a line, and the lines below it that are indented so far or further."""
    return re.compile(rf"[^\n]*(?:(?:\n[ \t]*)*\n[ \t]{{{indent},}}[^\s][^\n]*)*")


def _end(form: re.Pattern[str], text: str, start: int) -> int:
    match = form.match(text, start)
    return match.end() if match else start
