"""The program that runs on a site: a Flower ClientApp that hands letters to the site's `Node`.

Flower starts it in a new process for each message, with the settings that the node was started with: `name`, `data`
(the site's file or folder), `folder` (for what it keeps) and `site` (the site's own file, with its limits).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from atoll.deploy.flower.mail import content, frame_of
from atoll.deploy.site import Site, SiteNode, logging_to_stderr
from atoll.errors import SiteError

app = ClientApp()


@app.query("hello")
def hello(message: Message, context: Context) -> Message:
    return reply(message, context)


@app.query("prepare")
def prepare(message: Message, context: Context) -> Message:
    return reply(message, context)


@app.query("notice")
def notice(message: Message, context: Context) -> Message:
    return reply(message, context)


@app.train("task")
def task(message: Message, context: Context) -> Message:
    from atoll.training.determinism import prepare_environment, single_thread

    prepare_environment()
    single_thread()
    return reply(message, context)


def reply(message: Message, context: Context) -> Message:
    """The node's answer to a message."""
    frame = frame_of(message)
    if frame is None:
        raise SiteError("a message that carries no letter of Atoll's", code="not-our-message")
    kind = message.metadata.message_type.partition(".")[2]
    with logging_to_stderr():
        return Message(content(SiteNode(site_of(context.node_config)).answer(kind, frame)), reply_to=message)


def site_of(config: Mapping[str, object]) -> Site:
    """The site that a node's settings describe."""
    from atoll.deploy.site_file import read_site

    missing = [key for key in ("name", "data", "folder", "site") if not config.get(key)]
    if missing:
        raise SiteError(
            f"--node-config has no {missing[0]}; start the node with: atoll site join BUNDLE --data FOLDER",
            code="node-config-incomplete",
        )
    own = read_site(Path(str(config["site"])))
    if own.name != config["name"]:
        raise SiteError(
            f"the node is started as '{config['name']}', but its site file is that of '{own.name}'",
            code="wrong-site-file",
        )
    return Site(own.name, Path(str(config["data"])), Path(str(config["folder"])), own.share_labels, own.limits)
