"""Files that explain an evolved network."""
