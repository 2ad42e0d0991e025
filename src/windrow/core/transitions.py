"""The states of attempts and inputs, and every legal move between them: one table each."""

from __future__ import annotations

import enum
from typing import TypeVar

from windrow.errors import InternalError

__all__ = ["ATTEMPT_MOVES", "INPUT_MOVES", "AttemptState", "InputState", "move"]


class AttemptState(enum.IntEnum):
    """Where an attempt is; the last five are ends."""

    LAUNCHED = 0  #: in its worker's queue
    RUNNING = 1
    CANCELLING = 2  #: told to stop; it holds its worker until it returns
    ACCEPTED = 3  #: the ledger holds its rows
    DISCARDED = 4  #: finished, but its rows had an owner or nobody wanted them any more
    FAILED = 5
    CANCELLED = 6
    LOST = 7  #: with its worker


class InputState(enum.IntEnum):
    """Where an input is."""

    WAITING = 0  #: nobody opened it
    INSPECTING = 1  #: a worker opens it
    DELAYED = 2  #: opening it failed and will be tried again
    KNOWN = 3  #: rows and borders are known; earlier inputs decide how many rows are wanted
    OPEN = 4  #: rows can be cut from it
    BAD = 5  #: given up: no more rows are cut from it


_A, _I = AttemptState, InputState
_ENDS = frozenset({_A.ACCEPTED, _A.DISCARDED, _A.FAILED, _A.CANCELLED, _A.LOST})

ATTEMPT_MOVES: dict[AttemptState, frozenset[AttemptState]] = {
    _A.LAUNCHED: _ENDS | {_A.RUNNING, _A.CANCELLING},
    _A.RUNNING: _ENDS | {_A.CANCELLING},
    _A.CANCELLING: _ENDS,
    **dict.fromkeys(_ENDS, frozenset[AttemptState]()),
}
INPUT_MOVES: dict[InputState, frozenset[InputState]] = {
    _I.WAITING: frozenset({_I.INSPECTING, _I.KNOWN}),
    _I.INSPECTING: frozenset({_I.WAITING, _I.DELAYED, _I.KNOWN, _I.BAD}),
    _I.DELAYED: frozenset({_I.WAITING, _I.KNOWN}),
    _I.KNOWN: frozenset({_I.OPEN}),
    _I.OPEN: frozenset({_I.BAD}),
    _I.BAD: frozenset(),
}

_State = TypeVar("_State", AttemptState, InputState)


def move(
    table: dict[_State, frozenset[_State]], old: _State, new: _State, who: str, number: int
) -> _State:
    """Return the new state if the move is legal; otherwise tell the story."""
    if new not in table[old]:
        legal = ", ".join(sorted(state.name for state in table[old])) or "nowhere: it has ended"
        raise InternalError(
            f"{who} {number} cannot go from {old.name} to {new.name}; it can go to {legal}"
        )
    return new
