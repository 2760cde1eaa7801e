"""Command groups of the command line, one file a group."""
