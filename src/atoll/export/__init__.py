"""Networks that answer raw rows: predictors in Python, and files that need no Atoll."""
