"""tokenize: every pair once, for all that follows."""

from pathlib import Path
from typing import Annotated, Any

import polars as pl
import typer

from .. import artifact, options, tables
from ..backbone_files import checked_files
from ..errors import UserError
from ..formatting import Formatter, TokenPair, pair_up
from ..record import recorded

Row = dict[str, Any]


def tokenize(
    pairs: options.Pairs,
    backbone: options.Backbone,
    tokens: options.Out,
    dropped: Annotated[Path, typer.Option(help="Ledger of refused pairs to write.")],
    max_length: Annotated[int, typer.Option(min=2, help="Longest sequence in tokens.")],
    record: options.Record = None,
) -> None:
    """Write token ids and the ledger of refused pairs."""
    with recorded("tokenize", record, max_length=max_length):
        frame = artifact.read(pairs, tables.PAIRS)
        kept, refused = tokenize_pairs(frame, Formatter(checked_files(backbone)), max_length)
        counts = dict(refused.group_by("reason").len().sort("reason").iter_rows())
        if kept.is_empty():
            raise _nothing_left(pairs, counts)
        artifact.write(kept, tables.TOKENIZED, tokens)
        artifact.write(refused, tables.DROPPED, dropped)
        typer.echo(f"{kept.height} pairs kept, {refused.height} refused")
        for reason, count in counts.items():
            typer.echo(f"  {reason}: {count}")


def _nothing_left(pairs: Path, counts: dict[str, int]) -> UserError:
    reasons = ", ".join(f"{reason} {count}" for reason, count in counts.items())
    hint = "raise tokenize.max_length" if "overlong" in counts else ""
    return UserError(str(pairs), f"all {sum(counts.values())} pairs are refused ({reasons})", hint=hint)


def tokenize_pairs(
    pairs: pl.DataFrame, formatter: Formatter, max_length: int
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Tokenise pairs; refuse those that are overlong, that hold a special token as text or whose replies look alike.

    Parameters
    ----------
    pairs
        A table of pairs.
    formatter
        Of the backbone.
    max_length
        Longest sequence in tokens.

    Returns
    -------
    tokens, dropped
        Tables of these contracts.
    """
    prompts, where = pairs["prompt"].to_list(), [f"pair {name}" for name in pairs["pair_id"]]
    chosen = formatter.answers(prompts, pairs["chosen"].to_list(), where)
    rejected = formatter.answers(prompts, pairs["rejected"].to_list(), where)
    kept: list[Row] = []
    refused: list[Row] = []
    for row, *answers in zip(pairs.iter_rows(named=True), chosen, rejected, strict=True):
        pair = pair_up(*answers)
        if problem := _problem(row, pair, formatter, max_length):
            source = {name: row[name] for name in ("source_file", "source_row")}
            refused.append(source | dict(zip(("reason", "detail"), problem, strict=True)))
        else:
            names = {name: row[name] for name in ("pair_id", "unit_id")}
            kept.append(names | vars(pair) | {"token_hash": pair.token_hash})
    return _table(kept, tables.TOKENIZED), _table(refused, tables.DROPPED)


def _problem(row: Row, pair: TokenPair, formatter: Formatter, max_length: int) -> tuple[str, str] | None:
    """Give reason code and detail of a refusal."""
    name, contents = f"pair {row['pair_id']}", [message["content"] for message in row["prompt"]]
    if token := formatter.special_token_in(*contents, row["chosen"], row["rejected"]):
        return "special_token_in_text", f"{name} holds {token!r}"
    if pair.longest > max_length:
        return "overlong", f"{name} has {pair.longest} tokens, max_length is {max_length}"
    if pair.chosen_ids == pair.rejected_ids:
        return "identical_tokens", f"the replies of {name} differ in text but not in tokens"
    return None


def _table(rows: list[Row], contract: artifact.Contract) -> pl.DataFrame:
    return pl.DataFrame(rows, schema={name: column.dtype.type for name, column in contract.columns.items()})
