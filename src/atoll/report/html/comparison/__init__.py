"""The comparison page: several methods on the same data, over seeds, in one HTML file."""
