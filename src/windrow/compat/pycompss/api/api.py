"""What programs call: waiting, groups, files, and the life of the session."""

from __future__ import annotations

from windrow.compat.pycompss.bodies import compss_ready_value
from windrow.compat.pycompss.groups import TaskGroup, compss_barrier, compss_barrier_group, compss_cancel_group
from windrow.compat.pycompss.runtime import compss_start, compss_stop
from windrow.compat.pycompss.synchronising import (
    compss_delete_file,
    compss_delete_object,
    compss_file_exists,
    compss_free_resources,
    compss_get_number_of_resources,
    compss_open,
    compss_request_resources,
    compss_set_wall_clock,
    compss_snapshot,
    compss_wait_on,
    compss_wait_on_directory,
    compss_wait_on_file,
)

__all__ = [
    "TaskGroup",
    "compss_barrier",
    "compss_barrier_group",
    "compss_cancel_group",
    "compss_delete_file",
    "compss_delete_object",
    "compss_file_exists",
    "compss_free_resources",
    "compss_get_number_of_resources",
    "compss_open",
    "compss_ready_value",
    "compss_request_resources",
    "compss_set_wall_clock",
    "compss_snapshot",
    "compss_start",
    "compss_stop",
    "compss_wait_on",
    "compss_wait_on_directory",
    "compss_wait_on_file",
]
