"""What routers publish is what the gateway reads."""

from dataclasses import replace

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
    kv_block_size=16,
)


def test_metadata_round_trip() -> None:
    assert ReplicaRecord.from_metadata(RECORD.to_metadata()) == RECORD


def test_metadata_of_another_form_is_not_a_record() -> None:
    assert ReplicaRecord.from_metadata({}) is None
    assert ReplicaRecord.from_metadata(RECORD.to_metadata() | {"zone": "a"}) is None


def test_records_are_replaced_and_ordered() -> None:
    membership = Membership()
    first = replace(RECORD, replica_id="a")
    membership.publish("app", "D", [RECORD.to_metadata(), {}, first.to_metadata()])
    assert membership.records("app", "D") == (first, RECORD)
    membership.publish("app", "D", [RECORD.to_metadata()])
    assert membership.records("app", "D") == (RECORD,)


def test_deployments_and_applications_are_apart() -> None:
    membership = Membership()
    membership.publish("app", "DraftProposer", [RECORD.to_metadata()])
    assert membership.records("app", "TargetVerifier") == ()
    assert membership.records("other", "DraftProposer") == ()


def test_directory_shows_both_pools() -> None:
    membership = Membership()
    verifier = replace(RECORD, role="verifier", replica_id="v")
    membership.publish("app", "V", [verifier.to_metadata()])
    membership.publish("app", "D", [RECORD.to_metadata()])
    directory = MembershipDirectory(membership, "app", "V", "D")
    assert directory.verifiers() == (verifier,)
    assert directory.drafters() == (RECORD,)


def test_directory_without_a_draft_pool() -> None:
    assert MembershipDirectory(Membership(), "app", "V", None).drafters() == ()
