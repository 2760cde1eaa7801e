"""The socket between the program that Flower starts for each message and the site's resident worker.

A Unix socket in the site's own folder, for its own user only (mode 0600); both ends check who the other is. Its path is
reached through the open folder, so that the length of the folder's path does not matter: a socket's address has 107
bytes. A request is two blocks, the kind of message and its frame; the answer is an empty block when the work begins,
then the answer's frame. Each block follows its length.

Only the standard library is imported here.
"""

from __future__ import annotations

import os
import socket
import stat
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from atoll.errors import SiteError

NAME = "worker.sock"
STARTING = 120.0  # seconds until a worker that was started or restarted must answer
PAUSE = 0.05
WAITING = 64  # messages that may wait for the worker


def ask(folder: Path, kind: str, frame: bytes, patience: float = STARTING) -> bytes:
    """The worker's answer to a message. A worker that dies is restarted by the node; the message is sent again once."""
    deaths = 0
    while deaths < 2:
        with _connect(folder, patience) as connection:
            try:
                send(connection, kind.encode())
                send(connection, frame)
                begun = receive(connection) is not None
                answer = receive(connection) if begun else None
            except (BrokenPipeError, ConnectionResetError):
                begun, answer = False, None
        if answer is not None:
            return bytes(answer)
        deaths += begun
        time.sleep(PAUSE)
    raise SiteError(
        f"the site's worker died twice on this {kind}, as it does when memory runs out; "
        f"the site's staff sees why in {folder / 'node.log'}",
        code="worker-died",
    )


def listen(folder: Path) -> socket.socket:
    """The worker's end. A socket that an earlier worker left is replaced."""
    with _address(folder) as (directory, address):
        try:
            _check_owner(folder, os.stat(NAME, dir_fd=directory, follow_symlinks=False))
            os.unlink(NAME, dir_fd=directory)
        except FileNotFoundError:
            pass
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(address)
        os.chmod(address, 0o600)  # before it listens: until then, connections are refused
        listener.listen(WAITING)
    return listener


def is_same_user(connection: socket.socket) -> bool:
    """Whether the process at the other end belongs to this process's user."""
    return peer_user(connection) == os.geteuid()


def peer_user(connection: socket.socket) -> int:
    """The user of the process at the other end, by the kernel."""
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, user, _ = struct.unpack("3i", found)
    return int(user)


def send(connection: socket.socket, block: bytes) -> None:
    connection.sendall(len(block).to_bytes(8, "little"))
    connection.sendall(block)


def receive(connection: socket.socket) -> bytearray | None:
    """The next block, or None if the other end is gone."""
    head = _exactly(connection, 8)
    return None if head is None else _exactly(connection, int.from_bytes(head, "little"))


def _exactly(connection: socket.socket, count: int) -> bytearray | None:
    data = bytearray(count)
    view, filled = memoryview(data), 0
    while filled < count:
        got = connection.recv_into(view[filled:])
        if not got:
            return None
        filled += got
    return data


def _connect(folder: Path, patience: float) -> socket.socket:
    end = time.monotonic() + patience
    with _address(folder) as (directory, address):
        while True:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                _check_owner(folder, os.stat(NAME, dir_fd=directory, follow_symlinks=False))
                connection.connect(address)
                if not is_same_user(connection):
                    raise _foreign(folder, peer_user(connection))
                return connection
            except (FileNotFoundError, ConnectionRefusedError, ConnectionResetError):
                connection.close()
                if time.monotonic() > end:
                    raise SiteError(
                        f"the site's worker does not answer on {folder / NAME} after {patience:g} s; the site's staff "
                        f"sees why in {folder / 'node.log'}, and starts it with: atoll site join BUNDLE --data FOLDER",
                        code="worker-not-answering",
                    ) from None
                time.sleep(PAUSE)
            except BaseException:
                connection.close()
                raise


@contextmanager
def _address(folder: Path) -> Iterator[tuple[int, str]]:
    """The folder, open, and the socket's address in it, which is short."""
    directory = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        yield directory, f"/proc/self/fd/{directory}/{NAME}"
    finally:
        os.close(directory)


def _check_owner(folder: Path, found: os.stat_result) -> None:
    if found.st_uid != os.geteuid():
        raise _foreign(folder, found.st_uid)
    if not stat.S_ISSOCK(found.st_mode):
        raise SiteError(
            f"{folder / NAME}: not a socket, but the site's worker needs this name; remove it and join again",
            code="worker-socket-taken",
        )


def _foreign(folder: Path, user: int) -> SiteError:
    return SiteError(
        f"{folder / NAME}: belongs to user {user}, not to user {os.geteuid()} of this site; remove it and join again, "
        "always as the same user",
        code="worker-socket-foreign",
    )
