"""What routers publish is what the gateway reads."""

from dataclasses import replace

from cluster.gateway.directory import ReplicaLoad, ReplicaState
from cluster.router.directory import MembershipDirectory
from cluster.router.membership import Membership, ReplicaRecord

RECORD = ReplicaRecord(
    role="drafter",
    replica_id="b",
    address="127.0.0.1:1",
    incarnation=7,
    model="m",
    model_fingerprint="f",
    tokenizer_hash="t",
)


def test_metadata_round_trip() -> None:
    assert ReplicaRecord.from_metadata(RECORD.to_metadata()) == RECORD


def test_metadata_of_another_form_is_not_a_record() -> None:
    assert ReplicaRecord.from_metadata({}) is None
    assert ReplicaRecord.from_metadata(RECORD.to_metadata() | {"zone": "a"}) is None


def test_records_are_replaced_and_ordered() -> None:
    membership = Membership()
    first = replace(RECORD, replica_id="a")
    membership.publish(
        "app", "D", [(RECORD.to_metadata(), {}), ({}, {}), (first.to_metadata(), {"running_requests": 3})]
    )
    assert membership.records("app", "D") == ((first, {"running_requests": 3}), (RECORD, {}))
    membership.publish("app", "D", [(RECORD.to_metadata(), {})])
    assert membership.records("app", "D") == ((RECORD, {}),)


def test_deployments_and_applications_are_apart() -> None:
    membership = Membership()
    membership.publish("app", "DraftProposer", [(RECORD.to_metadata(), {})])
    assert membership.records("app", "TargetVerifier") == ()
    assert membership.records("other", "DraftProposer") == ()


def test_directory_shows_both_pools_with_their_load() -> None:
    membership = Membership()
    verifier = replace(RECORD, role="verifier", replica_id="v")
    membership.publish("app", "V", [(verifier.to_metadata(), {"running_requests": 2, "free_kv_blocks": 9})])
    membership.publish("app", "D", [(RECORD.to_metadata(), {})])
    directory = MembershipDirectory(membership, "app", "V", "D")
    assert directory.verifiers() == [ReplicaState(verifier, ReplicaLoad(running_requests=2, free_kv_blocks=9))]
    assert directory.drafters() == [ReplicaState(RECORD, ReplicaLoad())]


def test_directory_without_a_draft_pool() -> None:
    assert MembershipDirectory(Membership(), "app", "V", None).drafters() == ()
