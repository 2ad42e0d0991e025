"""Fails if nothing is drawn in a picture: python not_blank.py PICTURE.png

A drawn spectrum goes up and down, so its colour is in many rows of pixels; that of an empty one is in the line at zero and in
the legend.
"""

from __future__ import annotations

import sys

import matplotlib.image
import numpy as np

picture = matplotlib.image.imread(sys.argv[1])[..., :3]
coloured = np.ptp(picture, axis=2) > 0.3
rows = coloured.any(axis=1).mean()
print(f"{picture.shape[1]} x {picture.shape[0]} pixels, with spectra in {rows:.0%} of their rows")
sys.exit(0 if rows > 0.3 else f"{sys.argv[1]} is blank")
