"""The experiments of the ALTI paper, each one command: python -m reproduction.NAME (see reproduction/README.md)."""
