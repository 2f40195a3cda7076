"""Arguments of `cluster.app:build`: the whole application in one value."""

from typing import Self

from pydantic import Field, model_validator

from cluster.config.autoscaling import AutoscalingSettings
from cluster.config.gateway import GatewayConfig
from cluster.config.pools import DrafterPool, VerifierPool
from workers.core.config import RpcConfig
from workers.core.settings import Settings

__all__ = ["OutriderArgs"]


class OutriderArgs(Settings):
    """`args` of the application in the YAML file."""

    model_name: str = Field(
        description="The name that clients use for the model", min_length=1, max_length=256, pattern=r"^\S+$"
    )
    target: VerifierPool
    draft: DrafterPool | None = Field(None, description="Needed by target.config.method draft_model, and only by it")
    gateway: GatewayConfig = GatewayConfig()
    autoscaling: AutoscalingSettings = Field(
        AutoscalingSettings(), description="How pools with `autoscaling` of their own are scaled"
    )
    internal: RpcConfig = Field(RpcConfig(), description="How the replicas call each other")

    @model_validator(mode="after")
    def _one_internal_plane(self) -> Self:
        pools = {"target": self.target, "draft": self.draft}
        for name, pool in pools.items():
            if pool is not None and "rpc" in pool.config.model_fields_set:
                raise ValueError(f"{name}.config.rpc: an application has one internal plane; give it as `internal`")
        return self

    @model_validator(mode="after")
    def _pools_fit(self) -> Self:
        method = self.target.config.method
        if method == "draft_model" and self.draft is None:
            raise ValueError(
                "target.config.method draft_model needs a draft pool: add `draft`, or set the method to layerskip, "
                "medusa, ngram or none"
            )
        if method != "draft_model" and self.draft is not None:
            raise ValueError(
                f"draft: a draft pool is given, but target.config.method {method} does not use it; "
                "remove `draft`, or set the method to draft_model"
            )
        return self

    @model_validator(mode="after")
    def _autoscaling_fits(self) -> Self:
        pools = {"target": self.target, "draft": self.draft, "gateway": self.gateway}
        scaled = [name for name, pool in pools.items() if pool is not None and pool.autoscaling is not None]
        if "autoscaling" in self.model_fields_set and not {"target", "draft"} & set(scaled):
            raise ValueError(
                "autoscaling is given, but neither target nor draft has `autoscaling` with its min_replicas and "
                "max_replicas"
            )
        for name in ("target", "draft"):
            pool = pools[name]
            limits = None if pool is None else pool.autoscaling
            for key in ("target_ongoing_requests", "upscale_delay_s", "downscale_delay_s"):
                if limits is not None and limits.policy is None and getattr(limits, key) is not None:
                    raise ValueError(
                        f"{name}.autoscaling.{key} is of Serve's own policy, which cannot see this pool's requests; "
                        "what to set instead is under autoscaling, or give the pool a policy of its own"
                    )
        self._check_ratio()
        return self

    def _check_ratio(self) -> None:
        """The bounds on drafters per verifier must leave something that both pools' bounds allow."""
        ratio = self.autoscaling.drafters_per_verifier
        if "drafters_per_verifier" not in self.autoscaling.model_fields_set:
            return
        target = self.target.autoscaling
        draft = None if self.draft is None else self.draft.autoscaling
        if target is None or draft is None:
            raise ValueError(
                "autoscaling.drafters_per_verifier needs target.autoscaling and draft.autoscaling: a pool with a fixed "
                "num_replicas follows nobody"
            )
        if ratio.min * target.min_replicas > draft.max_replicas:
            raise ValueError(
                f"autoscaling.drafters_per_verifier.min ({ratio.min:g}) times target.autoscaling.min_replicas "
                f"({target.min_replicas}) exceeds draft.autoscaling.max_replicas ({draft.max_replicas})"
            )
        if ratio.max is not None and ratio.max * target.max_replicas < draft.min_replicas:
            raise ValueError(
                f"autoscaling.drafters_per_verifier.max ({ratio.max:g}) times target.autoscaling.max_replicas "
                f"({target.max_replicas}) is less than draft.autoscaling.min_replicas ({draft.min_replicas})"
            )
