"""What a template becomes: every value arrives at the program as it was given, and all other braces stay."""

from __future__ import annotations

import contextlib
import random
import re
import subprocess
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import windrow as wr
from searching import examples
from windrow.errors import UsageError
from windrow.tasks.commands.template import Template

texts = st.text(
    st.one_of(
        st.characters(exclude_characters="\0", exclude_categories=["Cs"]),
        st.sampled_from("'\"\\$`!*?~#&;|<>(){}[] \n\t-=%"),
    ),
    max_size=12,
)


def filled(template: str, **values: Any) -> str:
    return Template("t", values.__getitem__, list(values)).fill_line(template)


def seen(script: str) -> list[str]:
    """Ask a real shell and a real program what they were given."""
    full = f"show() {{ env printf '%s\\0' \"$@\"; }}\n{script}"
    ran = subprocess.run(["bash", "-euo", "pipefail", "-c", full], capture_output=True, check=True)
    return ran.stdout.decode().split("\0")[:-1]


#: Strings that mean something to a shell somewhere, or end something.
HOSTILE = [
    "", " ", "a b", "'", '"', "''", "a'b", 'a"b', "\\", "\\\\", "a\\", "\\'", '\\"', "\\n", "\n", "a\nb", "a\n", "\nid\n", "\\\n",
    "$", "$$", "$HOME", "${HOME}", "$(id)", "$((1+1))", "$[1]", "`id`", "`", "a[$(id)]", "x=1", "-n", "--", "-e", "*", "?", "[a]",
    "~", "!", "!!", "#", "# a", "a#b", "&", "&&", "|", ";", "; id", "<", ">", "> /dev/null", "<<EOF", "\nEOF\nid\n", "EOF", "(", ")",
    "()", "{", "}", "{x}", "{{x}}", "{a,b}", "%s", "é\u2028", "\t", "\r", "')id('", "'; id; '", '"; id; "', "'$(id)'", "$'\\n'",
]  # fmt: skip

#: Where every value arrives.
OPEN = [
    ("show {x}", "{x}"), ("show a{x}b", "a{x}b"), ("show 'a {x} b'", "a {x} b"), ('show "a {x} b"', "a {x} b"),
    ("show $'a{x}\\tb'", "a{x}\tb"), ('show "$(printf %sE {x})"', "{x}E"), ("A={x}; show \"$A\" # it isn't {x}", "{x}"),
]  # fmt: skip


def test_hostile_texts_arrive_as_they_are_wherever_they_stand() -> None:
    """All of them in one shell for each place, since starting one takes longest."""
    for template, wanted in OPEN:
        script = "\n".join(filled(template, x=one) for one in HOSTILE)
        assert seen(script) == [wanted.replace("{x}", one) for one in HOSTILE]


@settings(max_examples=examples(25))
@given(texts, st.lists(texts, max_size=3), st.integers() | st.floats(allow_nan=False))
def test_values_arrive_as_they_were_given(text: str, several: list[str], number: float) -> None:
    lines = [filled(template, x=text) for template, _ in OPEN]
    script = "\n".join([*lines, filled("show -n={n} {l} end '{l}'", l=several, n=number)])
    arrived = [wanted.replace("{x}", text) for _, wanted in OPEN]
    assert seen(script) == [*arrived, f"-n={number}", *several, "end", " ".join(several)]


#: Where values arrive or are refused, and what is shown of them.
NARROW = [
    ("show `printf %sE {x}`", ["{x}E"]),
    ('show "`printf %sE {x}`"', ["{x}E"]),
    ('show "${Y:-{x}}" ${Y:-{x}}', ["{x}", "{x}"]),
    ('A={x}; show "E${A#{x}}E"', ["EE"]),
    ('show "$(printf %sE "{x}")" {x}', ["{x}E", "{x}"]),
    ('show "$( (printf %sE {x}) )" "{x}"', ["{x}E", "{x}"]),
    ("show \"$(case a in a) printf %sE {x};; esac)\" '{x}'", ["{x}E", "{x}"]),
    ("show \"$(printf %s 'a')\" {x}", ["a", "{x}"]),
    ("((1<2)); show {x}", ["{x}"]),
    ("show $((1<<2)) $(( (1 + 2) * $((3)) )) {x}", ["4", "9", "{x}"]),
    ('show "$(cat <<EOF\n{x}\nEOF\n)E"', ["{x}E"]),
    ('IFS= read -r a <<EOF\n{x}\nEOF\nshow "$a" {x}', ["{x}", "{x}"]),
    ("IFS= read -r a <<-'END-OF'\n\t{x}\n\tit's `\n\tEND-OF\nshow \"$a\" {x}", ["{x}", "{x}"]),
    ("cat <<\\EOF > {none}/dev/null\nit's `\n{x}\n{x}\nEOF\nshow {x}", ["{x}"]),
    ('show "$(cat <<< {x}E)" {x}', ["{x}E", "{x}"]),
    ("show a\\\n#{x}", ["a#{x}"]),
    ("show $(printf a)#{x}", ["a#{x}"]),
    (": \\\n# it isn't {x}\nshow {x}", ["{x}"]),
    ("show \\ #{x} a\\'#{x}", [" #{x}", "a'#{x}"]),
    ("(true)# it isn't {x}\nshow {x}", ["{x}"]),
    ("show {none}#{x}", ["#{x}"]),
    ("show $'a\\\\{x}'", ["a\\{x}"]),
]


@pytest.mark.parametrize(("template", "wanted"), NARROW)
def test_elsewhere_hostile_texts_arrive_or_are_refused(template: str, wanted: list[str]) -> None:
    scripts, arrived = [], []
    for text in [*HOSTILE, "a.fa"]:
        with contextlib.suppress(UsageError):
            scripts.append(f"{{ {filled(template, x=text, none=[])}\n}}")
            arrived += [one.replace("{x}", text) for one in wanted]
    assert seen("\n".join(scripts)) == arrived


@settings(max_examples=examples(40))
@given(st.sampled_from(NARROW), texts)
def test_elsewhere_any_text_arrives_or_is_refused(place: tuple[str, list[str]], text: str) -> None:
    template, wanted = place
    try:
        script = filled(template, x=text, none=[])
    except UsageError:
        return
    assert seen(script) == [one.replace("{x}", text) for one in wanted]


@pytest.mark.parametrize("template", [one for one, _ in NARROW if '"$(cat <<EOF' not in one])
def test_plain_names_stand_anywhere(template: str) -> None:
    assert "a.fa" in filled(template, x="a.fa", none=[])


@pytest.mark.parametrize(
    "template",
    ["$(( {x} ))", "(( {x} ))", "$[ {x} ]", '"$((1 + {x}))"', "`{x}`", "${Y#{x}}", '"${Y/{x}/b}"', "\"$(echo ')' {x})\"",
     "\"${Y:-'{x}'}\"", 'echo "$(cat "a")"; cat {x}', "cat <<EOF\n${Y:-{x}}\nEOF", "cat <<EOF\n$(ls {x})\nEOF"],
)  # fmt: skip
def test_what_cannot_be_quoted_for_sure_is_refused(template: str) -> None:
    assert filled(template, x="a") == template.replace("{x}", "a")
    for value in ("a b", "a[$(id)]", "}", "$(ls)", "'", "a\nb"):
        with pytest.raises(UsageError, match="put it into a variable of the shell before"):
            filled(template, x=value)


@pytest.mark.parametrize(
    "template",
    ["cat <<EOF\n{x}", "cat <<EOF\n{x}\n EOF", "echo $(cat <<EOF\n{x}\nEOF)", "echo $(cat <<EOF)\n{x}\nEOF\n", "cat <<{x}\na\n{x}",
     "cat <<$E\n{x}\n$E", "cat <<''\n{x}\n\n", "cat <<A <<B\n{x}\nB\n{x}\nA", "cat <<E'O'F\n{x}\nEOF", "cat <<EOF # it's\n{x}\nEOF",
     "cat <<EOF,\n{x}\nEOF\n", "echo \"$(cat <<EOF\n{x}\nEOF\n)\""],
)  # fmt: skip
def test_a_document_that_cannot_be_read_is_refused(template: str) -> None:
    with pytest.raises(UsageError, match="here-document"):
        filled(template, x="a b")


def test_a_value_cannot_end_its_document() -> None:
    for template, values in (
        ("cat <<EOF\n{x}\n{y}\nEOF", {"x": "EOF", "y": "id"}),
        ("cat <<'EOF'\n{x}{y}\nEOF", {"x": "EO", "y": "F"}),
        ("cat <<-EOF\n\t{x}\n{y}\n\tEOF", {"x": "\tEOF", "y": "id"}),
        ("cat <<EOF\nEO\\\n{x}\n{y}\nEOF", {"x": "F", "y": "id"}),
        ("cat <<EOF\n{x}{y}\nEOF", {"x": "a\nEOF\nid", "y": ""}),
    ):
        with pytest.raises(UsageError, match="here-document"):
            filled(template, **values)


@given(texts, st.lists(texts, max_size=3))
def test_words_without_a_shell_are_the_values(text: str, several: list[str]) -> None:
    values: dict[str, Any] = {"x": text, "l": several}
    template = Template("t", values.__getitem__, list(values))
    words = template.fill_words(["show", "{x}", "a{x}b", "{l}", "{{x}}", 3])
    assert words == ["show", text, f"a{text}b", *several, "{x}", "3"]


def test_a_word_that_is_an_argument_is_no_template() -> None:
    @wr.command
    def echo(pattern: str, out: str) -> list[str]:
        return ["printf", "%s|", pattern, "{pattern}", "{out}"]

    assert echo("in {out}", "there") == "in {out}|in {out}|there|"


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
        r"echo $'\{x}'",
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


@pytest.mark.parametrize("template", ["sort {sample}", "sort $(echo {sample})"])
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


@pytest.mark.parametrize("value", [None, True, False, np.True_, [1, True]])
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


# -- any template: what is accepted runs nothing of a value

PIECES = [
    "{x}", "{x}", "{x}", "a", "$a", "${a}", " ", "\\ ", "\\\n", "#", " # c", "{none}", "1", "\\{x}", "\\\\{x}", "\\'", '\\"', "\\`",
    "\n", "; echo ", "case", "$", "{{x}}",
]  # fmt: skip
AROUND = [
    "'@'", '"@"', "$'@'", "$(echo @)", '"$(echo @)"', "`echo @`", "${Y:-@}", '"${Y:-@}"', "$((@))", "((@)); echo ", "$[@]",
    '"$(case a in a) echo @;; esac)"', "$(case a in a) echo @;; esac)", "\ncat <<EOF\n@\nEOF\necho ", "\ncat <<'EOF'\n@\nEOF\necho ",
    "\ncat <<-EOF\n\t@\n\tEOF\necho ", "$(cat <<EOF\n@\nEOF\n)", '"$(cat <<EOF\n@\nEOF\n)"', " # @\necho ", "<<< @", "\n(echo @)\n",
    "$( (echo @) )", "\n{ echo @; }\necho ", "<(echo @)", "@@", "\ncase a in @) echo a;; esac\necho ", "'it'\\''s @'", "b=@; echo ",
]  # fmt: skip
#: Each would make a file ``C`` if a shell ran it.
HARMFUL = [
    "$(>C)", ";>C;", "\n>C\n", "'\n>C\n'", '"\n>C\n"', ")\n>C\n(", "`>C`", "'$(>C)'", "\\\n>C\n", "EOF\n>C\n", "a[$(>C)]", ">C", "|>C",
    "}\n>C\n", "))\n>C\n", "\\$(>C)", "\n>C #", "' >C '", '" >C "', "#\n>C\n",
]  # fmt: skip


def grown(rng: random.Random, depth: int) -> str:
    if depth == 0 or rng.random() < 0.3:
        return rng.choice(PIECES)
    return re.sub("@", lambda _: grown(rng, depth - 1), rng.choice(AROUND))


@pytest.mark.slow
def test_whatever_template_is_accepted_runs_nothing_of_a_value(tmp_path: Path) -> None:
    rng = random.Random(11)
    accepted: list[tuple[str, str, str]] = []
    while len(accepted) < 3000:
        template = "echo " + "".join(grown(rng, 3) for _ in range(rng.randint(1, 4)))
        at = rng.randrange(len(template))
        if rng.random() < 0.5:  # not even well written
            template = template[:at] + rng.choice("'\"`()\\\n#};") + template[at + rng.randint(0, 1) :]
        value = rng.choice(HARMFUL)
        with contextlib.suppress(UsageError):
            script = filled(template, x=value, none=[])
            (tmp_path / f"{len(accepted):04d}.sh").write_text(script)
            accepted.append((template, value, script))
    (tmp_path / "in").mkdir()
    run_all = 'for f in ../*.sh; do (unset Y; a=A; . "$f") < /dev/null &> /dev/null; if [ -e C ]; then basename "$f" .sh; fi; rm -f ./*; done'
    ran = subprocess.run(["bash", "-c", run_all], cwd=tmp_path / "in", capture_output=True, text=True, check=True)
    assert [accepted[int(number)] for number in ran.stdout.split()] == []
