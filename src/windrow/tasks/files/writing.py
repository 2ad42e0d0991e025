"""Files of one call in its worker: what the body writes is private until it is complete, and then put into place."""

# ruff: noqa: PTH102, PTH110, PTH112, PTH113, PTH114, PTH116, PTH118, PTH119, PTH120, PTH202, PTH206, PTH208
# ruff: noqa: PTH104, PTH105, PTH115, PTH117, PTH123
# Paths are text here: they stay as they were given, links and all.

from __future__ import annotations

import contextlib
import ctypes
import errno
import glob
import os
import secrets
import shutil
import stat as modes
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from windrow.errors import TaskFileError
from windrow.globs import matching
from windrow.tasks.body import releasing_through
from windrow.tasks.call import map_nested
from windrow.tasks.files.ownership import check_replaceable, mark_directory, mark_file, names_in, others_in
from windrow.tasks.files.paths import as_given
from windrow.tasks.files.reading import Read, check_promised, check_unchanged, find_paths, put_paths
from windrow.tasks.files.scratch import make_private, remove_private, session_directory
from windrow.tasks.files.stamps import OURS, Stamp, files_in, stamp

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from windrow.tasks.files.claims import Claim
    from windrow.tasks.files.paths import GivenPath
    from windrow.tasks.worker import RunningCall


#: Held while files are put into place: an attempt on a thread that is called off meanwhile is done before its successor, or not at all.
_PUBLISHING = threading.Lock()


class Write(NamedTuple):
    """A path that the body writes."""

    given: GivenPath
    output: str  #: by which the graph knows what is said of the files
    claim: Claim
    begins: bool = False  #: names of several files begin with the path
    read: Read | None = None  #: of a file that is changed
    inside: frozenset[str] = frozenset()  #: files in a directory that tasks of the session write
    plain: bool = False  #: one file, which may be made while others read the former one


class _Making(NamedTuple):
    write: Write
    path: str  #: as the user knows it
    target: str  #: the same, without links
    own: str  #: where the body writes it
    place: str  #: in which its private directory is

    def final(self, name: str) -> str:
        return os.path.join(os.path.dirname(self.path), name)


@dataclass(frozen=True, slots=True)
class FileWork:
    """The files of a call; done around its body."""

    token: str  #: of the session
    base: str  #: the working directory at the call
    reads: tuple[Read, ...]
    writes: tuple[Write, ...]
    later: bool = False  #: others read the former files: the driver puts the new ones into place when those have ended

    @contextmanager
    def around(self, going: RunningCall) -> Iterator[None]:
        attempt = _Attempt(self, going)
        try:
            attempt.begin()
            yield
            attempt.end()
        except BaseException:
            attempt.clean()
            raise
        if not self.later:
            attempt.clean()


class _Attempt:
    def __init__(self, work: FileWork, going: RunningCall) -> None:
        self._work = work
        self._going = going
        self._read: list[str] = []  #: paths that the body reads
        self._relied: list[Stamp] = []  #: as those files have to stay meanwhile
        self._privates: dict[str, tuple[str, list[str]]] = {}  #: by directory of targets
        self._making: list[_Making] = []
        self._taken: set[str] = set()  #: paths that are written, private and final
        self._names: dict[str, str] = {}  #: final names of private directories

    # -- before the body

    def begin(self) -> None:
        paths: list[tuple[GivenPath, str]] = []
        for read in self._work.reads:
            for where, text in find_paths(self._going, read, self._work.base):
                self._relied += check_promised(self._going, read, text)
                paths.append((where, text))
        self._read = [text for _, text in paths]
        for write in self._work.writes:
            path = os.fspath(write.given.path)
            if _is_special(path):
                self._going.made[write.output] = None
                paths.append((write.given, path))
            else:
                paths.append((write.given, self._open(write, path)))
        put_paths(self._going, paths)
        if self._making:
            self._names = {os.path.dirname(one.own): os.path.dirname(one.path) for one in self._making}
            self._going.function = releasing_through(
                self._going.function, lambda release, number, value: release(number, tell_finally(value, self._names))
            )

    def _open(self, write: Write, path: str) -> str:
        target = path if write.begins else os.path.realpath(path)
        place = _place_of(write, target)
        self._check_replaceable(write, target)
        if os.path.islink(path) and write.read is None and target in map(os.path.realpath, self._read):
            raise TaskFileError(
                f"task {self._going.name!r} writes {path} (parameter {write.given.parameter!r}), which is a link to {target}, "
                "which it reads; remove the link, or name another file"
            )
        if place not in self._privates:
            try:
                self._privates[place] = make_private(place, self._work.token, self._going.task)
            except OSError as error:
                raise TaskFileError(
                    f"task {self._going.name!r} writes {path} (parameter {write.given.parameter!r}, {write.given.kind.name}), "
                    f"but nothing can be written in {place} ({error.strerror}); see to that, or name another directory"
                ) from error
        own = os.path.join(self._privates[place][0], os.path.basename(path))
        if own in self._taken or target in self._taken:
            raise TaskFileError(
                f"task {self._going.name!r} writes {target} twice: {path} (parameter {write.given.parameter!r}) is another "
                "name of it; give each output a file of its own"
            )
        self._taken |= {own, target}
        if write.given.kind.directory and not write.begins:
            os.mkdir(own)
        if write.read is not None:
            self._relied += check_promised(self._going, write.read, path)
            copy_file(path, own)
        self._making.append(_Making(write, path, target, own, place))
        return own

    def _check_replaceable(self, write: Write, target: str) -> None:
        given = write.given
        if given.kind.directory and not given.kind.pattern:
            check_replaceable(
                self._going.name, given.parameter, given.kind, target, self._work.base, write.inside
            )  # fmt: skip

    # -- after the body

    def end(self) -> None:
        check_unchanged(self._going, self._relied)
        for private, _ in self._privates.values():
            check_links(self._going.name, private)
        made: dict[str, list[str]] = {}
        for one in self._making:
            made[one.own], wrong = _files_made(one)
            if wrong:
                raise self._unwritten(one, wrong)
        for one in self._making:
            self._check_replaceable(one.write, one.target)  # somebody may have put something there
        with _PUBLISHING:
            if self._going.cancelled():
                return
            for place, (private, _) in self._privates.items() if not self._work.later else ():
                making = [one for one in self._making if one.place == place]
                try:
                    self._move_all(private, place, making, made)
                except OSError as error:
                    raise TaskFileError(
                        f"task {self._going.name!r} has made {', '.join(one.path for one in making)}, but that cannot be put "
                        f"into place: {error}"
                    ) from error
        if self._work.later:
            self._leave(made)
        self._going.made = {name: tell_finally(value, self._names) for name, value in self._going.made.items()}

    def _leave(self, made: dict[str, list[str]]) -> None:
        """Say what the files will be like that ``publish`` puts into place."""
        for place, (private, _) in self._privates.items():
            for name in sorted(set(os.listdir(private)) - {one for names in made.values() for one in names}):
                self._note_beside(os.path.join(private, name), os.path.join(place, name))
        for one in self._making:
            _tell_apart(one.own, one.target)
            self._going.made[one.write.output] = (one.path, *stamp(one.own)[1:])

    def _unwritten(self, making: _Making, what: str) -> TaskFileError:
        private, given = os.path.dirname(making.own), making.write.given
        declared = {os.path.basename(one.own) for one in self._making}
        names = [os.path.relpath(one, private) for one in files_in(private)]
        others = [one for one in names if one.split(os.sep)[0] not in declared]
        beside = f"; it made {others[:10]} beside it" if others else ""
        return TaskFileError(
            f"task {self._going.name!r} has ended, and {making.path} (parameter {given.parameter!r}, {given.kind.name}) "
            f"{what}{beside}; it has to be written to the path that the body is given, which is a private one until then"
        )

    def _move_all(self, private: str, place: str, making: list[_Making], made: dict[str, list[str]]) -> None:
        """Move what was made beside some targets into place, declared files last; say what they are like."""
        declared = {name.split(os.sep)[0] for one in making for name in made[one.own]}
        declared |= {os.path.basename(one.own) for one in making if not one.write.begins}
        for name in sorted(os.listdir(private)):
            if name not in declared:
                source, target = os.path.join(private, name), os.path.join(place, name)
                self._note_beside(source, target)
                merge(source, target, self._going.name)
        for one in making:
            names = made[one.own]
            self._move(one, names)
            # Plain tuples are small to the engines: they travel with the report.
            said = [tuple(stamp(one.final(name))) for name in names]
            single = not one.write.given.kind.directory and not one.write.given.kind.pattern
            self._going.made[one.write.output] = said[0] if single else tuple(said)

    def _move(self, making: _Making, names: list[str]) -> None:
        write, task = making.write, self._going.name
        if write.begins:
            for name in names:
                merge(_beside(making.own, name), os.path.join(making.place, name), task)
        elif write.given.kind.pattern:
            self._note_beside(making.own, making.path, {_beside(making.own, one) for one in names})
            merge(making.own, making.target, task)
        else:
            replace(making.own, making.target, task)

    def _note_beside(self, source: str, target: str, declared: Collection[str] = ()) -> None:
        """Note what goes into place and is no declared output: it is missed too, if it is removed."""
        whole = os.path.islink(source) or not os.path.isdir(source)
        names = [""] if whole else names_in(source)
        found = [one for one in names if os.path.join(source, one) not in declared]
        self._going.beside += [os.path.join(target, one) if one else target for one in found]

    def clean(self) -> None:
        for private, new in self._privates.values():
            remove_private(private, new)


def _beside(own: str, name: str) -> str:
    return os.path.join(os.path.dirname(own), name)


def _place_of(write: Write, target: str) -> str:
    """Say where a private directory is for an output: beside it, or in it, if nothing can be moved into it from there."""
    above = os.path.dirname(target)
    merges = write.given.kind.pattern and not write.begins and os.path.isdir(target)
    if merges and (os.path.ismount(target) or not os.access(above, os.W_OK)):
        return target
    return above


def _is_special(path: str) -> bool:
    """Whether a path is a device or pipe, such as the one that swallows everything."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return not (modes.S_ISREG(mode) or modes.S_ISDIR(mode))


# -- what was made


def _files_made(making: _Making) -> tuple[list[str], str]:
    """List the files of a declared output, relative to where the body was to write it; and say what is wrong with them."""
    own, kind = making.own, making.write.given.kind
    found = [own]
    if kind.pattern:
        found, wrong = _matching_files(making)
    elif os.path.isdir(own):
        found = list(files_in(own))
        wrong = "" if found or kind.may_be_empty else "is an empty directory"
        if not kind.directory:
            wrong = "was made as a directory; annotate the parameter with wr.OutDir, or write a file"
    elif os.path.exists(own):
        wrong = "" if os.path.getsize(own) or kind.may_be_empty else "is an empty file"
    else:
        wrong = "was not written"
    return sorted(os.path.relpath(one, os.path.dirname(own)) for one in found), wrong


def _matching_files(making: _Making) -> tuple[list[str], str]:
    own, claim, may_be_empty = making.own, making.write.claim, making.write.given.kind.may_be_empty
    pattern = glob.escape(own) + claim.path[len(glob.escape(making.path)) :]
    found = [one for one in matching(pattern) if os.path.isfile(one)]
    empty = [] if may_be_empty else [one for one in sorted(found) if not os.path.getsize(one)]
    wrong, what = "", repr(os.path.basename(claim.path))
    if not found and not (may_be_empty and os.path.isdir(own)):
        wrong = f"has no file that matches {what}"
    elif empty:
        names = [os.path.relpath(one, os.path.dirname(own)) for one in empty[:10]]
        wrong = f"has empty files that match {what}: {names}"
    return found, wrong


def tell_finally(value: Any, names: Mapping[str, str]) -> Any:
    """Put final names where private ones are in what a body returns or releases: the program knows the files by those.

    Bodies like to return the paths they were given, or found, or a text that has them.
    """

    def final(thing: Any) -> Any:
        if isinstance(thing, bytes) and OURS.encode() in thing:
            content = os.fsencode(_in_text(os.fsdecode(thing), names))
            return thing if content == thing else content
        if not isinstance(thing, (str, os.PathLike)):
            return thing
        text = os.fspath(thing)
        if not isinstance(text, str) or OURS not in text:
            return thing
        known = _in_text(text, names)
        return thing if known == text else as_given(thing, known)

    return map_nested(value, final) if names else value


def _in_text(text: str, names: Mapping[str, str]) -> str:
    for private in sorted(names, key=len, reverse=True):
        text = text.replace(private, names[private])
    return text


# -- moving what was made into place: each file in one step, a directory as a whole or file by file

#: Nanoseconds by which a file is made younger, until its time differs: some file systems keep seconds only.
_STEPS_NS = (1, 1_000, 1_000_000, 1_000_000_000, 2_000_000_000)

#: Of the kernel.
AT_FDCWD, RENAME_EXCHANGE = -100, 2


def publish(token: str, number: int, task: str, writes: tuple[Write, ...]) -> None:
    """Put into place what an attempt has left in its private directories, declared files last."""
    paths = [path for one in writes if not _is_special(path := os.fspath(one.given.path))]
    places: dict[str, dict[str, str]] = {}
    for path in paths:
        target = os.path.realpath(path)
        places.setdefault(os.path.dirname(target), {})[os.path.basename(path)] = target
    with _PUBLISHING:
        try:
            for place, declared in places.items():
                top = session_directory(place, token)
                private = os.path.join(top, next(one for one in os.listdir(top) if one.startswith(f"{number}-")))
                beside = sorted(set(os.listdir(private)) - set(declared))
                for name, target in ({one: os.path.join(place, one) for one in beside} | declared).items():
                    merge(os.path.join(private, name), target, task)
                remove_private(private, [])
        except (OSError, StopIteration) as error:
            raise TaskFileError(
                f"task {task!r} has made {', '.join(paths)}, but that cannot be put into place: {error!r}"
            ) from error


def replace(source: str, target: str, task: str) -> None:
    if not os.path.isdir(source) or os.path.islink(source):
        _replace_file(source, target, task)
        return
    if os.path.isdir(target):
        for one in files_in(source):
            _tell_apart(one, os.path.join(target, os.path.relpath(one, source)))
        shutil.copymode(target, source)
    mark_directory(source, target, task, without=set(others_in(target)))
    _replace_directory(source, target)


def _replace_directory(source: str, target: str) -> None:
    try:
        os.rename(source, target)  # nothing is there, or an empty one
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        if not _exchange(source, target):
            _exchange_in_steps(source, target)
        shutil.rmtree(source, ignore_errors=True)


def _exchange(one: str, other: str) -> bool:
    """Exchange two directories in one step, where the system can: there is one at every moment."""
    function = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if function is None:
        return False
    return not function(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE)


def _exchange_in_steps(source: str, target: str) -> None:
    aside = f"{os.path.dirname(source)}{os.sep}{OURS}aside-{secrets.token_hex(4)}"
    os.rename(target, aside)
    try:
        os.rename(source, target)
    except OSError:
        with contextlib.suppress(OSError):
            os.rename(aside, target)
        raise
    shutil.rmtree(aside, ignore_errors=True)


def merge(source: str, target: str, task: str) -> None:
    """Put a file in place, or all files of a directory into another, beside what is there."""
    if not os.path.isdir(source) or os.path.islink(source):
        replace(source, target, task)
        return
    if not os.path.lexists(target):
        mark_directory(source, target, task)
        os.rename(source, target)
        return
    for name in sorted(os.listdir(source)):
        merge(os.path.join(source, name), os.path.join(target, name), task)


def _replace_file(source: str, target: str, task: str) -> None:
    if not os.path.islink(source) and os.lstat(source).st_nlink == 1:  # else it is somebody's file
        with contextlib.suppress(FileNotFoundError):
            shutil.copymode(target, source)  # who may read it does not change
        _tell_apart(source, target)
        mark_file(source, target, task)
    os.replace(source, target)


def _tell_apart(source: str, target: str) -> None:
    """See that size and time tell a file from the one it replaces, however fast one follows the other."""
    for step in _STEPS_NS:
        new = os.lstat(source)
        if new.st_nlink > 1 or not modes.S_ISREG(new.st_mode):
            return  # by another name it is somebody's input, perhaps, which stays as it is
        try:
            former = os.stat(target)
        except OSError:
            return
        if (new.st_size, new.st_mtime_ns) != (former.st_size, former.st_mtime_ns):
            return
        os.utime(source, ns=(new.st_atime_ns, new.st_mtime_ns + step))


def check_links(task: str, private: str) -> None:
    """Refuse links that would lead elsewhere from where the files are put: a link stays within its own directory."""
    for place, directories, files in os.walk(private):
        top = os.path.join(private, os.path.relpath(place, private).split(os.sep)[0], "")
        for name in (*directories, *files):
            link = os.path.join(place, name)
            if not os.path.islink(link):
                continue
            to = os.readlink(link)
            inside = os.path.join(os.path.normpath(os.path.join(place, to)), "").startswith(top)
            stays = OURS not in to if os.path.isabs(to) else inside
            if place == private or not stays:
                raise TaskFileError(
                    f"task {task!r} has made {os.path.relpath(link, private)}, a link to {to}; an output is a file or a directory "
                    "itself, in which links lead to what is in it by a relative path, or elsewhere by an absolute one: write a copy"
                )


def copy_file(source: str, target: str) -> None:
    """Copy content and rights; a file system that can share the blocks does."""
    with open(source, "rb") as read, open(target, "wb") as write:
        try:
            left = os.fstat(read.fileno()).st_size
            while left > 0:
                count = os.copy_file_range(read.fileno(), write.fileno(), left)
                if not count:
                    break
                left -= count
        except (AttributeError, OSError):
            read.seek(0)
            write.seek(0)
            write.truncate()
            shutil.copyfileobj(read, write, 1 << 20)
    shutil.copymode(source, target)
