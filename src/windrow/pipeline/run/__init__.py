"""Running a pipeline: the driver's side and the worker's."""
