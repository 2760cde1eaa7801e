"""Fair rivals of a search: hand-made networks and random search, on the same data, with the same start rule, the same
tuning and the same client cost.

| rival       | what it is                                                                                       |
|-------------|--------------------------------------------------------------------------------------------------|
| `standard`  | the standard network of the search's kind, by federated averaging                                |
| `paper`     | moefl: the same at the learning rate of its paper, 0.1 in every round, without any choice         |
| `like-high` | the same at the width that needs no more MACs than the search's High; `like-knee` likewise       |
| `logistic`  | tables: logistic regression                                                                      |
| `random`    | the same search with networks that are drawn, not bred, where the method has that                |
| `alone`     | personal networks: the standard network on each client by itself                                 |
| `fine-tuned`| personal networks: federated averaging, then each client goes on alone                           |

A rival gets the client MACs of the search with its seed: as many rounds as they pay for; `random`, whose rounds cost
what is drawn, ends with its closing phase within them (`[stop] macs`). What each rival has cost is listed.

The learning rate of a rival is chosen from a grid by validation error, on the first seed with a third of the rounds;
the cost of the grid is listed, outside the budget. `atoll tune RUN` does the same for the search itself. Where clients
have no validation rows, the runs of the grid, and only these, set a fifth of the training rows aside for it: test rows
choose nothing.
"""
