"""Own data in files: CSV tables, NPZ archives and images, of a folder of clients or of one site."""
