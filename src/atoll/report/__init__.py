"""Progress and tables in the terminal, figures, comparisons. Reads run directories, never live objects."""
