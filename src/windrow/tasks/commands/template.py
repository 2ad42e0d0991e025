r"""Templates of command lines: ``{parameter}`` becomes the value, quoted for the place in which it stands.

Only names that are known are replaced, so that ``awk '{print $1}'``, ``${HOME}`` and ``{1..3}`` mean what they mean to the
shell; ``{{name}}`` is a literal ``{name}``. Outside of quotes, where braces around a name mean nothing, other names are refused.

A value arrives as it is, or is refused. As text of its own it is quoted; between quotes what would end them is escaped.
Where a shell has rules of its own (backquotes, ``${...}``, arithmetic) only values without any special character are taken.
The same holds from a here-document on, and for all that follows a construct whose end this reader does not find for sure, such
as quotes inside of ``"$(...)"``: it knows no more than the patterns below, and does not guess.
"""

from __future__ import annotations

import difflib
import os
import re
import shlex
from typing import TYPE_CHECKING, Any, NoReturn

from windrow.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_NAME = r"[A-Za-z_]\w*"
_LITERAL = rf"\{{\{{{_NAME}\}}\}}"
_FIELD = rf"(?<!\$)\{{{_NAME}\}}"
#: A variable without any rules: ``$name`` and ``${name}``.
_VARIABLE = r"\$\w++|\$\{\w+\}"
_SUM = rf"[^'\"`\\$(){{}}\[\]]|{_VARIABLE}|{_FIELD}"
_ARITHMETIC = rf"\(\((?:{_SUM}|\((?:{_SUM})*+\))*+\)\)"
_EXPANSION = rf"\$\{{(?:[^'\"`\\$(){{}}]|{_FIELD})*+\}}|\${_ARITHMETIC}|\$\[(?:{_SUM})*+\]|`(?:\\.|[^`\\'\"#])*+`"
#: A command inside of double quotes in which nothing is quoted: its text is plain. Patterns of ``case`` end with a
#: parenthesis that nobody has opened.
_COMMAND = rf"\$\((?!\()(?:(?!\bcase\b)[^'\"`\\$()#<]|<(?!<)|<<<(?!<)|{_VARIABLE})*+\)"
_DOUBLE = rf"\"(?:\\.|\$?{_LITERAL}|{_EXPANSION}|{_COMMAND}|[^\"\\`$]|\$(?![({{\[]))*+\""
#: Text in which a shell looks for variables and commands. What begins such a thing and does not match has an unknown end.
_EXPANDED = re.compile(
    rf"(?P<escape>\\.)|(?P<literal>\$?{_LITERAL})|(?P<special>{_EXPANSION})|(?P<command>{_COMMAND})|(?P<field>{_FIELD})"
    r"|(?P<opens>`|\$[({\[])",
    re.DOTALL,
)
#: Text outside of quotes.
_PLAIN = re.compile(
    rf"(?P<escape>\\(?!\n\#).\#*)|(?P<literal>\$?{_LITERAL})|(?P<single>'[^']*')|(?P<ansi>\$'(?:\\.|[^'\\])*')"
    rf"|(?P<double>{_DOUBLE})|(?P<special>{_ARITHMETIC}|{_EXPANSION})|(?P<string><<<)|(?P<document><<)"
    r"|(?P<opens>\\|(?<=\))\#|['\"`]|\$?\(\(|\$[{\['])|(?P<comment>(?<![^ \t\n;|&(<>])\#[^\n]*)"
    rf"|(?P<field>{_FIELD})|(?P<brace>\{{)|(?P<text>[^\\'\"`$(<\#{{]+|.)",
    re.DOTALL,
)
#: Where a here-document is announced, and where that is done by a plain word.
_ANNOUNCES = re.compile(r"(?<!<)<<(?!<)")
_ANNOUNCED = re.compile(_ANNOUNCES.pattern + r"-?[ \t]*['\"\\]?([\w.@+-]+)['\"]?(?=[\s;|&>)])")
#: What other templates have in braces; not what a shell expands, as in ``{a..z}`` and ``{a.fa,b.fa}``.
_PART = re.compile(rf"\{{({_NAME})(?:\.(?!\.)|[\[:!])[^{{}},\s]*\}}")
#: What means itself in any part of ``${...}`` and of arithmetic.
_SIMPLE = re.compile(r"\w[\w.+-]*", re.ASCII)
#: How alike an unknown word and a known name are when one is taken for the other's misspelling.
ALIKE = 0.75
#: What others call our words.
ELSEWHERE = {"threads": "cores", "cpus": "cores", "nproc": "cores", "mem": "memory", "tmpdir": "tmp"}
_ADVICE = 'put it into a variable of the shell before, as in  v={parameter}; echo "${Y:-$v}"'


class Template:
    """The text or the words that a command's function returned, and the values that go into them."""

    def __init__(self, task: str, value: Callable[[str], Any], known: Sequence[str]) -> None:
        self._task = task
        self._value = value  #: is asked for those that are needed
        self._known = known

    def fill_words(self, words: Sequence[Any], arguments: Sequence[Any] = ()) -> list[str]:
        """Put values into the words of a command that runs without a shell; a list alone in a word becomes several.

        A word that is one of the arguments itself is no template: it stands as it is.
        """
        found: list[str] = []
        for word in words:
            if not isinstance(word, str) or any(word is one for one in arguments):
                found += self._texts("a word of the command", word)
            elif re.fullmatch(_FIELD, word) and self._is_known(word[1:-1]):
                found += self._texts(word[1:-1], self._value(word[1:-1]))
            else:
                found.append(self._fill(word, " ".join))
        return found

    def fill_line(self, text: str) -> str:
        parts: list[str] = []
        at = 0
        while at < len(text):
            token = _PLAIN.match(text, at)
            assert token is not None
            begin, at = at, token.end()
            if token.lastgroup in ("document", "opens"):  # something of which nobody knows where it ends
                filled, at = self._rest(text[begin:], token.lastgroup), len(text)
            elif token.lastgroup == "field":
                filled = self._plain_field(token[0], text[at : at + 1])
            else:
                filled = self._token(token)
            if token.lastgroup == "text" and token[0].endswith(">") and text[at : at + 1] == "(":
                raise UsageError(
                    f"command {self._task!r}: its template has >(...), a program that no shell waits for, so that its output may "
                    "be half a file; write to a file in {tmp} and read that, or name a pipe (mkfifo {tmp}/pipe) and `wait`"
                )
            parts.append(filled)
        return "".join(parts)

    def _token(self, token: re.Match[str]) -> str:
        kind, said = token.lastgroup, token[0]
        if kind == "single":
            return self._fill(said, lambda words: " ".join(words).replace("'", "'\\''"))
        if kind == "ansi":
            # A backslash in front would take the quote that ends the text before the value.
            parts = re.split(r"(\\.)", said, flags=re.DOTALL)
            parts[::2] = [
                self._fill(one, lambda words: "'" + shlex.quote(" ".join(words)) + "$'") for one in parts[::2]
            ]
            return "".join(parts)
        if kind == "double":
            return _EXPANDED.sub(self._in_double_quotes, said)
        if kind == "comment":  # a new line would be a command
            return self._fill(said, lambda words: shlex.join(words).replace("\n", " "))
        if kind == "special":
            return self._fill(said, self._unquoted if said.startswith("`") else self._simple)
        if kind == "literal":
            return said.replace("{{", "{").replace("}}", "}")
        if kind == "brace":
            self._refuse_part(token.string, token.start())
        return said

    def _plain_field(self, field: str, following: str) -> str:
        name = field[1:-1]
        if self._is_known(name):
            words = self._texts(name, self._value(name))
            # Nothing at all before # would make a comment of what follows.
            return shlex.join(words) or ("''" if following == "#" else "")
        if following in ("<", ">"):  # a descriptor
            return field
        raise UsageError(
            f"command {self._task!r}: its template has {field}, which is no parameter; it may use {self._all_known()}; write "
            f"{{{field}}} if the shell is to see {field}"
        )

    def _in_double_quotes(self, token: re.Match[str]) -> str:
        if token.lastgroup == "field":
            return self._fill(token[0], lambda words: re.sub(r'[\\$`"]', r"\\\g<0>", " ".join(words)))
        return self._fill(token[0], shlex.join) if token.lastgroup == "command" else self._token(token)

    def _rest(self, text: str, kind: str) -> str:
        """Fill all that follows a here-document, or a construct without a known end: with values that need no quotes.

        No line of a document may become one that ends it.
        """
        ends = tuple(one[1] for one in _ANNOUNCED.finditer(text))
        if len(ends) != len(_ANNOUNCES.findall(text)) or (ends and kind == "opens"):
            raise UsageError(
                f"command {self._task!r}: its template has a here-document that cannot be read, in {text.splitlines()[0]!r}: it "
                "is announced outside of quotes by a plain word (<<EOF); numbers are shifted in $((...))"
            )
        if escaped := [one[1] for one in re.finditer(rf"\\({_FIELD})", text) if self._is_known(one[1][1:-1])]:
            self._refuse(escaped, "the place behind a backslash")
        filled = self._fill(text, self._unquoted)

        def endings(script: str) -> int:
            return (
                sum(line.lstrip("\t").startswith(ends) for line in script.replace("\\\n", "").split("\n"))
                if ends
                else 0
            )

        if endings(filled) != endings(text):
            self._refuse(list(ends), "the here-document that it ends")
        return filled

    # -- fields and values

    def _fill(self, text: str, write: Callable[[list[str]], str]) -> str:
        def put(found: re.Match[str]) -> str:
            if found[0].startswith("{{"):
                return found[0][1:-1]
            name = found[0][1:-1]
            return write(self._texts(name, self._value(name))) if self._is_known(name) else found[0]

        return re.sub(f"{_LITERAL}|{_FIELD}", put, text)

    def _simple(self, words: list[str]) -> str:
        if not all(map(_SIMPLE.fullmatch, words)):
            self._refuse(words, "${...} or arithmetic")
        return " ".join(words)

    def _unquoted(self, words: list[str]) -> str:
        if any(shlex.quote(word) != word for word in words):
            self._refuse(words, "the place where it stands")
        return " ".join(words)

    def _refuse(self, words: list[str], where: str) -> NoReturn:
        raise UsageError(
            f"command {self._task!r}: {' '.join(words)!r} cannot be written into {where}: between backquotes, in ${{...}}, in "
            "arithmetic, from a here-document on and behind a command in quotes that has quotes itself, quoting has rules of its own; "
            f"{_ADVICE}"
        )

    def _refuse_part(self, text: str, at: int) -> None:
        part = _PART.match(text, at)
        if part is not None and part[1] in self._known and text[at - 1 : at] != "$":
            raise UsageError(
                f"command {self._task!r}: its template has {part[0]}, but in braces is the name of a parameter alone; have the "
                "function work out the rest"
            )

    def _all_known(self) -> str:
        return ", ".join(f"{{{one}}}" for one in self._known)

    def _is_known(self, name: str) -> bool:
        """Whether a name in braces is one of ours; raises if it seems to be a misspelt one."""
        if name in self._known:
            return True
        alike = [one for one in self._known if one.lower() == name.lower()]
        close = alike or difflib.get_close_matches(name, self._known, n=1, cutoff=ALIKE)
        meant = ELSEWHERE.get(name) or (close[0] if close else None)
        if meant is None:
            return False
        raise UsageError(
            f"command {self._task!r}: its template has {{{name}}}; did you mean {{{meant}}}? It may use {self._all_known()}; "
            f"write {{{{{name}}}}} if the shell is to see {{{name}}}"
        )

    def _texts(self, name: str, value: Any) -> list[str]:
        if isinstance(value, (list, tuple)):
            # Of a task that failed and was ignored there is nothing to name.
            return [self._text(name, one) for one in value if one is not None]
        return [self._text(name, value)]

    def _text(self, name: str, value: Any) -> str:
        if hasattr(value, "dtype") and getattr(value, "ndim", 1) == 0:
            value = value.item()  # a number of NumPy
        if isinstance(value, os.PathLike):
            value = os.fspath(value)
        if value is None or isinstance(value, bool):
            raise UsageError(
                f"command {self._task!r}: {name!r} is {value}, which means nothing on a command line; choose what to write in "
                f"the function, for example  option = '--fast' if {name} else ''  and return f'tool {{option}} ...'"
            )
        if isinstance(value, (int, float)):
            return str(value)
        if not isinstance(value, str):
            raise UsageError(
                f"command {self._task!r}: {name!r} is {type(value).__name__}; on a command line there are texts, paths, numbers "
                "and lists of these"
            )
        if "\0" in value:
            raise UsageError(
                f"command {self._task!r}: {name!r} has a NUL character, which no program can be given: {value!r}"
            )
        return value
