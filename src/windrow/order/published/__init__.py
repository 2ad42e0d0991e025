"""Order policies as they were published, to compare with: one file each, named as in ``order=``."""
