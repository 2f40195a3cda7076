"""Tensor parallelism: one replica, several processes that hold a shard of the model and of the K/V pool each."""
