"""Whether a directory is on a disk of this machine: files there are seen in the same way by all its processes."""

from __future__ import annotations

from pathlib import Path

__all__ = ["is_on_local_disk"]

#: File systems that no other machine writes to. What is not known is taken as one of a network.
_LOCAL = {
    "apfs", "bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "hfs", "hfsplus", "jfs", "ntfs", "ntfs3",
    "overlay", "ramfs", "reiserfs", "tmpfs", "ufs", "xfs", "zfs",
}  # fmt: skip


def is_on_local_disk(place: Path) -> bool:
    """Say whether a directory is on a local disk; False where nobody can tell."""
    import psutil

    try:
        mounts = psutil.disk_partitions(all=True)
    except (OSError, psutil.Error):
        return False
    here = place.resolve()
    # The last of two mounts on one place is the one that is seen.
    held = [mount for mount in mounts if here.is_relative_to(Path(mount.mountpoint))]
    if not held:
        return False
    longest = max(len(mount.mountpoint) for mount in held)
    seen = [mount for mount in held if len(mount.mountpoint) == longest][-1]
    return seen.fstype.lower() in _LOCAL
