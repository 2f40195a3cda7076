"""Strict schemas: of custom resources from their CRDs (or the small ones kept here), of all others from Kubernetes.

Where the API server would drop an unknown field without a word, these schemas refuse it.
"""

import os
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import yaml
from kubernetes_validate import utils as kubernetes
from referencing import Registry, Resource

from tests.k8s.kustomize import ROOT, Manifest

__all__ = ["CRDS", "KUBERNETES", "OWN", "Errors", "check", "crd_schemas", "own_schemas", "strict_schema"]

KUBERNETES = ("1.32", "1.37")  # the oldest that README.md promises, and the newest known
SINCE = {"resource.k8s.io/v1": "1.34"}  # components/dra needs a newer one
CRDS = Path(os.environ.get("OUTRIDER_CRDS") or ROOT / "../shared/kuberay")
if "OUTRIDER_CRDS" in os.environ and not CRDS.is_dir():
    raise RuntimeError(f"OUTRIDER_CRDS is {CRDS}, which is no folder")
OWN = Path(__file__).parent / "schemas"
NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
DROPPED = ("description", "default", "example", "title", "externalDocs", "nullable")
BOUNDS = {"int32": 2**31, "int64": 2**63}

Errors = list[str]
Schemas = dict[tuple[str, str], dict[str, Any]]  # by (apiVersion, kind)


def strict_schema(schema: Any, *, strict: bool = True) -> Any:
    """A CRD's structural schema as JSON Schema. `strict`: not inside allOf and its like, which only add conditions."""
    if not isinstance(schema, dict):
        return schema
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"], **({"pattern": schema["pattern"]} if "pattern" in schema else {})}
    result: dict[str, Any] = {}
    for key, value in schema.items():
        if key.startswith("x-kubernetes-") or key in DROPPED:
            continue
        if key == "format":
            if value in BOUNDS:
                result = {"minimum": -BOUNDS[value], "maximum": BOUNDS[value] - 1, **result}
        elif key == "required":  # the API server fills in defaults first
            result[key] = [one for one in value if "default" not in schema.get("properties", {}).get(one, {})]
        else:
            result[key] = _keyword(key, value, strict)
    known = "properties" in result and result.get("type") == "object" and "additionalProperties" not in result
    if strict and known and not schema.get("x-kubernetes-preserve-unknown-fields"):
        result["additionalProperties"] = False
    if schema.get("nullable") and "type" in result:
        result["type"] = [result["type"], "null"]
    return result


def _keyword(key: str, value: Any, strict: bool) -> Any:
    """One keyword that JSON Schema has too, with the schemas inside it converted."""
    if key == "properties":
        return {name: strict_schema(inner, strict=strict) for name, inner in value.items()}
    if key in ("items", "not", "additionalProperties"):
        return strict_schema(value, strict=strict)
    if key in ("allOf", "anyOf", "oneOf"):
        return [strict_schema(inner, strict=False) for inner in value]
    if key == "pattern":  # from Go's dialect to Python's
        return value.replace("^(?i)", "(?i)^", 1)
    return value


@cache
def crd_schemas(folder: Path) -> Schemas:
    """All served versions of all CRDs below a folder; empty where there is no such folder."""
    found: Schemas = {}
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    for path in sorted(folder.rglob("*.yaml")):
        if not re.match(r"[a-z0-9.]+_[a-z]+\.yaml$", path.name):
            continue
        crd = yaml.load(path.read_text(), Loader=loader)  # noqa: S506  # both are safe
        spec = crd["spec"]
        for version in spec["versions"]:
            if not version["storage"]:
                continue
            key = (f"{spec['group']}/{version['name']}", spec["names"]["kind"])
            found[key] = strict_schema(version["schema"]["openAPIV3Schema"])
    return found


@cache
def own_schemas() -> Schemas:
    """The small schemas of the fields used here, one file for each kind."""
    found: Schemas = {}
    for path in sorted(OWN.glob("*.yaml")):
        document = yaml.safe_load(path.read_text())
        found[document["apiVersion"], document["kind"]] = document["schema"]
    return found


def check(one: Manifest, schemas: Callable[[], Schemas], versions: tuple[str, ...] = KUBERNETES) -> Errors:
    """What is wrong with an object. A kind that nobody knows is an error."""
    key = (str(one.get("apiVersion")), str(one.get("kind")))
    errors = _metadata_errors(one)
    custom = schemas().get(key)
    if custom is not None:
        return errors + _errors(one, _validator(key, schemas))
    for promised in versions:
        version = max(promised, SINCE.get(key[0], promised))
        try:
            errors += [f"{version}: {error}" for error in _errors(one, _core_validator(*key, version))]
        except FileNotFoundError:
            errors.append(f"no schema for {key[1]} {key[0]} in Kubernetes {version}")
    return errors


def _errors(one: Manifest, validator: Any) -> Errors:
    found = validator.iter_errors(one)
    return [f"{'/'.join(map(str, error.absolute_path))}: {error.message[:200]}" for error in found]


@cache
def _validator(key: tuple[str, str], schemas: Callable[[], Schemas]) -> Any:
    schema = {**schemas()[key]}
    schema["properties"] = {**schema["properties"], "metadata": {"type": "object"}}  # checked by ourselves
    return jsonschema.Draft202012Validator(schema)


@cache
def _core_validator(api_version: str, kind: str, version: str) -> Any:
    folder = f"kubernetes-json-schema/v{_release(version)}-local-strict"
    group = re.sub(r"^([^./]*)(?:\.[^/]*)?/", r"\1-", api_version)
    schema = kubernetes.schema_contents(f"{folder}/{kind.lower()}-{group}.json", version)
    registry = Resource.from_contents(schema) @ Registry()
    registry = Resource.from_contents(kubernetes.schema_contents(f"{folder}/_definitions.json", version)) @ registry
    return jsonschema.Draft202012Validator(schema, registry=registry)


def _release(version: str) -> str:
    return next(one for one in kubernetes.all_versions() if kubernetes.major_minor(one) == version)


def _metadata_errors(one: Manifest) -> Errors:
    """In a CRD `metadata` is any object; here only what these manifests need."""
    metadata = one.get("metadata")
    if not isinstance(metadata, dict):
        return ["metadata: an object is needed"]
    errors = [
        f"metadata: {key} is unknown" for key in metadata if key not in ("name", "namespace", "labels", "annotations")
    ]
    for field in ("name", "namespace"):
        value = metadata.get(field, "default")
        if not isinstance(value, str) or not NAME.fullmatch(value):
            errors.append(f"metadata/{field}: {value!r} is no name")
    if "name" not in metadata:
        errors.append("metadata/name is needed")
    for field in ("labels", "annotations"):
        for key, value in metadata.get(field, {}).items():
            if not isinstance(value, str):
                errors.append(f"metadata/{field}/{key}: {value!r} is no string")
    return errors
