"""What a rank is told at its start, and where it runs."""

import pytest

from workers.core.config import ModelConfig
from workers.core.errors import ConfigurationError
from workers.parallel.group import Seat, listen_for_ranks, use_interface_of
from workers.parallel.launcher import RankSpec, SubprocessLauncher


def test_a_rank_is_told_as_much_as_the_leader_knows() -> None:
    config = ModelConfig(model="m", base="b", layers=(0, 2), dtype="float16", num_threads=3, tensor_parallel_size=4)
    spec = RankSpec(Seat(2, 4, "127.0.0.1", 4711), config)
    assert RankSpec.from_json(spec.to_json()) == spec


@pytest.mark.parametrize(("device", "own"), [("cpu", "cpu"), ("cuda", "cuda:3")])
def test_child_processes_take_a_device_each(device: str, own: str) -> None:
    assert SubprocessLauncher().device_of(3, device) == own


def test_ranks_are_awaited_on_one_address_only() -> None:
    with listen_for_ranks(SubprocessLauncher.host) as listener:
        assert listener.getsockname()[0] == "127.0.0.1"


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"no network interface of this machine has the address 192\.0\.2\.1"):
        use_interface_of("192.0.2.1")
