"""A model and its inputs become attention blocks, each a sum of one vector per token."""
