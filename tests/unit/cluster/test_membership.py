"""What routers publish is what the gateway reads."""

from dataclasses import replace

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
    membership.publish("app", "DraftProposer", [RECORD.to_metadata(), {}, first.to_metadata()])
    assert membership.records("app", "DraftProposer") == (first, RECORD)
    membership.publish("app", "DraftProposer", [RECORD.to_metadata()])
    assert membership.records("app", "DraftProposer") == (RECORD,)


def test_deployments_and_applications_are_apart() -> None:
    membership = Membership()
    membership.publish("app", "DraftProposer", [RECORD.to_metadata()])
    assert membership.records("app", "TargetVerifier") == ()
    assert membership.records("other", "DraftProposer") == ()
