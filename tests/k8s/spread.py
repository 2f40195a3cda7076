"""Topology spread constraints, evaluated: on which nodes may the next pod of a kind be placed?"""

from dataclasses import dataclass, field

from tests.k8s.kustomize import Manifest

__all__ = ["CLUSTER", "Placed", "Room", "ends", "open_nodes"]

CLUSTER = "ray.io/cluster"  # the operator puts it on every pod, with the name of the RayCluster


@dataclass(frozen=True)
class Placed:
    """A pod that runs."""

    node: str
    labels: dict[str, str] = field(hash=False)


@dataclass(frozen=True)
class Room:
    """Nodes that the selector of a pod allows: those that take it, those whose taints (a cordon, say) do not, and those
    that others have filled.
    """

    nodes: tuple[str, ...]
    tainted: tuple[str, ...] = ()
    full: tuple[str, ...] = ()


def open_nodes(constraints: list[Manifest], labels: dict[str, str], placed: list[Placed], room: Room) -> list[str]:
    """As the scheduler filters; constraints that are only wishes (ScheduleAnyway) filter nothing."""
    found = list(room.nodes)
    for one in constraints:
        if one["whenUnsatisfiable"] != "DoNotSchedule":
            continue
        assert one["topologyKey"] == "kubernetes.io/hostname", "here a node is a domain"
        wanted = dict(one["labelSelector"]["matchLabels"])
        wanted |= {key: labels[key] for key in one.get("matchLabelKeys", []) if key in labels}
        domains = (*room.nodes, *room.full)
        domains += () if one.get("nodeTaintsPolicy", "Ignore") == "Honor" else room.tainted
        counts = {
            node: sum(pod.node == node and wanted.items() <= pod.labels.items() for pod in placed) for node in domains
        }
        least = min(counts.values()) if len(domains) >= one.get("minDomains", 1) else 0
        own = int(wanted.items() <= labels.items())
        found = [node for node in found if counts[node] + own - least <= one["maxSkew"]]
    return found


def ends(
    constraints: list[Manifest], labels: dict[str, str], before: list[Placed], room: Room, number: int
) -> set[tuple[str, ...]]:
    """Every way in which the scheduler may place so many pods, one after the other: the nodes, sorted. Fewer nodes than
    pods: the rest is pending.
    """
    found: set[tuple[str, ...]] = set()
    seen: set[tuple[str, ...]] = set()
    waiting: list[tuple[str, ...]] = [()]
    while waiting:
        taken = waiting.pop()
        pods = [*before, *(Placed(node, labels) for node in taken)]
        choices = open_nodes(constraints, labels, pods, room) if len(taken) < number else []
        if not choices:
            found.add(taken)
        for node in choices:
            after = tuple(sorted((*taken, node)))
            if after not in seen:
                seen.add(after)
                waiting.append(after)
    return found
