"""Methods for Atoll in a package of their own; see the entry points in pyproject.toml."""
