"""What every program of the selection benchmark has to find: the same regions and histograms.

The selection: the trigger fired; muons with pt > 5, |eta| < 2.4 and isolation < 0.25; at least two;
the two hardest of opposite charge; their invariant mass in one of three windows. The mass is
computed in double precision from pt, eta and phi, so that C++ and Python agree on every event.
"""

from __future__ import annotations

BINS = 60
WINDOWS = {"Z": (60.0, 120.0), "upsilon": (8.5, 11.5), "jpsi": (2.8, 3.4)}
MUON = ("pt", "eta", "phi", "charge", "pfRelIso04_all")
