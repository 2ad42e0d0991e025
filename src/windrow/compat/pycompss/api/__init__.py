"""The layout of ``pycompss.api``: programs change ``pycompss.api`` into this package's name."""
