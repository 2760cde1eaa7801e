"""Command groups of their own; `cli.py` adds them to the program. Commands only: what they do is elsewhere."""
