"""Writing, describing and recognising skims."""
