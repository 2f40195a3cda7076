"""The public surface: names, parity of the two clients, agreement with the wire contract, light imports."""

import inspect
import subprocess
import sys
from dataclasses import fields

import outrider
import pytest
from outrider import errors, testing
from outrider.params import SamplingFields
from outrider.v1 import common_pb2, generation_pb2

from workers.core import errors as server_errors

IMPORT_BLOCKER = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"torch", "ray", "pydantic", "numpy", "transformers", "workers", "cluster"}:
            raise ImportError(f"{name} must not be imported")

sys.meta_path.insert(0, Blocker())
import outrider, outrider.testing
with outrider.testing.FakeServer("works") as server, server.client() as client:
    assert client.generate("x").text == "works"
"""


def test_every_public_name_exists_once() -> None:
    for module in (outrider, testing, errors):
        assert len(set(module.__all__)) == len(module.__all__)
        for name in module.__all__:
            assert hasattr(module, name), f"{module.__name__}.{name}"


def test_all_errors_are_public() -> None:
    assert set(errors.__all__) <= set(outrider.__all__)
    assert all(issubclass(getattr(outrider, name), outrider.OutriderError) for name in errors.__all__)
    assert errors.__doc__ is not None
    assert all(name in errors.__doc__ for name in errors.__all__)


def test_every_error_of_the_server_has_a_class_here() -> None:
    assert set(server_errors.__all__) <= set(outrider.__all__)


def test_imports_without_the_server_stack() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORT_BLOCKER], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_marked_as_typed() -> None:
    from importlib.resources import files

    assert files("outrider").joinpath("py.typed").is_file()


@pytest.mark.parametrize(
    ("sync", "asynchronous"), [(outrider.Client, outrider.AsyncClient), (outrider.Stream, outrider.AsyncStream)]
)
def test_the_clients_have_the_same_surface(sync: type, asynchronous: type) -> None:
    def surface(kind: type) -> dict[str, list[tuple[str, object]]]:
        public = {name: value for name, value in inspect.getmembers(kind) if not name.startswith("_")}
        return {
            name: [(p.name, p.default) for p in inspect.signature(value).parameters.values()] if callable(value) else []
            for name, value in public.items()
        }

    assert surface(sync) == surface(asynchronous)


def test_the_clients_take_the_same_settings() -> None:
    def settings(kind: type) -> list[tuple[str, object]]:
        parameters = inspect.signature(kind).parameters.values()
        return [(p.name, p.default) for p in parameters if p.name != "sleep"]  # time.sleep and asyncio.sleep

    assert settings(outrider.Client) == settings(outrider.AsyncClient)


def test_sampling_parameters_are_those_of_the_wire() -> None:
    names = [field.name for field in common_pb2.SamplingParams.DESCRIPTOR.fields]
    assert [spec.name for spec in fields(outrider.SamplingParams)] == names
    assert list(SamplingFields.__annotations__) == names


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (outrider.GenerationStats, common_pb2.GenerationStats),
        (outrider.ModelInfo, generation_pb2.GetModelInfoResponse),
        (outrider.ReplicaInfo, generation_pb2.ReplicaInfo),
        (outrider.ServerInfo, generation_pb2.GetServerInfoResponse),
        (outrider.TokenCount, generation_pb2.CountTokensResponse),
        (outrider.TopLogprob, common_pb2.TopLogprob),
        (outrider.TokenLogprob, common_pb2.TokenLogprob),
    ],
)
def test_results_carry_every_field_of_the_wire(kind: type, message: type) -> None:
    assert [spec.name for spec in fields(kind)] == [field.name for field in message.DESCRIPTOR.fields]  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", [outrider.FinishReason, outrider.VerificationRule, outrider.SpeculationMode])
def test_enums_are_those_of_the_wire(kind: type[outrider.FinishReason]) -> None:
    wire = getattr(common_pb2, kind.__name__)
    names = [name.rpartition("_")[2] for name in wire.keys()]  # noqa: SIM118  # not a dict
    assert ["UNSPECIFIED", *(member.name for member in kind)] == names
