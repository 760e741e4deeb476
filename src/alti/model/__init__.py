"""A text becomes an attribution: load, tokenize, explain, and the results."""
