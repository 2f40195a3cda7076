"""A drafter that guesses from a file: what followed the last few tokens there, may follow again.

It needs nothing but grpcio and the stubs of the `outrider` distribution, and is
written from docs/protocol.md alone. Good for anything that quotes: contracts,
logs, code, a knowledge base whose passages stand in the prompts.

    python examples/text_file_drafter.py --text handbook.txt --gateway 127.0.0.1:9000
    python examples/text_file_drafter.py --token-ids handbook.ids --listen 0.0.0.0:7000

With `--text` the served model's own tokenizer is asked, through the gateway's
CountTokens. A file for `--token-ids` holds one passage a line: token ids
separated by blanks or commas, with or without brackets (so JSON lists work).
"""

import argparse
import contextlib
import itertools
import os
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from concurrent import futures
from dataclasses import dataclass
from pathlib import Path

import grpc
from outrider.v1 import common_pb2, draft_pb2, draft_pb2_grpc, generation_pb2, generation_pb2_grpc, verifier_pb2

PROTOCOL_VERSION = 1
LONGEST_MATCH, SHORTEST_MATCH = 6, 2
ROOT = -1


class Passages:
    """Where each short run of tokens occurs in the file, and what follows it."""

    def __init__(self, passages: Iterable[list[int]]) -> None:
        self.passages = list(passages)
        self.after: dict[tuple[int, ...], list[tuple[int, int]]] = defaultdict(list)
        for number, tokens in enumerate(self.passages):
            for n in range(SHORTEST_MATCH, LONGEST_MATCH + 1):
                for end in range(n, len(tokens)):
                    self.after[tuple(tokens[end - n : end])].append((number, end))

    def continuations(self, committed: list[int], length: int) -> Iterator[list[int]]:
        """Continuations of the longest match of the last committed tokens."""
        for n in range(LONGEST_MATCH, SHORTEST_MATCH - 1, -1):
            places = self.after.get(tuple(committed[-n:]), ())
            for number, end in places:
                yield self.passages[number][end : end + length]
            if places:
                return


@dataclass
class Session:
    epoch: int
    tokens: list[int]
    rule: int
    budget: draft_pb2.Budget
    paused: bool = False


class TextFileDrafter(draft_pb2_grpc.DraftServiceServicer):
    """One thread for each verifier: reads a frame, answers it."""

    def __init__(self, passages: Passages, tokenizer_hash: str | None, max_sessions: int) -> None:
        self.passages = passages
        self.tokenizer_hash = tokenizer_hash
        self.max_sessions = max_sessions
        self.incarnation = time.time_ns()

    def Speculate(
        self, frames: Iterator[draft_pb2.VerifierFrame], context: grpc.ServicerContext
    ) -> Iterator[draft_pb2.DrafterFrame]:
        hello = next(frames).hello
        wanted = self.tokenizer_hash or hello.tokenizer_hash
        if hello.protocol_version != PROTOCOL_VERSION:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"this drafter speaks version {PROTOCOL_VERSION}")
        if hello.tokenizer_hash != wanted:
            context.abort(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"the token ids here belong to tokenizer {wanted!r}, {hello.model!r} has {hello.tokenizer_hash!r}",
            )
        yield draft_pb2.DrafterFrame(
            welcome=draft_pb2.Welcome(
                protocol_version=PROTOCOL_VERSION,
                drafter_id=f"text-file-{os.getpid()}",
                incarnation=self.incarnation,
                model="text-file",
                model_fingerprint="text-file",
                tokenizer_hash=wanted,
                vocab_size=hello.vocab_size,
                max_sessions=self.max_sessions,
            )
        )
        sessions: dict[int, Session] = {}
        for frame in frames:
            changed = self.apply(frame, sessions)
            proposals = [self.propose(key, sessions[key], hello.vocab_size) for key in changed]
            if proposals:
                yield draft_pb2.DrafterFrame(proposals=proposals)

    def KvEvents(
        self, request: verifier_pb2.KvEventsRequest, context: grpc.ServicerContext
    ) -> Iterator[verifier_pb2.KvEventsResponse]:
        context.abort(grpc.StatusCode.UNIMPLEMENTED, "this drafter has no cache")
        yield verifier_pb2.KvEventsResponse()

    def apply(self, frame: draft_pb2.VerifierFrame, sessions: dict[int, Session]) -> list[int]:
        """Take in a frame; the sessions that now wait for a proposal."""
        changed: dict[int, None] = {}
        for opened in frame.opens:
            sessions[opened.session_id] = Session(opened.epoch, list(opened.token_ids), opened.rule, opened.budget)
            changed[opened.session_id] = None
        for commit in frame.commits:
            session = sessions.get(commit.session_id)
            if session is None or session.epoch != commit.epoch:
                continue
            session.tokens = [*session.tokens[: commit.base_len], *commit.token_ids]
            session.budget, session.paused = commit.budget, commit.paused
            changed[commit.session_id] = None
        for closed in frame.closes:
            if closed.session_id in sessions and sessions[closed.session_id].epoch == closed.epoch:
                del sessions[closed.session_id]
        return [key for key in changed if key in sessions and not sessions[key].paused]

    def propose(self, key: int, session: Session, vocab_size: int) -> draft_pb2.Proposal:
        """A tree of the continuations, within the budget; empty when the file has none."""
        certain = session.rule == common_pb2.VERIFICATION_RULE_REJECTION
        width = 1 if certain else session.budget.max_width
        tokens: list[int] = []
        parents: list[int] = []
        child_of: dict[tuple[int, int], int] = {}
        width_of: dict[int, int] = defaultdict(int)
        for continuation in self.passages.continuations(session.tokens, session.budget.max_depth):
            node = ROOT
            for token in itertools.takewhile(lambda token: token < vocab_size, continuation):
                child = child_of.get((node, token))
                if child is None:
                    if len(tokens) == session.budget.max_nodes or width_of[node] == width:
                        break
                    child = child_of[node, token] = len(tokens)
                    width_of[node] += 1
                    tokens.append(token)
                    parents.append(node)
                node = child
        proposal = draft_pb2.Proposal(
            session_id=key,
            epoch=session.epoch,
            base_len=len(session.tokens),
            tree=common_pb2.TokenTree(token_ids=tokens, parent_indices=parents),
        )
        if certain:  # a chain of guesses that were made with certainty
            for token, parent in zip(tokens, parents, strict=True):
                point_mass = common_pb2.DraftDistribution(token_ids=[token], probs=[1.0])
                proposal.distributions.add(node_index=parent, distribution=point_mass)
        return proposal


def read_token_ids(path: Path) -> list[list[int]]:
    """One passage a line; anything that is not a digit separates."""
    return [[int(number) for number in re.findall(r"\d+", line)] for line in path.read_text().splitlines()]


def tokenise(path: Path, gateway: str) -> list[list[int]]:
    """Ask the served model's tokenizer; one passage for the whole file."""
    with grpc.insecure_channel(gateway) as channel:
        request = generation_pb2.CountTokensRequest(text=path.read_text())
        return [list(generation_pb2_grpc.GenerationServiceStub(channel).CountTokens(request).token_ids)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--text", type=Path, help="a text file; needs --gateway")
    source.add_argument("--token-ids", type=Path, help="a file of token ids, one passage a line")
    parser.add_argument("--gateway", help="host:port of the gateway whose tokenizer is used")
    parser.add_argument("--listen", default="127.0.0.1:0", help="host:port; port 0 takes a free one")
    parser.add_argument("--tokenizer-hash", help="refuse verifiers with another one; default: believe the verifier")
    parser.add_argument("--max-sessions", type=int, default=64)
    arguments = parser.parse_args()
    if arguments.text and not arguments.gateway:
        parser.error("--text needs --gateway, whose tokenizer turns it into token ids")
    passages = tokenise(arguments.text, arguments.gateway) if arguments.text else read_token_ids(arguments.token_ids)

    # A stream keeps its thread for as long as it lives: one for each verifier.
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=32), options=[("grpc.so_reuseport", 0)])
    drafter = TextFileDrafter(Passages(passages), arguments.tokenizer_hash, arguments.max_sessions)
    draft_pb2_grpc.add_DraftServiceServicer_to_server(drafter, server)
    port = server.add_insecure_port(arguments.listen)
    server.start()
    print(f"listening on {arguments.listen.rpartition(':')[0]}:{port}", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        server.wait_for_termination()
    server.stop(grace=None)


if __name__ == "__main__":
    main()
