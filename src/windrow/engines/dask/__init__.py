"""Workers on a Dask cluster: Dask carries bytes and keeps its workers alive, and decides nothing."""
