"""What every other package builds on: messages, their bytes, what a reply may hold, and the ledger."""
