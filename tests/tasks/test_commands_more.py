"""Command lines, more of them: what stands for what, and when they are run again."""

from __future__ import annotations

import windrow as wr


def test_tmp_is_one_directory_wherever_it_stands() -> None:
    @wr.command
    def through() -> str:
        return "echo well > {tmp}/x; cat {tmp}/x"

    assert through() == "well\n"
