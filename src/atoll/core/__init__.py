"""What every other package builds on: messages, their encoding, reply checks and the cost ledger."""
