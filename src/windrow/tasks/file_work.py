"""Files of one call in its worker: what it reads is what it was promised, what it writes is private until it is complete."""

# ruff: noqa: PTH102, PTH103, PTH105, PTH107, PTH110, PTH112, PTH114, PTH115, PTH118, PTH119, PTH120, PTH206, PTH208
# Paths are text here: they stay as they were given, links and all.

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from windrow.errors import TaskFileError
from windrow.tasks.file_making import Making, Write, files_made, is_special, place_of, unwritten
from windrow.tasks.file_marks import check_replaceable, names_in
from windrow.tasks.file_moves import copy_file, keep_links, merge, replace, replace_link, settle_links
from windrow.tasks.file_names import FinalNames
from windrow.tasks.file_places import (
    all_moved,
    completed,
    kept,
    locked,
    make_private,
    moved,
    note_begun,
    note_completed,
    remove_private,
    session_directory,
)
from windrow.tasks.file_reading import Read, Reading, each_path, given_path, put_paths
from windrow.tasks.file_stamps import Stamp, stamp

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from windrow.tasks.file_claims import Claim
    from windrow.tasks.worker import RunningCall

__all__ = ["FileWork", "Write", "moved_by"]


@dataclass(frozen=True, slots=True)
class FileWork:
    """The files of a call; done around its body."""

    token: str  #: of the session
    base: str  #: the working directory at the call, where it matters
    reads: tuple[Read, ...]
    writes: tuple[Write, ...]

    @contextmanager
    def around(self, going: RunningCall) -> Iterator[None]:
        """Give the body its paths, and put what it made into place."""
        attempt = _Attempt(self, going)
        try:
            attempt.begin()
            yield
            attempt.end()
        finally:
            attempt.clean()


class _Attempt:
    """One attempt of a call."""

    def __init__(self, work: FileWork, going: RunningCall) -> None:
        self._work = work
        self._going = going
        self._reading = Reading(going, work.token, work.base)
        self._privates: dict[str, tuple[str, list[str]]] = {}  #: by directory of targets
        self._making: list[Making] = []
        self._stamps: dict[tuple[str, str], Stamp] = {}  #: of what was made, before it was moved
        self._paths: list[tuple[Read | Write, str]] = []  #: what the body is given
        self._taken: set[str] = set()  #: paths that are written, private and final

    # -- before the body

    def begin(self) -> None:
        for read in self._work.reads:
            for one in each_path(self._going, read):
                self._paths.append((one, self._reading.source(one)))
        for write in self._work.writes:
            self._open(write)
        put_paths(self._going, self._paths)
        names = {os.path.dirname(one.own): os.path.dirname(one.path) for one in self._making}
        self._names = FinalNames(names | self._reading.names, self._going)
        if self._making:
            self._names.hold_back()

    def _open(self, write: Write) -> None:
        """Give the body a private path to write to."""
        path = given_path(self._going, write, self._work.base)
        if is_special(path):
            self._going.made[write.output] = None
            return
        target = path if write.begins else os.path.realpath(path)
        place = place_of(write, target)
        if place == target:  # of which nobody knows: nothing may be left there
            write = write._replace(keeping=False)
        self._check_replaceable(write, target)
        if place not in self._privates:
            try:
                self._privates[place] = make_private(place, self._work.token, self._going.task)
            except OSError as error:
                raise TaskFileError(
                    f"task {self._going.name!r} writes {path} (parameter {write.parameter!r}, {write.kind.name}), but nothing "
                    f"can be written in {place} ({error.strerror}); see to that, or name another directory"
                ) from error
        own = os.path.join(self._privates[place][0], os.path.basename(path))
        if own in self._taken or target in self._taken:
            raise TaskFileError(
                f"task {self._going.name!r} writes {target} twice: {path} (parameter {write.parameter!r}) is another name of "
                "it; give each output a file of its own"
            )
        self._taken |= {own, target}
        if write.kind.directory and not write.begins:
            os.mkdir(own)
        if write.read is not None:
            copy_file(self._reading.source(write.read), own)
        top = session_directory(place, self._work.token)
        self._making.append(Making(write, path, target, own, place, top))
        self._paths.append((write, own))

    def _check_replaceable(self, write: Write, target: str) -> None:
        if write.kind.pattern or not write.kind.directory:
            return

        def made() -> set[str]:
            places = [os.path.dirname(target), *(place for place, _, _ in os.walk(target))]
            tops = [session_directory(one, self._work.token) for one in places]
            return {one for top in tops for one in all_moved(top)}

        check_replaceable(self._going.name, write.parameter, write.kind, target, self._work.base, made)

    # -- after the body

    def end(self) -> None:
        self._reading.check()
        for private, _ in self._privates.values():
            keep_links(private)
        made: dict[str, list[str]] = {}
        for one in self._making:
            made[one.own], wrong = files_made(one)
            if wrong:
                raise self._unwritten(one, wrong)
        for one in self._making:
            self._check_replaceable(one.write, one.target)  # somebody may have put something there
        if self._going.cancelled():
            return
        self._settle_links(made)
        together: dict[str, list[Making]] = {}
        for one in self._making:
            together.setdefault(one.place, []).append(one)
        for place, making in together.items():
            if all(one.write.claim is None or one.place == one.target for one in making):
                # Nobody knows these paths before: nothing is kept beside them, as nobody would remove it.
                self._move_all(place, making, made)
                continue
            with locked(making[0].top):
                if self._going.cancelled():
                    return
                try:
                    self._complete(place, making, made)
                except OSError as error:
                    raise TaskFileError(
                        f"task {self._going.name!r} has made {', '.join(one.path for one in making)}, but that cannot be put "
                        f"into place: {error}"
                    ) from error
        self._check_links(made)
        self._names.tell()

    def _settle_links(self, made: dict[str, list[str]]) -> None:
        """Make links lead to where things will be; where they are now, they may lead nowhere from then on."""
        for own, names in made.items():
            above = os.path.dirname(own)
            self._stamps.update({(own, one): stamp(os.path.join(above, one)) for one in names})
        for private, _ in self._privates.values():
            settle_links(private, self._names.names)

    def _check_links(self, made: dict[str, list[str]]) -> None:
        """All is in place: a link that leads nowhere is no output."""
        for making in self._making:
            for name in made[making.own]:
                path = os.path.join(os.path.dirname(making.path), name)
                if os.path.islink(path) and not os.path.exists(path):
                    what = f"is a link to {os.readlink(path)}, where nothing is"
                    os.remove(path)
                    raise self._unwritten(making, what)

    def _unwritten(self, making: Making, what: str) -> TaskFileError:
        return unwritten(self._going.name, making, self._making, what)

    def _complete(self, place: str, making: list[Making], made: dict[str, list[str]]) -> None:
        """Move what was made beside some targets into place, unless that was done before."""
        task = self._going.task
        notes, begun = zip(*[completed(one.top, _name(one), task) for one in making], strict=True)
        if None in notes:
            self._begin_to_move(place, making, made, set(begun[-1]))
            for one, found in self._move_all(place, making, made):
                note_completed(one.top, _name(one), task, found)
            return
        # An attempt whose report was lost has done it already. Others may have overwritten it since.
        for one, note in zip(making, notes, strict=True):
            assert note is not None
            self._restore(one, note, made[one.own])
            self._say(one, note)

    def _begin_to_move(self, place: str, making: list[Making], made: dict[str, list[str]], former: set[str]) -> None:
        """Note what will be new; remove what an attempt that was lost on its way has made, and this one has not."""
        private, _ = self._privates[place]
        whole = {os.path.basename(one.own) for one in making if not one.write.kind.pattern}
        found = list(names_in(private))
        names = [one for one in found if os.sep not in one or one.split(os.sep)[0] not in whole]
        for name in former.difference(names):
            with suppress(FileNotFoundError):
                os.remove(os.path.join(place, name))
        new = [one for one in names if one in former or not os.path.lexists(os.path.join(place, one))]
        for one in making:
            paths = [os.path.join(os.path.dirname(one.path), name) for name in made[one.own]]
            known = new if one is making[-1] else []  # which is done last
            note_begun(one.top, _name(one), self._going.task, known, paths)

    def _move_all(
        self, place: str, making: list[Making], made: dict[str, list[str]]
    ) -> list[tuple[Making, list[Stamp]]]:
        """Move what was made into place, declared files last; say what they are like."""
        private, _ = self._privates[place]
        declared = {name.split(os.sep)[0] for one in making for name in made[one.own]}
        declared |= {os.path.basename(one.own) for one in making if not one.write.begins}
        for name in sorted(os.listdir(private)):
            if name not in declared:
                source, target = os.path.join(private, name), os.path.join(place, name)
                self._note_beside(source, target)
                merge(source, target, making[0].top, keeping=False)
        stamped = []
        for one in making:
            self._move(one, private, place, made[one.own])
            found = [self._seen(one, name) for name in made[one.own]]
            self._say(one, found)
            stamped.append((one, found))
        return stamped

    def _seen(self, making: Making, name: str) -> Stamp:
        """Look at a file that was moved into place; another session may have replaced the directory it was in since."""
        path = os.path.join(os.path.dirname(making.path), name)
        try:
            return stamp(path)
        except FileNotFoundError:  # or it is a link to what is moved next
            return self._stamps[making.own, name]._replace(path=path)

    def _move(self, making: Making, private: str, place: str, names: list[str]) -> None:
        write, top = making.write, making.top
        if write.begins:
            for name in names:
                source = os.path.join(private, name)
                merge(source, os.path.join(place, name), top, keeping=write.keeping)
        elif write.kind.pattern:
            self._note_beside(making.own, making.path, {os.path.join(private, one) for one in names})
            merge(making.own, making.target, top, keeping=write.keeping)
        elif self._replaces_link(making):
            replace_link(making.own, making.path)
        else:
            replace(making.own, making.target, top, keeping=write.keeping)

    def _note_beside(self, source: str, target: str, declared: Collection[str] = ()) -> None:
        """Note what goes into place and is no declared output: it is missed too, if somebody removes it."""
        whole = os.path.islink(source) or not os.path.isdir(source)
        names = [""] if whole else names_in(source)
        found = [one for one in names if os.path.join(source, one) not in declared]
        self._going.beside += [os.path.join(target, one) if one else target for one in found]

    def _replaces_link(self, making: Making) -> bool:
        """Whether a link is replaced, and not what it leads to: by another link, or if it leads to what the body reads."""
        if not os.path.islink(making.path) or making.write.kind.reads:
            return False
        reads = [os.path.realpath(text) for one, text in self._paths if isinstance(one, Read)]
        return os.path.islink(making.own) or making.target in reads

    def _restore(self, making: Making, note: list[Stamp], names: list[str]) -> None:
        """Put files back that are nowhere any more."""
        if making.write.kind.keeps_nothing and os.path.lexists(making.target):
            return  # it is replaced as a whole
        private, place = os.path.dirname(making.own), os.path.dirname(making.target)
        lost = {one.path for one in note if not os.path.lexists(one.path) and kept(one, self._work.token) is None}
        for name in names:
            if os.path.join(os.path.dirname(making.path), name) in lost:
                target = os.path.join(place, name)
                os.makedirs(os.path.dirname(target), exist_ok=True)
                os.replace(os.path.join(private, name), target)
        for number, one in enumerate(note):
            if one.path in lost and os.path.lexists(one.path):
                note[number] = stamp(one.path)

    def _say(self, making: Making, found: list[Stamp]) -> None:
        # Plain tuples are small to the engines: they travel with the report.
        plain = [tuple(one) for one in found]
        one = not (making.write.kind.directory or making.write.kind.pattern) and len(plain) == 1
        self._going.made[making.write.output] = plain[0] if one else tuple(plain)

    def clean(self) -> None:
        for place, (private, new) in self._privates.items():
            top = session_directory(place, self._work.token)
            remove_private(private, [*new, top])  # it is empty if nobody knew of the place before
        self._reading.clean()


def _name(making: Making) -> str:
    """Give the name by which completed files of a session are known beside each other."""
    return _noted_as(making.path, making.write.claim)


def _noted_as(path: str, claim: Claim | None) -> str:
    return os.path.relpath(path if claim is None else claim.path, os.path.dirname(path))


def moved_by(task: int, write: Write, token: str) -> list[str]:
    """List the files that a task has put into place, or is about to, though it may not have said so."""
    target = write.path if write.begins else os.path.realpath(write.path)
    top = session_directory(os.path.dirname(target), token)
    return moved(top, _noted_as(write.path, write.claim), task)
