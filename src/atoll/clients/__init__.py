"""Client work that methods share: the jobs, and the server's halves that build their tasks and fold the replies."""

from atoll.clients.coverage import PrivateWork
from atoll.clients.evaluation import (
    Finished,
    calibrated,
    calibrated_together,
    evaluate,
    evaluate_finished,
    evaluate_test,
    evaluate_test_each,
    final_objectives,
    measured_by,
    measured_parts,
    measurements,
    metrics_of,
    total,
)
from atoll.clients.training_round import (
    Counted,
    FederatedModel,
    LocalTraining,
    count_correct,
    fresh,
    resumed,
    train_models,
    train_task,
)
from atoll.training.client import Client

__all__ = [
    "Client",
    "Counted",
    "FederatedModel",
    "Finished",
    "LocalTraining",
    "PrivateWork",
    "calibrated",
    "calibrated_together",
    "count_correct",
    "evaluate",
    "evaluate_finished",
    "evaluate_test",
    "evaluate_test_each",
    "final_objectives",
    "fresh",
    "measured_by",
    "measured_parts",
    "measurements",
    "metrics_of",
    "resumed",
    "total",
    "train_models",
    "train_task",
]
