"""``windrow demo``, and that an installed package has what it needs."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from windrow.cli import loading as demo
from windrow.cli.main import main
from windrow.errors import InternalError

CHECKOUT = Path(__file__).resolve().parents[2]


def test_the_demo_runs_and_cleans_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    result = CliRunner().invoke(main, ["demo", "--rows", "6000", "--workers", "2"])
    assert result.exit_code == 0, result.output
    for region in ("Z", "upsilon", "jpsi", "sideband"):
        assert f"{region} (all datasets): exact" in result.stdout
    assert "6,000 of 6,000 rows done" in result.stdout
    assert " rows/s, " in result.stdout
    assert list(tmp_path.iterdir()) == []


def test_the_demo_keeps_its_files_on_request(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["demo", "--rows", "600", "--keep", str(tmp_path / "kept")])
    assert result.exit_code == 0, result.output
    assert (tmp_path / "kept" / "fileset.json").is_file()
    assert len(list((tmp_path / "kept").glob("*.root"))) == demo.DATA_FILES


def test_the_shipped_copy_comes_first(tmp_path: Path) -> None:
    shipped, checkout = tmp_path / "shipped", tmp_path / "checkout"
    for place in (shipped, checkout):
        place.mkdir()
        for name in demo.FILES:
            (place / name).touch()
    assert demo.example_directory((shipped, checkout)) == shipped
    (shipped / demo.FILES[0]).unlink()  # half a copy is none
    assert demo.example_directory((shipped, checkout)) == checkout
    (checkout / demo.FILES[1]).unlink()
    with pytest.raises(InternalError, match="install Windrow again"):
        demo.example_directory((shipped, checkout))


def test_the_wheel_ships_what_the_demo_looks_for() -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
    shipped = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    package = CHECKOUT / "src" / "windrow"
    inside = demo.PLACES[0].relative_to(Path(demo.__file__).parents[1])
    wanted = {(package / inside / name).relative_to(package.parent) for name in demo.FILES}
    assert {Path(target) for target in shipped.values()} == wanted
    for source, target in shipped.items():
        assert (CHECKOUT / source).is_file()
        assert Path(source).name == Path(target).name
