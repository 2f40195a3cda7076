"""API keys: how they are made, stored, found, and read again while the server runs."""

import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from outrider.testing import FakeClock

from cluster.config.tenancy import KeyLimits
from cluster.security.api_keys import KEY_PREFIX, find_key, hash_of, looks_like_a_key, new_key
from cluster.security.key_file import KeyEntry, KeyFile, read_keys, write_keys
from cluster.security.key_store import KeyStore
from workers.core.errors import ConfigurationError

KEY, OTHER = new_key(), new_key()


def stored(path: Path, **entries: Any) -> Path:
    path.write_text(yaml.safe_dump({"keys": entries}))
    return path


def entry(key: str = KEY, **limits: Any) -> dict[str, Any]:
    return {"sha256": hash_of(key), "limits": limits}


def test_keys_are_long_random_and_recognisable() -> None:
    keys = {new_key() for _ in range(100)}
    assert len(keys) == 100
    assert all(looks_like_a_key(key) and key.startswith(KEY_PREFIX) for key in keys)
    assert not looks_like_a_key("outrider_short")


def test_only_the_very_key_is_found() -> None:
    known = {hash_of(KEY): "a", hash_of(OTHER): "b"}
    assert (find_key(KEY, known), find_key(OTHER, known)) == ("a", "b")
    for wrong in ("", KEY[:-1], KEY + "x", KEY.upper(), hash_of(KEY), "ä" * 52):
        assert find_key(wrong, known) is None


def test_the_file_holds_no_key_and_is_the_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "keys.yaml"
    write_keys(path, KeyFile(keys={"a": KeyEntry(sha256=hash_of(KEY), limits={"weight": 2.0})}))
    assert KEY not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_keys(path).keys["a"].limits_over(KeyLimits(tokens_per_minute=5)) == KeyLimits(
        tokens_per_minute=5, weight=2.0
    )


def test_json_is_read_as_well(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_text(json.dumps({"keys": {"a": entry()}}))
    assert set(read_keys(path).keys) == {"a"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "a mapping with `keys` is needed"),
        ("- a\n", "a mapping with `keys` is needed"),
        ("keys: {a: [", "neither YAML nor JSON (line 1)"),
        ("keys: {}\nkeys: {}", "the key 'keys' is given twice"),
        ("key: {}", "key: unknown key (did you mean keys?); allowed: keys"),
        ("keys: {a: {}}", "keys.a.sha256: Field required"),
        ("keys: {a b: {}}", "keys.a b"),
        ("keys: {a: {sha256: KEY}}", "64 hexadecimal digits are needed: the hash of the key, never the key"),
        ("keys: {a: {sha256: HASH, limits: {weight: 0}}}", "weight"),
        ("keys: {a: {sha256: HASH, limits: {tokens: 5}}}", "tokens"),
        ("keys: {a: {sha256: HASH}, b: {sha256: HASH}}", "keys a and b have the same hash"),
        ("keys: {a: {sha256: HASH, created: tomorrow}}", "created"),
    ],
)
def test_files_that_are_wrong(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "keys.yaml"
    path.write_text(text.replace("HASH", hash_of(KEY)).replace("KEY", KEY))
    with pytest.raises(ConfigurationError) as caught:
        read_keys(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert problem in str(caught.value)
    assert KEY not in str(caught.value)


def test_a_file_that_is_not_there_or_no_text(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="nowhere: cannot be read: No such file"):
        read_keys(tmp_path / "nowhere")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(ConfigurationError, match="is not UTF-8"):
        read_keys(tmp_path / "bytes")


def later(clock: FakeClock) -> None:
    clock.sleep(5.0)


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    clock, path = FakeClock(), stored(tmp_path / "keys.yaml", a=entry())
    store = KeyStore(path, KeyLimits(weight=3.0), clock)
    known = store.find(KEY)
    assert known is not None
    assert (known.name, known.limits.weight) == ("a", 3.0)
    stored(path, b=entry(OTHER, max_concurrent_requests=2))
    assert store.find(KEY) is not None, "it is not looked at on every call"
    later(clock)
    assert store.find(KEY) is None
    assert [one.limits.max_concurrent_requests for one in store.keys] == [2]


def test_a_swapped_link_is_a_changed_file(tmp_path: Path) -> None:
    """How Kubernetes updates a mounted secret."""
    clock = FakeClock()
    for name, key in (("old", KEY), ("new", OTHER)):
        (tmp_path / name).mkdir()
        stored(tmp_path / name / "keys.yaml", a=entry(key))
    link = tmp_path / "current"
    link.symlink_to("old")
    store = KeyStore(link / "keys.yaml", KeyLimits(), clock)
    assert store.find(KEY) is not None
    (tmp_path / "next").symlink_to("new")
    os.replace(tmp_path / "next", link)
    later(clock)
    assert store.find(KEY) is None
    assert store.find(OTHER) is not None


@pytest.mark.parametrize("broken", ["keys: [", "keys: {a: {}}", None])
def test_a_broken_file_keeps_the_old_keys_and_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, broken: str | None
) -> None:
    clock, path = FakeClock(), stored(tmp_path / "keys.yaml", a=entry())
    store = KeyStore(path, KeyLimits(), clock)
    path.unlink() if broken is None else path.write_text(broken)
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            later(clock)
            assert store.find(KEY) is not None
    assert [record.message.startswith("the API keys stay as they were") for record in caplog.records] == [True]
    stored(path, a=entry(OTHER))
    later(clock)
    assert store.find(OTHER) is not None


def test_without_a_readable_file_there_is_no_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError):
        KeyStore(tmp_path / "keys.yaml", KeyLimits(), FakeClock())
