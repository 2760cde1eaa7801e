"""Given networks trained from scratch on all clients' data in one place: what a search found, validated centrally.

It is `retrain` with a single client that holds everyone's rows, so a round is `epochs` passes over all of them.
"""

from __future__ import annotations

from typing import ClassVar

from atoll.methods.retrain import Retrain


class RetrainCentral(Retrain):
    name: ClassVar[str] = "retrain_central"
    summary: ClassVar[str] = "train given networks from scratch on all data in one place, side by side"
    centralised: ClassVar[bool] = True
