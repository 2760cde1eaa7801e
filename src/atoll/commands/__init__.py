"""The commands, a file for each purpose; `cli.py` adds them to the program. What they do is elsewhere."""
