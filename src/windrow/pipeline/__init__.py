"""Front door: analyses over rows (``windrow.Pipeline``)."""
