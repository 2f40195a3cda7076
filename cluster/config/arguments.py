"""Arguments of `cluster.app:build`: the whole application in one value."""

from typing import Self

from pydantic import Field, model_validator

from cluster.config.gateway import GatewayConfig
from cluster.config.pools import DrafterPool, Settings, VerifierPool
from workers.core.config import RpcConfig

__all__ = ["OutriderArgs"]


class OutriderArgs(Settings):
    """`args` of the application in the YAML file."""

    model_name: str = Field(
        description="The name that clients use for the model", min_length=1, max_length=256, pattern=r"^\S+$"
    )
    target: VerifierPool
    draft: DrafterPool | None = Field(None, description="Needed by target.config.method draft_model, and only by it")
    gateway: GatewayConfig = GatewayConfig()
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
