"""Files of selected rows: written beside a run, published when they are whole."""
