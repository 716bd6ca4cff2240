"""A plane in a process of its own, to be stopped and killed: ``... lone_node NUMBER ADDRESS``.

Prints its port, knows node 1 by key, and answers pings until it is ended.
"""

from __future__ import annotations

import sys

import trio

from gossipd.sessions.peer_channel import Endpoint
from membership.member import node_id
from tests.gossipd.control.nodes import secret_of, start


async def main(number: int, address: str) -> None:
    async with trio.open_nursery() as nursery:
        node = await start(nursery, number, address=address)
        other = secret_of(1).public
        node.host.known[other.curve25519] = node_id(other.ed25519)
        node.host.directory[node_id(other.ed25519)] = Endpoint("127.0.0.1", 1, other.curve25519)
        sys.stdout.write(f"{node.port}\n")
        sys.stdout.flush()
        await trio.sleep_forever()


if __name__ == "__main__":
    trio.run(main, int(sys.argv[1]), sys.argv[2])
