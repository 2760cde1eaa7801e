"""Settings that ship with the package: one folder a method, one file a preset."""
