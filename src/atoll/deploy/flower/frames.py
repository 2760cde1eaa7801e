"""Atoll's frames in Flower's messages. Imports Flower and nothing else: a site starts a program for each message.

A frame of `wire` bytes travels as one raw array, which Flower cuts into chunks, so its size has no limit; nothing is
pickled.
"""

from __future__ import annotations

from flwr.app import Array, ArrayRecord, Message, RecordDict

RECORD, FRAME = "atoll", "frame"
STYPE = "atoll.core.wire"


def content(frame: bytes) -> RecordDict:
    """A frame as the content of a message."""
    return RecordDict({RECORD: ArrayRecord({FRAME: Array("uint8", (len(frame),), STYPE, frame)})})


def frame_of(message: Message) -> bytes | None:
    """The frame in a message, or None if it carries none of Atoll's."""
    record = message.content.array_records.get(RECORD) if message.has_content() else None
    array = None if record is None else record.get(FRAME)
    return None if array is None or array.stype != STYPE else array.data
