"""The command line. Commands parse arguments and print; the work is done in other packages."""
