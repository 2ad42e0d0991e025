"""What a pipeline consists of: steps, regions, files to save, options and products."""
