"""A TCP balancer: each connection goes to the next of its servers, as in front of mirrors with several replicas."""

from __future__ import annotations

import itertools
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress


@contextmanager
def balanced(ports: Sequence[int]) -> Iterator[str]:
    """The balancer's URL, for the length of a ``with``."""
    open_sockets: list[socket.socket] = []
    threads: list[threading.Thread] = []
    turns = itertools.cycle(ports)

    def copy(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while piece := source.recv(1 << 16):
                target.sendall(piece)
        for sock in (source, target):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def accept() -> None:
        with suppress(OSError):
            while True:
                client = listener.accept()[0]
                server = socket.create_connection(("127.0.0.1", next(turns)))
                open_sockets.extend((client, server))
                for one, other in ((client, server), (server, client)):
                    threads.append(threading.Thread(target=copy, args=(one, other)))
                    threads[-1].start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        accepting = threading.Thread(target=accept)
        accepting.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            accepting.join()
            for sock in open_sockets:
                with suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
            for thread in threads:
                thread.join()
            for sock in open_sockets:
                sock.close()
