"""Data sets and models become tables: read, train, evaluate, store, summarise."""
