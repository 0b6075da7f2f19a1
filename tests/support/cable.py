"""A cable that delays and drops frames: it joins two ports of a switch, in the place of netem, which not every kernel has.

python -m tests.support.cable PORT PORT MILLISECONDS PERCENT SEED

The ports are TAP devices, which the program creates. So TCP sees a real network: it sends lost packets again, and waits.
"""

from __future__ import annotations

import fcntl
import heapq
import os
import random
import selectors
import struct
import sys
import time

_TUNSETIFF = 0x400454CA
_TAP_WITHOUT_HEADER = 0x0002 | 0x1000


def port(name: str) -> int:
    """Create a TAP device."""
    file = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(file, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _TAP_WITHOUT_HEADER))
    return file


def main(left: str, right: str, milliseconds: str, percent: str, seed: str) -> None:
    delay, loss, chance = float(milliseconds) / 1000, float(percent) / 100, random.Random(seed)
    ends = port(left), port(right)
    other = {ends[0]: ends[1], ends[1]: ends[0]}
    waiting: list[tuple[float, int, int, bytes]] = []
    number = 0
    poll = selectors.DefaultSelector()
    for end in ends:
        poll.register(end, selectors.EVENT_READ)
    print("up", flush=True)
    while True:
        timeout = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        for key, _ in poll.select(timeout):
            frame = os.read(key.fd, 65536)
            if chance.random() >= loss:
                number += 1  # frames that arrive together leave in their order
                heapq.heappush(waiting, (time.monotonic() + delay, number, other[key.fd], frame))
        while waiting and waiting[0][0] <= time.monotonic():
            _, _, end, frame = heapq.heappop(waiting)
            try:
                os.write(end, frame)
            except OSError:
                pass  # the port is down, or its queue is full: the frame is lost


if __name__ == "__main__":
    main(*sys.argv[1:])
