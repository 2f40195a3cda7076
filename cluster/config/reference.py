"""Writes docs/configuration.md: every setting of an application, from the settings classes themselves.

python -m cluster.config.reference            # in the root of the repository
"""

import argparse
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cluster.config.arguments import OutriderArgs

__all__ = ["PAGE", "main", "page"]

PAGE = Path("docs/configuration.md")
ONCE = "rpc"  # of a replica that is run by hand; in an application it stands under `internal`
INTRO = """# Configuration

<!-- Written by `python -m cluster.config.reference` from the settings classes; change those. -->

A configuration is a Serve config, for `outrider serve`, for Ray's own `serve run`, and for Kubernetes:

```yaml
http_options: {host: 127.0.0.1, port: 8000}   # for health checks; 0.0.0.0 where they come from elsewhere
grpc_options:
  port: 9000                                  # of clients, on all interfaces
  grpc_servicer_functions:
    - outrider.v1.generation_pb2_grpc.add_GenerationServiceServicer_to_server
applications:
  - name: outrider
    import_path: cluster.app:build
    args:                                     # everything below
      model_name: tiny
      target: {config: {model: {model: models/tiny}, method: ngram}}
```

This page has what may stand under `args`; for the rest, what Ray Serve's documentation says of its config file holds.
The headings say where a key stands: `max_depth` is `args.target.config.speculation.max_depth`. A key without a default
is needed. Unknown keys and values out of bounds are refused before anything starts, with the place and what is allowed
there; `outrider serve FILE --check` does no more than that. Whole files are in `examples/`; what to set when is said in
[operations](operations.md), [autoscaling](autoscaling.md), [routing](routing.md), [speculation](speculation.md) and
[security](security.md).
"""
_NONE = re.compile(r"\bNone\b")
_BOUNDS = {"minimum": "≥ {}", "exclusiveMinimum": "> {}", "maximum": "≤ {}", "exclusiveMaximum": "< {}"}
_KINDS = {"integer": "whole number", "number": "number", "boolean": "true or false", "string": "text"}


def page() -> str:
    """The whole page."""
    schema = OutriderArgs.model_json_schema()
    definitions = {"": schema, **schema["$defs"]}
    sections = [_section(definitions[name], paths, definitions) for name, paths in _places(definitions).items()]
    return "\n".join([INTRO, *sections])


def _places(definitions: Mapping[str, Any]) -> dict[str, list[str]]:
    """Where each settings class stands, the paths in the order of the file."""
    places: dict[str, list[str]] = {}

    def visit(name: str, path: str) -> None:
        places.setdefault(name, []).append(path)
        for key, value in definitions[name]["properties"].items():
            inner = _reference(value)
            if inner and "properties" in definitions[inner] and key != ONCE:
                visit(inner, f"{path}.{key}" if path else key)

    visit("", "")
    return places


def _section(definition: Mapping[str, Any], paths: list[str], definitions: Mapping[str, Any]) -> str:
    title = ", ".join(f"`{path}`" for path in paths) if paths != [""] else "`args`"
    needed = definition.get("required", [])
    rows = [
        f"| `{key}` | {_allowed(value, definitions)} | {'' if key in needed else _default(value)} "
        f"| {_meaning(value, definitions)} |"
        for key, value in definition["properties"].items()
        if key != ONCE
    ]
    text = _NONE.sub("null", " ".join(definition["description"].split()))
    return "\n".join([f"## {title}", "", text, "", "| key | allowed | default | |", "|---|---|---|---|", *rows, ""])


def _reference(value: Mapping[str, Any]) -> str:
    """The class that a value is of, or that it may be of beside null; "" for none."""
    for one in (value, *value.get("anyOf", ())):
        if "$ref" in one:
            return str(one["$ref"]).rpartition("/")[2]
    return ""


def _allowed(value: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    kinds = [one for one in value.get("anyOf", [value]) if one.get("type") != "null"]
    return ", or ".join(_kind(one, definitions) for one in kinds)


def _kind(value: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    inner = definitions[name] if (name := _reference(value)) else value
    if "properties" in inner:
        return "mapping"
    if "enum" in inner:
        return ", ".join(f"`{one}`" for one in inner["enum"])
    match inner.get("type"):
        case "array":
            return f"list of: {_kind(inner['items'], definitions)}"
        case "object":
            values = inner.get("additionalProperties")
            return f"mapping to: {_kind(values, definitions)}" if isinstance(values, dict) and values else "mapping"
        case kind:
            return " ".join([_KINDS[str(kind)], *_bounds(inner)])


def _bounds(value: Mapping[str, Any]) -> Iterator[str]:
    found = [text.format(_number(value[key])) for key, text in _BOUNDS.items() if key in value]
    if found:
        yield ", ".join(found)


def _number(value: float) -> str:
    return f"{int(value):,}" if value == int(value) else f"{value:g}"


def _default(value: Mapping[str, Any]) -> str:
    default = value.get("default", {})  # what has a factory is an empty mapping
    if _reference(value) and isinstance(default, dict):
        return "as below"
    return f"*{json.dumps(default)}*" if default is None else f"`{json.dumps(default)}`"


def _meaning(value: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    """Its own description, or that of its class."""
    text = value.get("description") or definitions[_reference(value)]["description"].split("\n")[0].rstrip(".")
    return _NONE.sub("null", text).replace("|", "\\|")


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description="Write docs/configuration.md.")
    parser.add_argument("--root", type=Path, default=Path(), help="root of the repository")
    (parser.parse_args().root / PAGE).write_text(page())


if __name__ == "__main__":
    main()
