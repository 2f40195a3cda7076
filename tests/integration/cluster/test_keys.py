"""Keys, hints and the internal token behind Serve's own proxy."""

from pathlib import Path

import grpc
import outrider
import pytest
from outrider import Client, RetryPolicy
from outrider.v1 import verifier_pb2, verifier_pb2_grpc
from typer.testing import CliRunner

from cluster.cli.main import app
from cluster.local import LocalCluster
from tests.integration.cluster.processes import wait_until

MARKER = "quokkaxylophone"


def new_key(serve_config: Path, name: str, *limits: str) -> str:
    words = ["keys", "new", name, "--file", str(serve_config.parent / "keys.yaml"), *limits]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.stderr
    return result.stdout.strip()


def usable(client: Client) -> bool:
    try:
        client.model_info()
    except outrider.AuthenticationError:
        return False
    return True


def test_without_a_key_nothing_is_served(address: str) -> None:
    for key in ("", "outrider_wrong"):
        with Client(address, api_key=key, retry=RetryPolicy.never(), timeout=60.0) as client:
            for call in (
                lambda client=client: client.generate("x", max_tokens=2),
                client.model_info,
                client.server_info,
            ):
                with pytest.raises(outrider.AuthenticationError, match="a valid API key is needed") as caught:
                    call()
                assert caught.value.status == "UNAUTHENTICATED"


def has_room(client: Client) -> bool:
    try:
        client.generate("Once", max_tokens=1)
    except outrider.OverloadedError:
        return False
    return True


def test_a_new_key_is_limited_and_a_revoked_one_refused(address: str, serve_config: Path) -> None:
    """The gateway reads the file again by itself; the hint survives the proxy."""
    key = new_key(serve_config, "limited", "--max-concurrent-requests", "1")
    with Client(address, api_key=key, retry=RetryPolicy.never(), timeout=60.0) as client:
        wait_until(lambda: usable(client), 30.0)
        with client.stream("Once", max_tokens=100, ignore_eos=True) as stream:
            next(stream)
            with pytest.raises(outrider.OverloadedError, match="the API key limited has 1 requests") as caught:
                client.generate("Once", max_tokens=2)
            assert caught.value.retry_after_s is not None
        wait_until(lambda: has_room(client), 30.0)  # the gateway hears a moment later that the stream was left
        with pytest.raises(outrider.RefusedError, match="priority: 0 to 10 are allowed"):
            client.generate("Once", max_tokens=2, priority=-1)
        words = ["keys", "revoke", "limited", "--file", str(serve_config.parent / "keys.yaml")]
        assert CliRunner().invoke(app, words).exit_code == 0
        wait_until(lambda: not usable(client), 30.0)


def test_replicas_answer_nobody_but_each_other(client: Client) -> None:
    """They have a token that this process's Ray was given."""
    assert client.generate("Once", max_tokens=4, ignore_eos=True).stats.output_tokens == 4
    verifier = next(one for one in client.server_info().replicas if one.role == "verifier")
    with grpc.insecure_channel(verifier.address) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            verifier_pb2_grpc.VerifierServiceStub(channel).GetInfo(verifier_pb2.VerifierGetInfoRequest(), timeout=60)
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED  # type: ignore[attr-defined]


def test_the_ingress_does_not_describe_itself(address: str) -> None:
    from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

    with grpc.insecure_channel(address) as channel:
        asked = iter([reflection_pb2.ServerReflectionRequest(list_services="")])
        with pytest.raises(grpc.RpcError) as caught:
            next(reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(asked, timeout=60))
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED  # type: ignore[attr-defined]


def test_logs_of_ray_and_serve_hold_no_content(client: Client, cluster: LocalCluster) -> None:
    import ray

    assert client.generate(MARKER, max_tokens=4, ignore_eos=True).text is not None
    for refused in (
        lambda: client.generate("x", max_tokens=4, model=MARKER),
        lambda: client.generate("x", max_tokens=4, stop=[MARKER * 100]),
    ):
        with pytest.raises(outrider.OutriderError):
            refused()
    logs = Path(ray._private.worker._global_node.get_session_dir_path()) / "logs"
    texts = {path: path.read_text(errors="replace") for path in logs.rglob("*") if path.is_file()}
    assert any("NotFoundError" in text for text in texts.values()), "the refusal itself is logged"
    assert [path.name for path, text in texts.items() if MARKER in text] == []
