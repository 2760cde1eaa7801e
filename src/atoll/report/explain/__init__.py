"""What explains an evolved network, as files."""
