"""The process group of one replica: how its ranks find each other, and the two things that they exchange.

Messages go from rank 0 to all others by broadcast, always over gloo and from CPU memory: reading one then never waits
for a GPU. Partial sums are all-reduced where they are: gloo on CPUs, NCCL on GPUs. Both have a time limit, so that a
rank that is frozen ends the group instead of blocking it.
"""

import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import psutil
import torch
import torch.distributed as dist

from workers.core.errors import ConfigurationError, ProtocolViolationError
from workers.parallel.buffer import Bytes

__all__ = ["FIRST_BYTES", "RankGroup", "Seat", "listen_for_ranks"]

FIRST_BYTES = 8192  # of a message travel in the first broadcast; a longer one needs a second
HEADER_BYTES = 8  # the message's length
LARGEST_MESSAGE = 2**31
START_TIMEOUT_S = 1800.0  # while models are loaded, one rank may be this much slower than another
LEADER = 0
MEETING_POLL_S = 0.02


@dataclass(frozen=True)
class Seat:
    """A rank's place in a group, and where rank 0 waits for it."""

    rank: int
    size: int
    host: str
    port: int


def listen_for_ranks(host: str) -> socket.socket:
    """A listening socket of rank 0 on `host` alone, on a free port."""
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.bind((host, 0))
    listener.listen(128)
    return listener


class RankGroup:
    """One rank's end of a group. A process can be part of one group at a time: torch.distributed is global."""

    def __init__(
        self,
        seat: Seat,
        device: torch.device,
        rank_timeout_s: float,
        listener: socket.socket | None = None,
        while_waiting: Callable[[], None] = lambda: None,
    ) -> None:
        """Returns when all ranks have come.

        `listener` is of rank 0, which hands it over; `while_waiting` is called now and then, and may raise.
        """
        if dist.is_initialized():
            raise ConfigurationError("this process is part of a tensor-parallel group already; close that model first")
        self.rank, self.size, self.device = seat.rank, seat.size, device
        use_interface_of(seat.host)
        start = timedelta(seconds=START_TIMEOUT_S)
        leads = listener is not None
        self._store = dist.TCPStore(  # type: ignore[attr-defined]
            seat.host,
            seat.port,
            seat.size,
            is_master=leads,
            wait_for_workers=False,
            timeout=start,
            master_listen_fd=listener.detach() if listener is not None else None,
        )
        self._meet(seat, while_waiting)
        backend = "gloo" if device.type == "cpu" else "cpu:gloo,cuda:nccl"
        if device.type == "cuda":
            torch.cuda.set_device(device)
            os.environ["LOCAL_RANK"] = str(device.index)  # which device transformers puts the shard on
        dist.init_process_group(backend, store=self._store, rank=seat.rank, world_size=seat.size, timeout=start)
        # Loading has its time (the first group); once that is over, silence is a failure.
        self._serving = dist.new_group(timeout=timedelta(seconds=rank_timeout_s))
        self._group: dist.ProcessGroup | None = None
        self._first = torch.zeros(HEADER_BYTES + FIRST_BYTES, dtype=torch.uint8)

    def _meet(self, seat: Seat, while_waiting: Callable[[], None]) -> None:
        """Rank 0 waits for the others here, where it can still be told that one has died."""
        if seat.rank != LEADER:
            self._store.set(f"here/{seat.rank}", "")
            return
        keys = [f"here/{rank}" for rank in range(1, seat.size)]
        while not self._store.check(keys):
            while_waiting()
            time.sleep(MEETING_POLL_S)

    def serve(self) -> None:
        """Wait until all ranks have loaded.

        From then on, one that is silent for `rank_timeout_s` in a collective ends it with a `RuntimeError`.
        """
        self.answer()
        self._group = self._serving

    def all_reduce(self, partial: torch.Tensor) -> None:
        """Replace it by the sum over all ranks."""
        dist.all_reduce(partial, group=self._group)

    def answer(self) -> None:
        """Wait until all ranks have come here."""
        dist.all_reduce(torch.zeros(1), group=self._group)

    def send(self, message: Bytes) -> int:
        """Rank 0: `message` to all others. Returns how many bytes were broadcast to each."""
        first = self._first
        first[:HEADER_BYTES] = torch.from_numpy(np.array([message.size], dtype=np.int64).view(np.uint8))
        beginning, rest = message[:FIRST_BYTES], message[FIRST_BYTES:]
        first[HEADER_BYTES : HEADER_BYTES + beginning.size] = torch.from_numpy(beginning)
        dist.broadcast(first, LEADER, group=self._group)
        if rest.size:
            dist.broadcast(torch.from_numpy(np.ascontiguousarray(rest)), LEADER, group=self._group)
        return len(first) + rest.size

    def receive(self) -> Bytes:
        """Another rank: the next message, which is its own memory."""
        dist.broadcast(self._first, LEADER, group=self._group)
        buffer = self._first.numpy()
        size = int(buffer[:HEADER_BYTES].view(np.int64)[0])
        if not 0 <= size <= LARGEST_MESSAGE:
            raise ProtocolViolationError(f"a message of {size} bytes is announced")
        beginning = buffer[HEADER_BYTES : HEADER_BYTES + size].copy()
        if size <= FIRST_BYTES:
            return beginning
        rest = torch.empty(size - FIRST_BYTES, dtype=torch.uint8)
        dist.broadcast(rest, LEADER, group=self._group)
        return np.concatenate((beginning, rest.numpy()))

    def close(self) -> None:
        """Leave the group; collectives of others end with an error."""
        if dist.is_initialized():
            dist.destroy_process_group()


def use_interface_of(host: str) -> None:
    """Make gloo and NCCL use the network interface that has the address `host`, unless the user has chosen another."""
    for name, addresses in psutil.net_if_addrs().items():
        if any(one.address.split("%")[0] == host for one in addresses):
            os.environ.setdefault("GLOO_SOCKET_IFNAME", name)
            os.environ.setdefault("NCCL_SOCKET_IFNAME", name)
            return
    raise ConfigurationError(f"no network interface of this machine has the address {host}")
