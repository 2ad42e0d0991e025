"""Files of other machines."""
