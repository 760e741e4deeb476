"""An attribution becomes a picture: terminal, web page, LaTeX, plots."""
