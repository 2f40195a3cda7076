"""KV events and load: core -> wire, for the services of both pools."""

from outrider.v1 import verifier_pb2

from workers.kvcache.events import KvEventBatch

__all__ = ["kv_events_to_wire"]


def kv_events_to_wire(batch: KvEventBatch, load: verifier_pb2.ReplicaLoad) -> verifier_pb2.KvEventsResponse:
    return verifier_pb2.KvEventsResponse(
        incarnation=batch.incarnation,
        previous_sequence_number=batch.previous,
        sequence_number=batch.sequence_number,
        cleared=batch.events.cleared,
        stored_block_hashes=batch.events.stored,
        removed_block_hashes=batch.events.removed,
        load=load,
    )
