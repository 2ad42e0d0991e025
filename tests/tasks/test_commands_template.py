"""What a template becomes: every value arrives at the program as it was given, and all other braces stay."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import windrow as wr
from searching import examples
from windrow.errors import UsageError
from windrow.tasks.command_template import argument_list, command_line

texts = st.text(
    st.one_of(
        st.characters(exclude_characters="\0", exclude_categories=["Cs"]),
        st.sampled_from("'\"\\$`!*?~#&;|<>(){}[] \n\t-=%"),
    ),
    max_size=12,
)


def filled(template: str, **values: Any) -> str:
    return command_line("t", template, values.__getitem__, list(values))


def seen(script: str) -> list[str]:
    """Ask a real shell and a real program what they were given."""
    full = f"show() {{ env printf '%s\\0' \"$@\"; }}\n{script}"
    ran = subprocess.run(["bash", "-euo", "pipefail", "-c", full], capture_output=True, check=True)
    return ran.stdout.decode().split("\0")[:-1]


# -- values arrive


@given(texts, st.lists(texts, max_size=3), st.integers() | st.floats(allow_nan=False))
def test_values_arrive_as_they_were_given_wherever_they_stand(text: str, several: list[str], number: float) -> None:
    script = filled(
        "# a comment with {x}, that isn't a command\n"
        "show {x} a{x}b '{x}' 'a {x} b' \"{x}\" \"a {x}\" $'{x}\\t' \"$(printf %sE {x})\" "
        '"$(printf %sE "{x}")" -n={n} {l} end \'{l}\' # and {x}',
        x=text,
        l=several,
        n=number,
    )
    together = " ".join(several)
    assert seen(script) == [
        text,
        f"a{text}b",
        text,
        f"a {text} b",
        text,
        f"a {text}",
        f"{text}\t",
        f"{text}E",
        f"{text}E",
        f"-n={number}",
        *several,
        "end",
        together,
    ]


@settings(max_examples=examples(40))  # each starts six programs
@given(texts)
@example("a\\\nb")
def test_values_arrive_in_and_after_here_documents(text: str) -> None:
    script = filled(
        "show {x} $((1 << 2)) \"$(cat <<EOF; cat - << 'RAW'  # isn't {x}\n"
        'it\'s {x}, "$(printf %sE {x})"\nEOF\ndon\'t $x {x}\nRAW\n)" "$(cat <<< {x})E" {x}',
        x=text,
    )
    document = f"it's {text}, \"{text}E\"\ndon't $x {text}"
    assert seen(script) == [text, "4", document.rstrip("\n"), text.rstrip("\n") + "E", text]


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("cat <<-EOF > /dev/null\n\t'{x}\n\tEOF\nshow {x}", ["a b"]),
        ("cat <<A - <<\\B > /dev/null\n\"\nA\n'\nB\nshow {x}", ["a b"]),
        ("let 'n = 1 <<2' || true; show $((1 <<x2)) {x}\n", ["1", "a b"]),  # no document at all
    ],
)
def test_what_comes_after_here_documents_is_plain(template: str, words: list[str]) -> None:
    assert seen(f"x2=0; {filled(template, x='a b')}") == words


@settings(max_examples=examples(40))  # each starts several programs
@given(texts)
def test_values_arrive_where_words_are_hard_to_read(text: str) -> None:
    script = filled(
        "show \\ #{x} a#{x}\n"
        'show "${Y:-{x}}" ${Y:-{x}} "${Y:-a {x} b}" "${Y:-"{x}"}" ${Y:-"{x}"}\n'
        "(true)# {x} is a comment\n: \\\n# and {x} too\nshow {l}#{x}\n"
        'show "$(case a in a) printf %sE {x};; esac)" "$( (printf %s {x}; printf E) )" $((1<<{n}))\n'
        "A={x}; show E${A#{x}}E ${A/{x}/E}\n"
        "show a\\\n#{x}",
        x=text,
        l=["a"],
        n=3,
    )
    whole = ["E"] if text else []
    assert seen(script) == [
        f" #{text}",
        f"a#{text}",
        *(text, text, f"a {text} b", text, text),
        f"a#{text}",
        *(f"{text}E", f"{text}E", "8"),
        *("EE", *whole),
        f"a#{text}",
    ]


@pytest.mark.parametrize("word", ["END-OF", "EOF.1", "é", "1", "E'O'F", '"E OF"', "\\EOF", "@"])
@given(text=texts)
@settings(max_examples=examples(5))
def test_values_stand_as_they_are_in_documents_with_any_end(word: str, text: str) -> None:
    text = text.replace("\n", " ")
    end = word.replace("'", "").replace('"', "").replace("\\", "")
    script = filled(f'show "$(cat <<{word}\nname={{x}}.\n{end}\n)" {{x}}', x=text)
    assert seen(script) == [f"name={text}.", text]


@pytest.mark.parametrize(
    "template",
    [
        "cat <<EOF\n{x}",
        "cat <<EOF\n{x}\n EOF",
        "echo $(cat <<EOF\n{x}\nEOF)",
        "cat <<{x}\na\n{x}",
        "cat <<$E\n{x}\n$E",
        "cat <<''\n{x}\n\n",
        "cat <<A <<B\n{x}\nB\n{x}\nA",
    ],
)
def test_a_document_whose_end_is_not_found_is_refused(template: str) -> None:
    with pytest.raises(UsageError, match="here-document"):
        filled(template, x="a b")


@pytest.mark.parametrize("template", ['"${Y#{x}}"', '"${Y/{x}/b}"', "cat <<EOF\n${Y:-{x}}\nEOF", "\"${Y:-'{x}'}\""])
def test_what_cannot_be_quoted_in_an_expansion_is_refused(template: str) -> None:
    assert filled(template, x="a.fa") == template.replace("{x}", "a.fa")
    for value in ("a b", "a/b", "%a", "-1", "}", "$(ls)"):
        with pytest.raises(UsageError, match="put it into a variable of the shell before"):
            filled(template, x=value)


@given(texts, st.lists(texts, max_size=3))
def test_words_without_a_shell_are_the_values(text: str, several: list[str]) -> None:
    values: dict[str, Any] = {"x": text, "l": several}
    words = argument_list("t", ["show", "{x}", "a{x}b", "{l}", "{{x}}", 3], values.__getitem__, list(values))  # fmt: skip
    assert words == ["show", text, f"a{text}b", *several, "{x}", "3"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Path("a b/c.fa"), "a b/c.fa"),
        (PurePosixPath("é'x"), "é'x"),
        (3, "3"),
        (0.5, "0.5"),
        (np.int64(7), "7"),
        (np.float32(0.5), "0.5"),
        (np.str_("n p"), "n p"),
    ],
)
def test_paths_and_numbers_are_their_text(value: Any, text: str) -> None:
    assert seen(filled("show {x}", x=value)) == [text]


def test_undecodable_file_names_arrive(tmp_path: Path) -> None:
    name = b"caf\xe9 x.txt"
    (tmp_path / "good").write_text("")
    (Path(tmp_path) / name.decode("utf-8", "surrogateescape")).write_text("hi\n")

    @wr.command
    def cat(x: Any) -> str:
        return "cat {x}"

    assert cat(tmp_path / name.decode("utf-8", "surrogateescape")) == "hi\n"


# -- other braces


@pytest.mark.parametrize(
    "template",
    [
        "awk '{print $1}'",
        "awk '{print}' | awk '{ n++ } END {print n}'",
        "echo ${HOME} ${x} ${x:-y}",
        "echo {1..3} {a,b} {}",
        "xargs -I{} cp {} .",
        "f() { true; }",
        r"echo \{x}",
        "jq '{name: .x}'",
    ],
)
def test_other_braces_are_left_to_the_shell(template: str) -> None:
    assert filled(template, x="value", cores=2) == template


def test_double_braces_are_a_literal() -> None:
    assert filled("echo {{x}} ${{x}} {x}", x=1) == "echo {x} ${x} 1"


@pytest.mark.parametrize(
    ("template", "meant"), [("sort {raeds}", "reads"), ("sort {read}", "reads"), ("-t {threads}", "cores")]
)
def test_a_misspelt_parameter_is_an_error_that_says_which_was_meant(template: str, meant: str) -> None:
    with pytest.raises(UsageError, match=rf"did you mean \{{{meant}\}}\?"):
        filled(template, reads="x", cores=1)


@pytest.mark.parametrize("template", ["sort {sample}", "cat <<EOF\nit's\nEOF\nsort $(echo {sample})"])
def test_a_name_that_is_no_parameter_is_refused_outside_of_quotes(template: str) -> None:
    message = r"has \{sample\}, which is no parameter; it may use \{x\}, \{cores\}; write \{\{sample\}\} if"
    with pytest.raises(UsageError, match=message):
        filled(template, x="value", cores=1)
    assert seen(filled("exec {out}> /dev/null; show {{sample}} '{sample}'", x=1)) == ["{sample}"] * 2


@pytest.mark.parametrize("part", ["{x.stem}", "{x[0]}", "{x:.3f}", "{x!r}"])
def test_parts_and_forms_of_parameters_are_refused_outside_of_quotes(part: str) -> None:
    for template in (f"sort {part}", f"sort $(echo {part})"):
        with pytest.raises(UsageError, match=rf"has {re.escape(part)}, but .*name of a parameter"):
            filled(template, x="value")
    assert seen(filled(f"show '{part}' {{y}}", x=1, y=2)) == [part, "2"]
    assert seen(filled("show {x..z} {x.a,x.b} ${x:-1}", x=1)) == ["x", "y", "z", "x.a", "x.b", "1"]


# -- what cannot be written


@pytest.mark.parametrize("value", [None, True, False, np.True_, [1, None]])
def test_none_and_truth_values_are_refused_with_what_to_do(value: Any) -> None:
    with pytest.raises(UsageError, match="means nothing on a command line; choose what to write"):
        filled("tool {x}", x=value)


@pytest.mark.parametrize("value", [b"bytes", {"a": 1}, np.arange(3), object(), [["nested"]]])
def test_other_things_are_refused(value: Any) -> None:
    with pytest.raises(UsageError, match="texts, paths, numbers and lists"):
        filled("tool {x}", x=value)


def test_a_nul_is_refused() -> None:
    with pytest.raises(UsageError, match="NUL"):
        filled("tool {x}", x="a\0b")


def test_what_needs_quotes_is_refused_between_backquotes() -> None:
    assert filled("echo `basename {x}`", x="a.fa") == "echo `basename a.fa`"
    with pytest.raises(UsageError, match=r"write \$\(\.\.\.\)"):
        filled("echo `basename {x}`", x="a b.fa")
