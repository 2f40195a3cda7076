"""The application as `cluster.app` builds it, with verifiers whose steps take a given time (`paced_verifier`)."""

from typing import Any

from ray.serve import Application

from cluster.app import assemble
from cluster.config.arguments import OutriderArgs
from cluster.deployments import verifier
from cluster.deployments.drafter import DraftProposer

__all__ = ["TargetVerifier", "build"]


class TargetVerifier(verifier.TargetVerifier):
    """The product's, paced."""

    async def _start(self, server: Any, *arguments: Any, **named: Any) -> None:
        from benchmarks.paced_verifier import paced  # torch belongs into replicas only

        await super()._start(paced(server), *arguments, **named)


def build(args: OutriderArgs) -> Application:
    """`import_path: benchmarks.paced_app:build`."""
    return assemble(args, TargetVerifier, DraftProposer)
