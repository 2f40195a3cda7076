"""The loop of the ranks 1..N-1: take a message, do the same as rank 0 over one's own shard.

Started by a launcher: as a process of its own (`python -m workers.runner.rank PARENT_PID`, with a `RankSpec` as JSON on
stdin), or in an actor of a cluster, which calls `serve_rank`.
"""

import logging
import os
import sys
from typing import NoReturn

import torch

from workers.core.errors import OutriderError, ProtocolViolationError
from workers.models.loaded import LoadedModel
from workers.models.loader import load_shard, set_threads
from workers.parallel.group import RankGroup
from workers.parallel.launcher import RankSpec, die_with_parent
from workers.parallel.messages import Allocate, Forward, Ping, Split, Stop, unpack
from workers.runner.kv_memory import storage_for
from workers.runner.model_runner import ModelRunner

__all__ = ["ShardServer", "serve_rank"]

logger = logging.getLogger(__name__)


class ShardServer:
    """One shard of the model, and its part of every K/V pool."""

    def __init__(self, loaded: LoadedModel, group: RankGroup) -> None:
        self._loaded = loaded
        self._group = group
        self._runners: dict[int, ModelRunner] = {}  # by the pool's number

    def run(self) -> None:
        """Until rank 0 says stop; raises `RuntimeError` when it, or another rank, is gone or silent."""
        while True:
            message = unpack(self._group.receive())
            if isinstance(message, Forward):
                for move in message.moves:
                    self._runner(move.storage).move(move)
                self._runner(message.storage).follow(message)
            elif isinstance(message, Ping):
                self._group.answer()
            elif isinstance(message, Allocate):
                for number in message.released:
                    self._runners.pop(number, None)
                self._runners[message.storage] = ModelRunner(self._loaded, storage_for(self._loaded, message.num_slots))
            elif isinstance(message, Split):
                self._runner(message.storage).prepare_split(message.exit_layer)
            elif isinstance(message, Stop):
                return

    def _runner(self, storage: int) -> ModelRunner:
        try:
            return self._runners[storage]
        except KeyError:
            raise ProtocolViolationError(f"rank 0 uses a K/V pool {storage} that it has not allocated") from None


def serve_rank(spec: RankSpec) -> None:
    """Join the group, load the shard and follow rank 0; returns when it says stop. What ends it otherwise is raised."""
    set_threads(spec.config)  # of this thread, which runs the passes
    group = RankGroup(spec.seat, torch.device(spec.config.device), spec.config.rank_timeout_s)
    try:
        loaded = load_shard(spec.config, group)
        group.serve()
        ShardServer(loaded, group).run()
    finally:
        group.close()


def main() -> NoReturn:
    """Be one rank. Errors are one line on stderr and exit status 1."""
    die_with_parent(int(sys.argv[1]))
    spec = RankSpec.from_json(sys.stdin.read())
    status = 0
    try:
        serve_rank(spec)
    except (OutriderError, RuntimeError) as error:  # RuntimeError: torch.distributed, when another rank is gone
        first = next(iter(str(error).splitlines()), type(error).__name__)
        sys.stderr.write(f"rank {spec.seat.rank}: {first}\n")
        status = 1
    sys.stderr.flush()
    os._exit(status)  # threads of a broken group may wait for ever


if __name__ == "__main__":
    main()
