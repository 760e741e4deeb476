"""An attribution becomes a picture: in a terminal, on a web page, in LaTeX, as a plot."""
