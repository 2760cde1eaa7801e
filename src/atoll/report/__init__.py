"""What people see: progress in the terminal, tables, figures. Reads run directories, never live objects."""
