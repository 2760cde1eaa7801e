"""The program that runs on a site: a Flower ClientApp that hands frames to the site's resident worker.

It runs in a new process for each message, see `executor`. So it imports neither torch nor the rest of Atoll; the node's
setting `folder` says where the worker's socket is.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from atoll.deploy.flower.frames import content, frame_of
from atoll.deploy.worker_socket import ask
from atoll.errors import SiteError

app = ClientApp()


def reply(message: Message, context: Context) -> Message:
    """The worker's answer to a message. What keeps the worker from answering is an answer, too."""
    kind = message.metadata.message_type.partition(".")[2]
    frame = frame_of(message)
    try:
        if frame is None:
            raise SiteError("a message without a frame of Atoll's", code="not-our-message")
        folder = context.node_config.get("folder")
        if not folder:
            raise SiteError(
                "--node-config has no folder; start the node with: atoll site join BUNDLE --data FOLDER",
                code="node-config-incomplete",
            )
        answer = ask(Path(str(folder)), kind, frame)
    except (SiteError, OSError) as problem:
        from atoll.core import wire

        with suppress(OSError):  # the disk of the log may be full
            sys.stderr.write(f"atoll: {problem}\n")
        answer = wire.encode({"error": " ".join(str(problem).split())}, digests=False)
    return Message(content(answer), reply_to=message)


for action in ("hello", "prepare", "notice"):
    app.query(action)(reply)
app.train("task")(reply)
