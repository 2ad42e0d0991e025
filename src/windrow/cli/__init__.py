"""The ``windrow`` command."""
