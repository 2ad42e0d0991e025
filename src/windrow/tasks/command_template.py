"""Templates of command lines: ``{parameter}`` becomes the value, quoted for the place in which it stands.

Only names that are known are replaced, so that ``awk '{print $1}'``, ``${HOME}`` and ``{1..3}`` mean what they mean to the
shell; ``{{name}}`` is a literal ``{name}``. Outside of quotes, where braces around a name mean nothing, other names are
refused. A value always arrives as it is: between quotes the quotes are closed before it and opened again behind it, and in
here-documents quotes are no quotes.
"""

from __future__ import annotations

import difflib
import os
import re
import shlex
from typing import TYPE_CHECKING, Any

from windrow.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


_LITERAL = re.compile(r"\{\{([A-Za-z_]\w*)\}\}")
_FIELD = re.compile(r"\{([A-Za-z_]\w*)\}")
#: What other templates have in braces; not what a shell expands, as in ``{a..z}`` and ``{a.fa,b.fa}``.
_PART = re.compile(r"\{([A-Za-z_]\w*)(?:\.(?!\.)|[\[:!])[^{},\s]*\}")
#: Where a here-document is announced, with the word that ends it, which may be quoted in parts.
_HERE = re.compile(
    r"<<(?P<tabs>-?)[ \t]*"
    r"(?P<word>(?:\\[^\n]|'[^']*'|\"(?:\\.|[^\"\\])*\"|[^\s;|&()<>'\"\\])+)"
)
_QUOTES = re.compile(r"\\(.)|'([^']*)'|\"([^\"]*)\"")
#: Where ``${name`` goes on with what is taken if there is nothing: there a value may have any form.
_DEFAULT = re.compile(r"\$\{[!]?(?:\w+|[@*])(?:\[[^]]*\])?:?[-+=?]")
#: What means itself in any part of ``${...}``.
_SIMPLE = re.compile(r"\w[\w.+-]*", re.ASCII)
#: A parenthesis that closes a pattern of ``case`` has none that opens it.
_CASE, _ESAC = re.compile(r"(?:^|[\s;|&(])case\s[^\n;]*?\sin(?=\s)"), re.compile(r"\besac\b")
#: Behind these a word begins: what begins with # there is a comment.
_BETWEEN = " \t\n;|&()<>"
#: How alike an unknown word and a known name are when one is taken for the other's misspelling.
ALIKE = 0.75
#: What others call our words.
ELSEWHERE = {"threads": "cores", "cpus": "cores", "nproc": "cores", "mem": "memory", "tmpdir": "tmp"}

#: Contexts of a shell's text; a parenthesis and a backquote are for commands inside others.
PLAIN, SINGLE, DOUBLE, ANSI, INNER, BACK, COMMENT = "", "'", '"', "$'", "(", "`", "#"
#: Arithmetic, in which << is no document.
ARITHMETIC = "(("
#: Inside of ${...}: as text by itself, and between quotes or in documents, behind :- and the like or elsewhere.
EXPANSION, DEFAULT, WITHIN = "${", '"${-', '"${'
#: Here-documents: with commands inside, or, if the word that ends it is quoted, nothing but text.
HERE, RAW = "<<", "<<'"


def command_line(task: str, template: str, value: Callable[[str], Any], known: Sequence[str]) -> str:
    """Put values into a template for a shell; ``value`` is asked for those that are needed."""
    return _Scanner(task, template, value, known).scan()


def argument_list(task: str, words: Sequence[Any], value: Callable[[str], Any], known: Sequence[str]) -> list[str]:
    """Put values into the words of a command that runs without a shell; a list alone in a word becomes several words."""
    found: list[str] = []
    for word in words:
        if not isinstance(word, str):
            found += _texts(task, "a word of the command", word)
            continue
        alone = _FIELD.fullmatch(word)
        if alone is not None and _is_known(task, alone[1], known):
            found += _texts(task, alone[1], value(alone[1]))
            continue

        def put(match: re.Match[str]) -> str:
            if match[1]:
                return f"{{{match[1]}}}"
            if not _is_known(task, match[2], known):
                return match[0]
            return " ".join(_texts(task, match[2], value(match[2])))

        found.append(re.sub(f"{_LITERAL.pattern}|{_FIELD.pattern}", put, word))
    return found


def _is_known(task: str, name: str, known: Sequence[str]) -> bool:
    """Whether a name in braces is one of ours; raises if it seems to be a misspelt one."""
    if name in known:
        return True
    alike = [one for one in known if one.lower() == name.lower()]
    close = alike or difflib.get_close_matches(name, known, n=1, cutoff=ALIKE)
    meant = ELSEWHERE.get(name) or (close[0] if close else None)
    if meant is None:
        return False
    raise UsageError(
        f"command {task!r}: its template has {{{name}}}; did you mean {{{meant}}}? It may use "
        f"{', '.join(f'{{{one}}}' for one in known)}; write {{{{{name}}}}} if the shell is to see {{{name}}}"
    )


def _texts(task: str, name: str, value: Any) -> list[str]:
    """Give a value as the words of a command line."""
    if isinstance(value, (list, tuple)):
        return [_text(task, name, one) for one in value]
    return [_text(task, name, value)]


def _text(task: str, name: str, value: Any) -> str:
    if hasattr(value, "dtype") and getattr(value, "ndim", 1) == 0:
        value = value.item()  # a number of NumPy
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if value is None or isinstance(value, bool):
        raise UsageError(
            f"command {task!r}: {name!r} is {value}, which means nothing on a command line; choose what to write in the "
            f"function, for example  option = '--fast' if {name} else ''  and return f'tool {{option}} ...'"
        )
    if isinstance(value, (int, float)):
        return str(value)
    if not isinstance(value, str):
        raise UsageError(
            f"command {task!r}: {name!r} is {type(value).__name__}; on a command line there are texts, paths, numbers and "
            "lists of these"
        )
    if "\0" in value:
        raise UsageError(f"command {task!r}: {name!r} has a NUL character, which no program can be given: {value!r}")
    return value


def _between_quotes(text: str) -> str:
    """Write a text so that it is itself between double quotes."""
    return re.sub(r'[\\$`"]', r"\\\g<0>", text)


class _Scanner:
    """Goes through a template once, and knows between which quotes it is."""

    def __init__(
        self, task: str, template: str, value: Callable[[str], Any], known: Sequence[str], inside: str = PLAIN
    ) -> None:
        self._task = task
        self._template = template
        self._value = value
        self._known = known
        self._inside = [inside]
        self._here: list[tuple[str, re.Pattern[str]]] = []  #: documents from the next line on, and their ends
        self._parts: list[str] = []
        self._opened: dict[int, int] = {}  #: where parentheses were opened, by how deep they are
        self._fresh = True  #: a word may begin here

    def scan(self) -> str:
        """Give the command line."""
        at, end, text = 0, len(self._template), self._template
        while at < end:
            if text[at] == "{":
                at = self._brace(at)
                continue
            before, at = at, self._step(at)
            if text[before:at] != "\\\n":  # which is nothing at all
                opens = text[at - 1] in _BETWEEN or (text[at - 1] == "`" == self._inside[-1])
                self._fresh = opens and (text[before] != "\\" or at - before == 1)
        return "".join(self._parts)

    def _brace(self, at: int) -> int:
        """Replace what stands in braces, if it is ours; return where to go on."""
        literal = _LITERAL.match(self._template, at)
        if literal is not None:
            self._parts.append(f"{{{literal[1]}}}")
            self._fresh = False
            return literal.end()
        field = _FIELD.match(self._template, at)
        variable = at > 0 and self._template[at - 1] == "$"
        if field is None or variable or not _is_known(self._task, field[1], self._known):
            field = field or _PART.match(self._template, at)
            if field is not None and not variable:
                self._refuse_unknown(field)
            self._parts.append("{")
            self._fresh = False
            return at + 1
        words = _texts(self._task, field[1], self._value(field[1]))
        self._parts.append(self._quoted(words))
        self._fresh = self._fresh and not words
        return field.end()

    def _refuse_unknown(self, field: re.Match[str]) -> None:
        """Refuse a name that is no parameter, where no program can be meant: the shell would pass it on with its braces."""
        opens = self._template[field.end() : field.end() + 1] in ("<", ">")  # a descriptor
        if self._inside[-1] not in (PLAIN, INNER, ARITHMETIC) or opens:
            return
        what = f"command {self._task!r}: its template has {field[0]}"
        if field[1] in self._known:
            raise UsageError(f"{what}, but in braces is the name of a parameter alone; have the function work out the rest")  # fmt: skip
        if field[0] == f"{{{field[1]}}}":
            known = ", ".join(f"{{{one}}}" for one in self._known)
            why = f"which is no parameter; it may use {known}; write {{{field[0]}}} if the shell"
            raise UsageError(f"{what}, {why} is to see {field[0]}")

    def _quoted(self, words: list[str]) -> str:
        inside = self._inside[-1]
        if inside == RAW:
            return " ".join(words)
        if BACK in self._inside and any(shlex.quote(word) != word for word in words):
            raise UsageError(
                f"command {self._task!r}: {' '.join(words)!r} cannot be written between backquotes, where quoting has rules "
                "of its own; write $(...) in their place"
            )
        if inside == COMMENT:  # a new line would be a command
            return " ".join(shlex.quote(word.replace("\n", " ")) for word in words)
        if inside in (PLAIN, INNER, BACK, ARITHMETIC):
            return self._in_document(" ".join(map(shlex.quote, words)))
        together = " ".join(words)
        above = self._inside[-2] if len(self._inside) > 1 else PLAIN
        if inside in (EXPANSION, DEFAULT, WITHIN) or (inside in (SINGLE, ANSI) and above in (DEFAULT, WITHIN)):
            return self._in_expansion(words)
        if inside == HERE:
            return re.sub(r"[\\$`]", r"\\\g<0>", together)
        if inside == DOUBLE:
            return _between_quotes(together)
        if not together or shlex.quote(together) == together:
            return together
        return self._in_document(SINGLE + shlex.quote(together) + inside)

    def _in_document(self, quoted: str) -> str:
        """Keep new lines behind a backslash, which are taken out of documents before commands in them are read."""
        return quoted.replace("\\\n", "\\'$'\\n''") if self._inside[0] == HERE else quoted

    def _in_expansion(self, words: list[str]) -> str:
        """Write values into ${...}, where / and % may have a meaning, and quotes between quotes may have none."""
        inside, together = self._inside[-1], " ".join(words)
        if inside == EXPANSION:
            return " ".join(
                word if _SIMPLE.fullmatch(word) else "'" + word.replace("'", "'\"'\"'") + "'" for word in words
            )
        if not together or all(map(_SIMPLE.fullmatch, words)):
            return together
        if inside == DEFAULT:
            return f'"{_between_quotes(together)}"'
        raise UsageError(
            f"command {self._task!r}: {together!r} cannot be written into ${{...}} between quotes or in a here-document, where "
            "quoting has rules of its own; put it into a variable of the shell before, as in  v={parameter}; echo "
            '"${Y:-$v}"'
        )

    def _step(self, at: int) -> int:
        """Copy a character, or some that belong together; keep in mind what it opens or closes."""
        inside, text = self._inside[-1], self._template
        two = text[at : at + 2]
        if inside == RAW:
            return self._copy(at, 1)
        if two[0] == "\\" and inside not in (SINGLE, COMMENT):
            return self._copy(at, 2)
        if inside == COMMENT:
            if two[0] == "\n":
                self._inside.pop()
                return self._documents(at)
        elif inside in (SINGLE, ANSI):
            if two[0] == "'":
                self._inside.pop()
        elif two[0] == "$" and (opened := self._dollar(at, two)):
            return self._copy(at, opened)
        elif two[0] == "`":
            self._toggle(BACK)
        elif inside in (EXPANSION, DEFAULT, WITHIN):
            self._expand(two[0])
        elif inside == HERE:
            pass
        elif two[0] == '"':
            self._toggle(DOUBLE)
        elif inside != DOUBLE:
            if two[0] == "\n":
                return self._documents(at)
            if two == "<<":
                return self._announce(at)
            return self._copy(at, self._open_or_close(at, two))
        return self._copy(at, 1)

    def _dollar(self, at: int, two: str) -> int:
        """Keep in mind what a dollar opens; return how many characters do that, 0 if it opens nothing."""
        inside, text = self._inside[-1], self._template
        quoted = inside in (DOUBLE, HERE, DEFAULT, WITHIN)
        if two == "$(":
            arithmetic = text.startswith("$((", at)
            self._open(at, ARITHMETIC if arithmetic else INNER)
            return 3 if arithmetic else 2
        if two == "$'" and not quoted:
            self._inside.append(ANSI)
            return 2
        if two != "${" or _LITERAL.match(text, at + 1):
            return 0
        if not quoted:
            self._inside.append(EXPANSION)
        else:
            plainly = inside == DOUBLE and self._inside[0] != HERE and _DEFAULT.match(text, at)
            self._inside.append(DEFAULT if plainly else WITHIN)
        return 2

    def _expand(self, character: str) -> None:
        """Go on inside of ${...}."""
        in_document = self._inside[-1] == WITHIN and self._inside[0] == HERE
        if character == "}":
            self._inside.pop()
        elif character in "'\"" and not in_document:  # there they may be text
            self._inside.append(SINGLE if character == "'" else DOUBLE)

    def _announce(self, at: int) -> int:
        """Keep in mind that a here-document follows, if one does: numbers are shifted by the same sign."""
        found = _HERE.match(self._template, at)
        if found is None:
            return self._copy(at, 3 if self._template.startswith("<<<", at) else 2)
        word = _QUOTES.sub(lambda part: part[1] or part[2] or part[3] or "", found["word"])
        tabs = "\t*" if found["tabs"] else ""
        end = re.compile(rf"\n{tabs}{re.escape(word)}(?=\n|\Z)")
        there = end.search(self._template, at) is not None
        arithmetic = self._inside[-1] == ARITHMETIC
        if word and there and not arithmetic and not re.search(r"[$`{\\]", word):
            self._here.append((RAW if word != found["word"] else HERE, end))
            return self._copy(at, len(found[0]))
        if there or not (arithmetic or word.isdigit()):
            raise UsageError(
                f"command {self._task!r}: its template has {found[0]!r}, which announces a here-document, but its end cannot be "
                "found: that is a line with nothing but the word, which is best a plain one (EOF); numbers are shifted in "
                "$((...))"
            )
        return self._copy(at, 2)

    def _documents(self, at: int) -> int:
        """Go through the here-documents that begin with a new line, if any do."""
        here, self._here = self._here, []
        if not here:
            return self._copy(at, 1)
        for inside, end in here:
            found = end.search(self._template, at)
            if found is None:
                raise UsageError(
                    f"command {self._task!r}: its template has here-documents that end in one another; write each with a "
                    "word of its own, in the order in which they are announced"
                )
            body = self._template[at : found.start()]
            inner = _Scanner(self._task, body, self._value, self._known, inside)
            self._parts += [inner.scan(), found[0]]
            at = found.end()
        return at

    def _open_or_close(self, at: int, two: str) -> int:
        """Keep in mind what a character outside of quotes opens or closes; return how many belong to that."""
        inside, character = self._inside[-1], two[0]
        if character == "'":
            self._inside.append(SINGLE)
        elif two == "((" and inside != ARITHMETIC:
            self._open(at, ARITHMETIC)
            return 2
        elif character == "(":
            self._open(at, INNER)
        elif two == "))" and inside == ARITHMETIC:
            self._inside.pop()
            return 2
        elif character == ")" and inside == ARITHMETIC:
            self._inside[-1] = INNER  # two that were opened in one place, and are closed apart
        elif character == ")" and inside == INNER:
            before = self._template[self._opened[len(self._inside)] : at]
            if len(_CASE.findall(before)) <= len(_ESAC.findall(before)):
                self._inside.pop()
        elif character == "#" and inside != ARITHMETIC and self._fresh:
            self._inside.append(COMMENT)
        return 1

    def _open(self, at: int, what: str) -> None:
        self._inside.append(what)
        self._opened[len(self._inside)] = at

    def _toggle(self, what: str) -> None:
        if self._inside[-1] == what:
            self._inside.pop()
        else:
            self._inside.append(what)

    def _copy(self, at: int, count: int) -> int:
        self._parts.append(self._template[at : at + count])
        return at + count
