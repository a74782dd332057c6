# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Remove credentials from texts for users: findings, reasons, results, diffs.

`redact` recognises credentials in URLs, HTTP headers, command-line flags, JSON, TOML, YAML, ini,
and netrc. It searches for secret-looking keys and does not parse. So it also works on fragments,
on invalid texts, and on texts within texts. If a value may be a secret, `redact` hides it.

Source: RFC 3986, section 3.2.1 (user information in URLs); RFC 9110, section 11 (Authorization);
apt_auth.conf(5)
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

HIDDEN = "***"

# Every credential has a blank, a quote or another sign before it. Most texts of an observation are
# single words, numbers and paths.
_WORDS = re.compile(r"[\w.+/~-]*")

# A key is secret if it ends in one of these, or in its plural: `registryPassword` and
# `--docker-token` are, but `secretName` and `authenticationTokenWebhook` are not.
_WORD = (
    r"(?:pass(?:word|wd|phrase|code)|pwd|secret|token|auth|credentials?|api[_-]?key"
    r"|(?:(?<![a-z])|(?-i:(?<=[a-z])(?=P)))pass|(?<![a-z])(?:pw|psk)|cookie"
    r"|(?:secret|private|access|account|encryption|licen[cs]e)(?:[_-]?access)?[_-]?key"
    r"|client-key-data|authorization)"
)
# The end of a line without a value, and the lines without any up to the next one. The limits keep a
# text of comments from being read again and again.
_TO_NEXT = r"(?:[ \t]*(?:#[^\n]{0,120})?\r?\n){1,20}"
# The name of a secret, with its value under another key: `name: DB_PASSWORD`.
_NAME = rf"(?:name|key)\\*[\"']?[ \t]*[:=][ \t]*\\*[\"']?[\w.-]{{0,120}}?{_WORD}s?\\*[\"']?"
_NO_KEY = rf"(?![\w-]{{0,60}}{_WORD}s?\\*[\"']?[ \t]*[:=])"
_KEY = re.compile(
    rf"(?:\b{_NAME}[ \t]*,?(?:{_TO_NEXT})?[ \t]*\\*[\"']?(?P<value>value)"
    rf"|(?P<word>{_WORD})(?P<plural>s?))(?P<close>\\*[\"']?)[ \t]*(?P<sign>=>|[:=])[ \t]*",
    re.IGNORECASE,
)
# The text before the word determines the extent of the value. Longer keys do not occur.
_NEAR = 120
_LEADS_LINE = re.compile(r"[ \t#;+<>-]*(?:(?:export|set)[ \t]+)?[\"']?[\w.-]*\Z")
_IN_STRING = re.compile(r"[\"'][\w.-]*\Z")
_PROSE = re.compile(r"(?:token|auth|credentials?)\Z", re.IGNORECASE)
# Keys whose tables have settings, too: `secret: {secretName: x}`. Each key in these is judged.
_TABLES = re.compile(r"(?:token|auth|credentials?|secret|authorization)\Z", re.IGNORECASE)
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
_TABLE = re.compile(r"(?P<open>\{)[^{}]*")
_CLOSED_KEY = re.compile(r"\\*[\"'][ \t]*:")
_COUNT = re.compile(r"[\"']?\d[\d_.]*(?![^\s,;}\])\"'])")
# These values are no secrets.
_HARMLESS = re.compile(
    r"\{|(?:true|false|null|none|yes|no|on|off|~)?[ \t]*[,;}\])]*[ \t]*(?:[#;]|$)",
    re.IGNORECASE | re.MULTILINE,
)
_TO_QUOTE = re.compile(r"[^\"'\n]*")
_TO_BLANK = re.compile(r"[^\s\"'&]*")
_BELOW = re.compile(_TO_NEXT)
_BLANKS = re.compile(r"\s*")
_TO_KEY = re.compile(r"[ \t]*(?:-[ \t]+)*")
_DASH = re.compile(r"-[ \t\r\n]")
_IS_TABLE = re.compile(r"(?:-[ \t]+)*(?:\"[^\"\n]*\"|'[^'\n]*'|[^\s:\"'][^:\n]*):(?:\s|\Z)")

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
        rf"(?P<before>--[\w-]{{0,60}}{_WORD}"
        r"(?:[ \t]+|\\*[\"'],\s*\\*[\"']|[\"']?[ \t]*\r?\n[ \t]*-[ \t]+[\"']?))"
        r"(?![-=:])[^\s\"'\\]+(?P<after>)",
        rf"(?P<before><[\w:.-]{{0,60}}{_WORD}>)[^<\s][^<]*(?P<after></)",
        r"(?P<before>\b(?:docker|podman|nerdctl|helm registry|oras|skopeo) login\b[^\n;|&]{0,200}?"
        r"[ \t]-p[ \t=]?)[^\s\"'\\]+(?P<after>)",
        # The user of a .repo file can be a token. Other files have quotes or a colon.
        r"(?P<before>(?m:^)[ \t+-]*username[ \t]*=[ \t]*)(?![\s\"'])[^\n]+(?P<after>)",
        r"(?P<before>\b(?:machine|login|account)\s+\S+\s+password\s+)\S+(?P<after>)",
        rf"(?P<before>\bbearer[ \t]+){_NO_KEY}"
        r"(?!(?:tokens?|auth\w*|credentials?|schemes?|challenges?|headers?|of)\b)(?![\w-]+=[\"'\\])"
        r"[\w.~+/=-]+(?P<after>)",
        # The Base64 text of a user and a password hardly ever looks like a word.
        rf"(?P<before>\bbasic[ \t]+){_NO_KEY}(?![\w-]+=[\"'\\])"
        r"(?-i:(?=[A-Za-z0-9+/]*(?:[0-9+=]|[a-z][A-Z])))[a-z0-9+/]+=*(?P<after>)(?![^\s\"',;)}\]\\])",
        r"(?P<before>(?:[?&]|&amp;|\\u0026)(?:[\w-]{0,40}[_-])?(?:sig|signature|key)=)"
        r"[^&\s\"'#<>\\]+(?P<after>)",
        # A value before its name; `_KEY` finds a value after it.
        rf"(?P<before>\bvalue\\*[\"']?[ \t]*[:=][ \t]*(?P<quote>\\*[\"']))"
        r"(?:(?!(?P=quote))(?:\\.|[^\n])){1,4000}"
        rf"(?P<after>(?P=quote)[ \t]*,?(?:{_TO_NEXT})?[ \t]*\\*[\"']?{_NAME}(?![\w.-]))",
        r"(?P<before>(?<![^\s,{])value[ \t]*[:=][ \t]*)(?![|>\[\s])"
        r"(?=(?P<plain>[^\s,{}\"']{1,4000}(?=[,\r\n])|[^\n,{}\"']{1,200}))(?P=plain)"
        rf"(?P<after>[ \t]*(?:,|{_TO_NEXT})[ \t]*{_NAME}(?![\w.-]))",
    )
)
# The headers of hosts.toml have names of any kind, and logins as their values: a table, an inline
# table, also as in Docker's config.json, and a key with dots.
_QUOTED = r"\"(?:\\.|[^\"\\\n])*\"|'[^'\n]*'"
_HEADERS = re.compile(
    r"(?P<table>^[ \t+-]*\[[^\n]{0,400}?headers?[\"']?[ \t]*\][ \t]*(?:#[^\n]*)?\r?$)"
    r"|(?:(?<![\w-])|Http)[Hh]eaders?[\"']?[ \t]*[=:][ \t]*(?=\{)"
    rf"|(?<![\w-])headers?[\"']?[ \t]*\.[ \t]*(?:{_QUOTED}|[\w-]+)[ \t]*=[ \t]*",
    re.MULTILINE,
)
_NEXT = re.compile(rf"^[ \t+-]*(?:(?P<table>\[)|(?:{_QUOTED}|[\w-]+)[ \t]*=[ \t]*)", re.MULTILINE)
_HEADER_LIST = re.compile(rf"(?P<open>\[)(?:{_QUOTED}|[^\]\"'])*")
_HEADER_TABLE = re.compile(rf"(?P<open>\{{)(?:{_QUOTED}|[^{{}}\"'])*")
_CURL = re.compile(r"\bcurl\b(?:\\\r?\n|[^\n])*")
_CURL_USER = re.compile(
    r"(?P<before>[\s\"'](?:-[A-Za-z]{0,12}[uU]|--(?:proxy-)?user)(?:\\*[\"'],?)?[\s=]*"
    r"(?P<quote>\\*[\"'])?(?!\d+:\d+(?:[\s\"']|\Z))[^\s:\"'-][^\s:\"']{0,100}:)"
    r"(?(quote)[^\"'\n]+|[^\s\"']+)"
)


def redact(text: str) -> str:
    """Return the text with every credential replaced by `***`."""
    if _WORDS.fullmatch(text):
        return text
    for form in _FORMS:
        text = form.sub(rf"\g<before>{HIDDEN}\g<after>", text)
    text = _CURL.sub(lambda curl: _CURL_USER.sub(rf"\g<before>{HIDDEN}", curl[0]), text)
    text = _hide(text, _header_values(text)) if "eader" in text else text
    parts, done = [], 0
    while (key := _KEY.search(text, done)) is not None:
        start, end = _value(text, key)
        parts += [text[done:start], HIDDEN if text[start:end].strip() else text[start:end]]
        done = end
    return "".join((*parts, text[done:]))


def _header_values(text: str) -> Iterator[tuple[int, int]]:
    """Yield start and end of each value below `header`."""
    done = 0
    while (found := _HEADERS.search(text, done)) is not None:
        done = found.end()
        if not found["table"]:
            start, done = _header_value(text, done)
            yield start, done
            continue
        while (key := _NEXT.search(text, done)) is not None and not key["table"]:
            start, done = _header_value(text, key.end())
            yield start, done


def _header_value(text: str, start: int) -> tuple[int, int]:
    for form in (*_STRINGS, _HEADER_LIST, _HEADER_TABLE):
        if (match := form.match(text, start)) is not None:
            return match.end("open"), match.end()
    return start, start  # containerd takes no other values


def _hide(text: str, spans: Iterable[tuple[int, int]]) -> str:
    parts, done = [], 0
    for start, end in spans:
        parts += [text[done:start], HIDDEN if text[start:end].strip() else text[start:end]]
        done = end
    return "".join((*parts, text[done:]))


def redact_all(value: object) -> object:
    """Return a value of nested mappings and lists with every text in it redacted."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        return {key: redact_all(item) for key, item in value.items()}
    return [redact_all(item) for item in value] if isinstance(value, (list, tuple)) else value


def _value(text: str, key: re.Match[str]) -> tuple[int, int]:
    """Return start and end of the value of a secret key; both are equal if there is none."""
    start, word = key.end(), key["word"] or ""
    at = key.start("word" if word else "value")
    near = max(at - _NEAR, 0)  # a line can have megabytes
    line = max(text.rfind("\n", near, at) + 1, near)
    head = text[line:at]
    leads_line = bool(_LEADS_LINE.match(head))
    is_key = leads_line or key["close"] or key["sign"] != ":" or _KEY_BEFORE.search(head)
    if not is_key and _PROSE.match(word):  # "unexpected token: ..."
        return start, start
    if _is_setting(text, key, head):
        return start, start
    if (below := _BELOW.match(text, start)) is not None:
        return _value_below(text, key, below.end(), line if leads_line else None)
    tables = () if not word or _TABLES.match(word) else (_TABLE,)
    for form in (*_STRINGS, _LIST, *tables):
        if (match := form.match(text, start)) is not None:
            return match.end("open"), match.end()
    if _HARMLESS.match(text, start):
        return start, start
    if _IN_STRING.search(head) and not key["close"]:
        return start, _end(_TO_QUOTE, text, start)
    if leads_line:
        below_indent = _end(_TO_KEY, text, line) - line + 1
        end = _end(_lines(below_indent), text, start)
        return start, start + len(text[start:end].rstrip(", \t\r\n"))
    if word.lower() == "authorization":
        return start, _end(_TO_QUOTE, text, start)
    end = _end(_TO_BLANK, text, start)
    return start, start + len(text[start:end].rstrip(",;)}]"))


def _is_setting(text: str, key: re.Match[str], head: str) -> bool:
    """Tell whether the value is a number of tokens, or the working directory of a process."""
    word = (key["word"] or "").lower()
    if word == "token" and key["plural"]:
        return bool(_COUNT.match(text, key.end()))
    return word == "pwd" and text[key.end() : key.end() + 1] == "/" and head[-1:] not in ("_", "-")


def _value_below(text: str, key: re.Match[str], start: int, line: int | None) -> tuple[int, int]:
    """Return start and end of a value in the lines below its key.

    `start` is where these lines begin, and `line` where the key's line does if it leads that line.
    """
    first = _end(_BLANKS, text, start)
    if key["close"]:  # JSON, where the indentation has no meaning
        for form in (*_STRINGS, _LIST):
            match = form.match(text, first)
            if match is not None and not _CLOSED_KEY.match(text, match.end()):
                return match.end("open"), match.end()
    if line is None or (_IS_TABLE.match(text, first) and _TABLES.match(key["word"] or "")):
        return start, start
    column = _end(_TO_KEY, text, line) - line
    indent = first - (text.rfind("\n", 0, first) + 1)
    if indent < column or (indent == column and not _DASH.match(text, first)):
        return start, start
    end = _end(_lines(column + 1, dash=column if indent == column else None), text, first)
    return first, first + len(text[first:end].rstrip(", \t\r\n"))


def _lines(indent: int, dash: int | None = None) -> re.Pattern[str]:
    """Match the rest of a line, and the following lines that are indented at least so far.

    Items whose dashes are indented exactly as far as `dash` also match.
    """
    item = "" if dash is None else rf"|[ \t]{{{dash}}}-[ \t]"
    return re.compile(rf"[^\n]*(?:(?:\n[ \t]*)*\n(?:[ \t]{{{indent},}}[^\s]{item})[^\n]*)*")


def _end(form: re.Pattern[str], text: str, start: int) -> int:
    match = form.match(text, start)
    return match.end() if match else start
