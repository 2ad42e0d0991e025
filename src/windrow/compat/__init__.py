"""Other libraries' names on Windrow's machinery: their programs run after changing the imports."""
