"""The experiments of the ALTI paper, one command each: python -m reproduction.NAME."""
