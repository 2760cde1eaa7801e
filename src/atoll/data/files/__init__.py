"""Own data: folders of CSV files, NumPy archives and images, and the data of one site."""
