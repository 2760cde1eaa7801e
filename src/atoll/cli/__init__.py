"""The command line. Commands without logic: what they do is elsewhere."""
