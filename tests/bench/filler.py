"""``python -S filler.py ADDRESS PORT TARGET``: fills this host's link, both ways, with bytes that cost hardly any CPU.

What lives here: one TCP flow to the next host and one from the host before, as fast as links let them. The bytes go by
sendfile out of memory and are dropped in the receiver's kernel (MSG_TRUNC, which Python's ``recv`` would not do without
a buffer as large), so that what thirty full links cost two cores is packets, not copies: the daemons' own chunks alone
fill them to three quarters at most, with no CPU left to judge by. It imports nothing of this project, because thirty of
these start at once.
"""

from __future__ import annotations

import ctypes
import os
import socket
import sys
import threading
import time

FILE_BYTES = 4 << 20
RECEIVE_BYTES_MAX = 1 << 20
LOW_WATER_BYTES = 64 * 1024  # wakes 40 times a second at 20 Mbit/s
RETRY_S = 0.2


def send(target: tuple[str, int]) -> None:
    """For ever; a connection that is lost, or not there yet, is made again."""
    memory = os.memfd_create("filler")
    os.write(memory, bytes(FILE_BYTES))
    while True:
        try:
            with socket.create_connection(target, timeout=5.0) as sock:
                sock.settimeout(None)
                while True:
                    offset = 0
                    while offset < FILE_BYTES:
                        offset += os.sendfile(sock.fileno(), memory, offset, FILE_BYTES - offset)
        except OSError:
            time.sleep(RETRY_S)


def drop(listener: socket.socket) -> None:
    """Take what comes, without ever looking at it."""
    receive = ctypes.CDLL(None).recv
    while True:
        sock, _ = listener.accept()
        with sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, LOW_WATER_BYTES)
            while receive(sock.fileno(), None, ctypes.c_size_t(RECEIVE_BYTES_MAX), socket.MSG_TRUNC) > 0:
                pass


def main(arguments: list[str]) -> None:
    """Until it is killed."""
    address, port, target = arguments
    listener = socket.create_server((address, int(port)))
    threading.Thread(target=send, args=((target, int(port)),), daemon=True).start()
    drop(listener)


if __name__ == "__main__":
    main(sys.argv[1:])
