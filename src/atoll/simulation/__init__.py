"""The virtual network: bandwidth, speed, late and missing replies by a clock of its own."""
