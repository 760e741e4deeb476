"""A block becomes contributions: how much of each token is in each other token."""
