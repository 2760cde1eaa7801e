"""Between a raw row and a network: a typed value that is stored with every model, and the reading of raw rows."""

from atoll.preparation.answers import Answers
from atoll.preparation.tables import RowError
from atoll.preparation.value import Preparation, RawColumn, Statistics, parse

__all__ = ["Answers", "Preparation", "RawColumn", "RowError", "Statistics", "parse"]
