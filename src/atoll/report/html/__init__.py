"""Pages: reports of runs and comparisons as single HTML files. Charts are SVG that is drawn here."""
