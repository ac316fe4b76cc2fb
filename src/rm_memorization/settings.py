"""The base of all settings, and what is said about one that is wrong."""

import math
import re
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from .errors import UserError

Count = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]
Text = Annotated[str, Field(min_length=1)]


class Settings(BaseModel):
    """Base of all settings: unknown keys are refused, types are not coerced, numbers are finite."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


Model = TypeVar("Model", bound=Settings)


def checked(model: type[Model], values: Any, where: str) -> Model:
    """Check settings.

    Parameters
    ----------
    model
        What they must be.
    values
        Parsed YAML; or text, which is read as JSON.
    where
        What to call them in an error: ``config``, or a command's option.

    Raises
    ------
    UserError
        With the key, what was found and, for a typo, the nearest key.
    """
    try:
        if isinstance(values, str):
            return model.model_validate_json(values)
        return model.model_validate(values)
    except ValidationError as error:
        raise _explain(error, model, where) from None


def _explain(error: ValidationError, model: type[BaseModel], where: str) -> UserError:
    """Tell one mistake; a misspelt key comes first, for it can be why another key is missing."""
    mistakes = error.errors(include_url=False)
    first = next((mistake for mistake in mistakes if mistake["type"] == "extra_forbidden"), mistakes[0])
    key = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return UserError(where, f"unknown key {key!r}", hint=_nearest(first["loc"], model))
    if first["type"] == "missing":
        return UserError(where, f"key {key!r} is missing", hint="config/README.md explains every key")
    message, value = re.sub("^Value error, ", "", first["msg"]), first["input"]
    found = message if isinstance(value, dict | list) else f"{_shown(value)} is wrong: {message}"
    return UserError(f"{where}: {key}" if key else where, found, hint=_spelling(first["type"], value))


def _shown(value: Any) -> str:
    limit, text = 80, repr(value)
    return f"{text if len(text) <= limit else f'{text[: limit - 1]}…'} ({type(value).__name__})"


def _spelling(mistake: str, value: Any) -> str:
    """Say how to write in YAML what was meant: 1e-3 is text to it, and a user's name 7 is a number."""
    if mistake == "string_type" and isinstance(value, int | float):
        return "put it in quotes" if isinstance(value, bool) else f'put it in quotes, "{value}"'
    try:
        number = (
            float(value) if mistake in {"int_type", "float_type"} and isinstance(value, str) else math.nan
        )
    except ValueError:
        return ""
    if not math.isfinite(number):
        return ""
    hint = f"write it as a number, {_yaml_number(number)}"
    # A plain number in quotes is most likely what Snakemake makes of one inside the braces of --config.
    return (
        hint if _yaml_number(number) != value else f"{hint}; from the command line, in a second --configfile"
    )


def _yaml_number(number: float) -> str:
    """Write a number as YAML reads it: with a point where there is an exponent."""
    text = f"{number:.12g}"
    return text.replace("e", ".0e") if "e" in text and "." not in text else text


def _nearest(location: Sequence[int | str], model: type[BaseModel]) -> str:
    known = _keys_at(location[:-1], model)
    near = get_close_matches(str(location[-1]), known, n=1, cutoff=0.5)
    return f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(known)}"


def _keys_at(location: Sequence[int | str], model: type[BaseModel]) -> list[str]:
    for part in location:
        model = _model_of(model, str(part))
    return list(model.model_fields)


def _model_of(model: type[BaseModel], name: str) -> type[BaseModel]:
    """Find the settings class of a field, also inside `X | None` and `dict[str, X]`, whose keys name no field."""
    if name not in model.model_fields:
        return model
    annotation = model.model_fields[name].annotation
    candidates = [annotation, *getattr(annotation, "__args__", ())]
    return next(c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel))
