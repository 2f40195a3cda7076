"""The application as `cluster.app` builds it, with every engine replica behind a fault proxy of the benchmark."""

import os
from dataclasses import replace
from typing import Any

from ray.serve import Application

from benchmarks.chaos.hub import HUB_VARIABLE, register
from cluster.app import assemble
from cluster.config.arguments import OutriderArgs
from cluster.deployments import drafter, verifier
from cluster.deployments.replica import EngineReplica

__all__ = ["DraftProposer", "TargetVerifier", "build"]


class _Proxied(EngineReplica):
    async def _start(self, *arguments: Any, **named: Any) -> None:
        await super()._start(*arguments, **named)
        record = self._record
        address = await register(os.environ[HUB_VARIABLE], record.role, record.replica_id, record.address)
        self._record = replace(record, address=address)


class TargetVerifier(_Proxied, verifier.TargetVerifier):
    """The product's, under the proxy's address."""


class DraftProposer(_Proxied, drafter.DraftProposer):
    """The product's, under the proxy's address."""


def build(args: OutriderArgs) -> Application:
    """`import_path: benchmarks.chaos.app:build`."""
    return assemble(args, TargetVerifier, DraftProposer)
