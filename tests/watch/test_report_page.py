"""The page as text: strict data, nothing unescaped, no paths, plain words about what is missing."""

from __future__ import annotations

import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hist import Hist
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import windrow as wr
from windrow.errors import UsageError
from windrow.pipeline.cutflow.table import Cutflow
from windrow.pipeline.results.ledger import Entry, Ledger
from windrow.pipeline.results.report_data import report_data, unfinished_data, write_report
from windrow.pipeline.results.result import Result, StepSummary
from windrow.watch.readlog import read_log
from windrow.watch.report.plain_data import file_name, without_paths
from windrow.watch.report.run import run_page

VOID = {"meta", "link", "input", "br"}


class Reader(HTMLParser):
    """Checks that elements close in turn; keeps text, tags and the embedded data."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.words: list[str] = []
        self.data = ""
        self._data = False
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        self._data = ("id", "data") in attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.data += data if self._data else ""
        elif self.open and self.open[-1] != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    @property
    def drawn(self) -> Any:
        return json.loads(self.data, parse_constant=pytest.fail)


def made(**changes: Any) -> Result:
    """A result made by hand."""
    values: dict[str, Any] = {
        "name": "made", "outputs": {}, "output_names": (), "cutflow": Cutflow({}),
        "ledger": Ledger((Entry("a.root", "set", 0, 10, "done"),)), "steps": {}, "order": (),
        "decisions": (), "notes": (), "guards": (), "reads": [], "bytes_read": 0, "seconds": 1.0,
        "engine": "inline", "workers": 1, "seed": 0,
    }  # fmt: skip
    return Result(**{**values, **changes})


def page_of(result: Result, lines: list[str] | None = None) -> Reader:
    return Reader(run_page(report_data(result), None if lines is None else read_log(lines)))


def test_a_small_run_makes_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    analysis = wr.Pipeline("small")

    @analysis.cut
    def positive(x: Any) -> Any:
        return x > 0

    analysis.region("SR", "positive")

    @analysis.output(regions="*")
    def spectrum(x: Any) -> Any:
        return Hist.new.Reg(4, 0, 2, name="x").Int64().fill(x)

    x = np.random.default_rng(1).normal(size=1000)
    result = analysis.run({"x": x}, progress=False)
    monkeypatch.chdir(tmp_path)
    assert write_report(result) == Path("report.html")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "report.trace.json"]
    assert result.report(tmp_path / "run.html") == tmp_path / "run.html"
    assert (tmp_path / "run.trace.json").is_file()
    page = Reader((tmp_path / "run.html").read_text(encoding="ascii"))
    assert "Complete: 1,000 of 1,000 rows done." in page.text
    assert f"numpy {np.__version__}" in page.text
    (table,) = page.drawn["cutflow"]["SR"]["datasets"].values()
    assert [line["passed"] for line in table["executed"]] == [1000, int((x > 0).sum())]
    (drawn,) = page.drawn["histograms"]
    assert drawn["values"] == np.histogram(x, bins=np.linspace(0, 2, 5))[0].tolist()
    # Where there is a run directory, the page belongs there.
    result.rundir = str(tmp_path / "kept")
    (tmp_path / "kept").mkdir()
    assert result.report() == tmp_path / "kept" / "report.html"
    assert (tmp_path / "kept" / "trace.json").is_file()


def test_a_place_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no directory"):
        write_report(made(), tmp_path / "nowhere" / "run.html")


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
    | st.just(np.float32("nan")) | st.just(np.array([1.0, math.inf])) | st.just(object) | st.just(Path("/a/b")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    | st.tuples(inner),
    max_leaves=6,
)  # fmt: skip
words = st.text(max_size=12)


@given(
    metadata=st.dictionaries(words, anything, max_size=3),
    outputs=st.dictionaries(st.tuples(words, st.none() | words, words), anything, max_size=4),
    entries=st.lists(
        st.tuples(words, words, st.integers(0, 9), st.none() | st.integers(10, 99),
                  st.sampled_from(["done", "failed", "missing"]), words), max_size=4),
    numbers=st.tuples(st.floats(), st.floats(), st.floats()),
    text=words,
)  # fmt: skip
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_whatever_a_result_holds_is_strict_json_and_a_page(
    metadata: Any, outputs: Any, entries: Any, numbers: Any, text: str
) -> None:
    result = made(
        name=text, outputs={text: outputs}, datasets={text: metadata}, environment=metadata,
        ledger=Ledger(tuple(Entry(*entry) for entry in entries)), notes=(text,), decisions=(text,),
        order=((text, (text,), text),), guards=((text, text),), saved=(metadata,), seconds=numbers[0],
        steps={text: StepSummary(text, "cut", 1, 2, 1, numbers[0], numbers[1], numbers[2], 5)},
        reasons_absent={text: text},
    )  # fmt: skip
    data = report_data(result)
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    page = run_page(data, None)
    assert page.isascii()
    # The chart library is a megabyte of text, too much to parse for every example.
    assert page.count("</script>") == 3


def test_names_cannot_break_the_page() -> None:
    nasty = "</script><script>alert(1)</script><b>\"'&\u2028\ud800@@style@@"
    entry = Entry(nasty, nasty, 0, 10, "failed", nasty)
    result = made(
        name=nasty, datasets={nasty: {"is_mc": True}}, ledger=Ledger((entry,)), notes=(nasty,),
        decisions=(nasty,), order=((nasty, (nasty,), nasty),), environment={nasty: nasty},
        outputs={nasty: {(nasty, nasty, "nominal"): Hist.new.Reg(2, 0, 1, name="x", label=nasty).Double(),
                         ("n", None, "nominal"): {nasty: 1}}},
    )  # fmt: skip
    page = page_of(result)
    assert page.tags.count("script") == 3
    assert page.tags.count("style") == 1
    assert "b" not in page.tags
    name = nasty.replace("\ud800", "?")
    assert page.drawn["histograms"][0]["axes"][0]["label"] == name
    assert page.words[page.words.index("Environment") - 1]  # the menu is still there
    assert page.text.count("alert(1)") >= 6


def test_the_page_needs_nothing_from_elsewhere() -> None:
    text = run_page(report_data(made()), None)
    head = text[: text.index("<style>")]
    assert "default-src 'none'" in head
    outside = re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL)
    assert re.findall(r"(?:src|href)=\"(?!#|data:)", outside) == []
    assert re.findall(r"url\(|@import", outside) == []
    assert "Licensed to the Apache Software Foundation" in text


def test_nothing_says_where_files_are() -> None:
    label, remote = "/home/someone/data/a.root", "root://host.example//store/b.root"
    result = made(
        datasets={"/DYJets/Run2/NANOAODSIM": {"from": label}},
        ledger=Ledger(
            (
                Entry(label, "/DYJets/Run2/NANOAODSIM", 0, None, "missing", f"cannot open {label}: no"),
                Entry(remote, "set", 0, 5, "failed", f"[Errno 2] '{remote}' of /DYJets/Run2/NANOAODSIM"),
            )
        ),
        notes=(f"read {label}, then stopped",),
        saved=({"file": Path(label), "rows": 5},),
        environment={"python": "3.11", "executable": "/usr/bin/python3"},
    )
    text = json.dumps(report_data(result))
    for secret in ("/home", "someone", "host.example", "/store", "/usr/bin"):
        assert secret not in text
    assert "cannot open a.root: no" in text
    assert "/DYJets/Run2/NANOAODSIM" in text
    assert "'b.root' of /DYJets" in text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/a/b/c.root", "c.root"), ("data/c.root", "data/c.root"), ("c.root", "c.root"),
        ("/a/b/c.root:Events", "c.root:Events"), ("C:\\data\\c.root", "c.root"),
        ("https://host/x/c.root", "c.root"), ("~/x/c.root", "c.root"), ("/", "/"),
    ],
)  # fmt: skip
def test_file_names(text: str, expected: str) -> None:
    assert file_name(text) == expected


@pytest.mark.parametrize("text", ["1/2 of the rows", "3 rows/s and 5 MB/s", "and/or", "a // b", "a: b/c", "/"])
def test_words_with_slashes_stay(text: str) -> None:
    assert without_paths(text) == text


def test_what_is_missing_is_said_in_plain_sight() -> None:
    entries = [Entry("a.root", "set", 0, 90, "done"), Entry("a.root", "set", 90, 100, "failed", "it broke")]
    entries += [Entry(f"f{n}.root", "set", 0, None, "missing", "never reached") for n in range(600)]
    page = page_of(made(ledger=Ledger(tuple(entries))))
    assert "Incomplete: 90 of 100 rows done, 10 failed, 600 files never opened." in page.text
    assert "it broke" in page.text
    assert "and 401 more ranges" in page.text
    assert "and 101 more files" in page.text
    assert "Interrupted: 10 of 10" in page_of(made(interrupted=True)).text


S = 1_000_000
TASK = (
    '{"t":%d,"event":"attempt","task":%d,"name":"set","attempt":%d,"worker":0,"launched":%d,"wall":500000,"how":"done",'
    '"cpu":400000,"lock":0,"read":10,"peak":0,"plan":0,"input":%d,"start":%d,"stop":%d,"rows":25}'
)


def test_a_run_that_was_killed_says_so() -> None:
    lines = ['{"t":1000000,"event":"Discovered","input":0,"rows":100,"units":2,"worker":0,"incarnation":0}']
    lines += [TASK % (S * (n + 2), n, n, S * (n + 1) + S // 2, 0, 25 * n, 25 * n + 25) for n in range(3)]
    lines.append(lines[-1][:40])
    log = read_log(lines)
    manifest = {
        "pipeline": "killed",
        "state": "running",
        "inputs": [{"file": "/x/y/a.root", "dataset": "set"}],
        "options": {"workers": 2},
        "started": "then",
    }
    page = Reader(run_page(unfinished_data(manifest, log), log))
    assert "This run did not end: it was killed, or is still going on." in page.text
    assert "75 rows are finished of 100" in page.text
    assert "1 line of the log could not be read" in page.text
    assert "a.root set 75 0 25" in page.text
    assert "2 workers" in page.text
    assert "started then" in page.text
    assert "/x/y" not in page.text
    assert page.drawn["timeline"]["colours"] == ["set"]
    # Even with nothing but the log.
    bare = Reader(run_page(unfinished_data({}, log), log))
    assert "unnamed run" in bare.text


def test_a_run_that_failed_says_why() -> None:
    log = read_log(['{"t":1000000,"event":"Resolve","status":"failed","failure":null,"reason":"bad /a/b/c.root"}'])
    data = unfinished_data({"pipeline": "x", "state": "failed"}, log)
    assert data["headline"] == "This run ended without a result:"
    assert data["verdict"].startswith("it failed: bad c.root")
    nothing = unfinished_data({"state": "failed"}, None)
    assert "it failed." in nothing["verdict"]
    assert "Not known, as the run left no result." in Reader(run_page(nothing, None)).text
    told = unfinished_data({"state": "failed", "error": "step 'x' raised"}, None)
    assert "it failed: step 'x' raised" in told["verdict"]


def test_files_that_were_never_opened_are_told() -> None:
    manifest = {
        "pipeline": "x",
        "state": "running",
        "inputs": [{"file": f"f{n}.root", "dataset": "d"} for n in range(3)],
    }
    data = unfinished_data(manifest, None)
    assert "3 of 3 files were not opened" in data["verdict"]
    assert [line["file"] for line in data["files"]] == ["f0.root", "f1.root", "f2.root"]


def test_a_report_does_not_follow_a_planted_link_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = tmp_path / "mine"
    mine.write_text("precious")
    for name in ("page.html.part", "page.trace.json.part"):
        (tmp_path / name).symlink_to(mine)
    write_report(made(), tmp_path / "page.html")
    assert mine.read_text() == "precious"
    assert not (tmp_path / "page.html").is_symlink()
    before = sorted(tmp_path.iterdir())

    def full(*_: Any) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space"):
        write_report(made(), tmp_path / "page.html")
    assert sorted(tmp_path.iterdir()) == before
