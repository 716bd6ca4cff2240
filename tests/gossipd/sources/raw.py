"""A web server that sends the bytes a test has written, head and all."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

Answer = Callable[[int, int], bytes | Iterable[bytes]]
"""From the first byte asked for and the one after the last to everything that is sent, or to pieces of it."""

_RANGE = re.compile(rb"\r\nrange: bytes=(\d+)-(\d+)\r\n", re.IGNORECASE)


@contextmanager
def raw_server(answer: Answer) -> Iterator[str]:
    """Answers each connection's one request and hangs up; gives the server's URL."""
    threads: list[threading.Thread] = []

    def serve(sock: socket.socket) -> None:
        head = b""
        with sock, suppress(OSError):
            sock.settimeout(120)
            while b"\r\n\r\n" not in head:
                piece = sock.recv(4096)
                if not piece:
                    return
                head += piece
            found = _RANGE.search(head)
            assert found is not None, "the reader asks for ranges only"
            sent = answer(int(found[1]), int(found[2]) + 1)
            for piece in [sent] if isinstance(sent, bytes) else sent:
                sock.sendall(piece)

    def accept() -> None:
        with suppress(OSError):
            while True:
                threads.append(threading.Thread(target=serve, args=(listener.accept()[0],)))
                threads[-1].start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        accepting = threading.Thread(target=accept)
        accepting.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            accepting.join()
            for thread in threads:
                thread.join()


def partial(body: bytes, start: int, stop: int, *headers: str, length: bool = True) -> bytes:
    """A proper 206 for a range of ``body``; ``headers`` come on top, Content-Length only with ``length``."""
    lines = ["HTTP/1.1 206 Partial", f"Content-Range: bytes {start}-{stop - 1}/{len(body)}", "Connection: close"]
    if length:
        lines.append(f"Content-Length: {stop - start}")
    head = "".join(f"{line}\r\n" for line in (*lines, *headers))
    return head.encode("latin-1") + b"\r\n" + body[start:stop]
