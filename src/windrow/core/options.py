"""What the user asked of a run, and what it spent on things that went wrong."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the user asked of a run."""

    retries: int = 2  #: of a read that may succeed the next time
    crashes: int = 2  #: times that a task may end its worker before it is at fault
    restart: bool = False  #: start a worker again when it is lost; needs an engine that can
    open: bool = False  #: more may be submitted; the run does not end before ``Closed``
    ahead: bool = False  #: short tasks are launched behind those that they read from
    speculate: bool = False  #: run a straggler twice near the end; needs an engine that can kill
    io_workers: int = 0  #: workers for input and output that may be started when tasks need them
    first_io: int = 0  #: number of the first of them at least


@dataclass(slots=True)
class Spent:
    """What a run spent on things that went wrong: the one budget that reports show."""

    retries: int = 0  #: of reads
    crashes: int = 0  #: workers that a task ended
    losses: int = 0  #: workers that ended otherwise, without being told to
    exhaustions: int = 0  #: attempts that were ended at a limit
    copies: int = 0  #: attempts that ran a straggler a second time
