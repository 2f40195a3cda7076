"""The policy class that Serve's controller instantiates. For both pools together, in the YAML file:

    applications:
      - autoscaling_policy: {policy_function: "cluster.deployments.autoscaling:Policy"}

Without that, each pool with `autoscaling` is scaled by one of its own. Serve pickles this very module by value, so it
holds nothing but the class.
"""

import time
from typing import Any

from cluster.deployments.autoscaler import Autoscaler

__all__ = ["Policy"]


class Policy(Autoscaler):
    """Serve calls it about ten times a second, inside its controller."""

    def __init__(self, **settings: Any) -> None:
        """Ignored: the application's policy has no `settings`, so they are read from the deployments in any case."""
        super().__init__(time.monotonic)
