"""The config's JSON schema and the reference of its keys, generated from the settings classes."""

import json
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from .config import Experiment

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def config_schema(
    *,
    reference: Annotated[
        bool, typer.Option("--reference", help="Print the reference of the keys in Markdown instead.")
    ] = False,
) -> None:
    """Print the schema or the reference."""
    typer.echo("\n".join(reference_lines()) if reference else json.dumps(schema(), indent=2))


def schema() -> dict[str, Any]:
    """Give the JSON schema of a config file."""
    return {"$schema": DIALECT, **Experiment.model_json_schema()}


def reference_lines() -> Iterator[str]:
    """Give one Markdown table row for each key, by its full path."""
    full = schema()
    yield "| key | default | meaning |"
    yield "|---|---|---|"
    yield from _rows(full, full["properties"], set(full["required"]), "")


def _rows(full: dict[str, Any], properties: dict[str, Any], required: set[str], prefix: str) -> Iterator[str]:
    for name, field in properties.items():
        inner = _inner(full, field)
        default = "**required**" if name in required else f"`{_default(field)}`"
        yield f"| `{prefix}{name}` | {'' if inner and name not in required else default} | {field.get('description', '')} |"
        if inner:
            below = f"{prefix}{name}.<run>." if "additionalProperties" in field else f"{prefix}{name}."
            yield from _rows(full, inner["properties"], set(inner.get("required", [])), below)


def _default(field: dict[str, Any]) -> str:
    return json.dumps(field.get("default"), ensure_ascii=False)


def _inner(full: dict[str, Any], field: dict[str, Any]) -> dict[str, Any] | None:
    """Find the definition of a section, which may stand behind `anyOf` or as the value of a mapping."""
    candidates = [field, *field.get("anyOf", []), *field.get("allOf", [])]
    if isinstance(field.get("additionalProperties"), dict):
        candidates.append(field["additionalProperties"])
    reference = next((c["$ref"] for c in candidates if "$ref" in c), None)
    return full["$defs"][reference.rsplit("/", 1)[1]] if reference else None
