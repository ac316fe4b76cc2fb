"""tokenize: every pair once, for all that follows."""

from pathlib import Path
from typing import Annotated

import polars as pl
import typer

from .. import artifact, options, tables
from ..backbone_files import checked_files
from ..errors import UserError
from ..formatting import Answer, Formatter, TokenPair, pair_up
from ..record import recorded

Row = dict[str, object]


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
        if kept.is_empty():
            raise UserError(str(pairs), f"all {frame.height} pairs are refused", hint="raise tokenize.max_length, or see the reasons in the ledger")
        artifact.write(kept, tables.TOKENIZED, tokens)
        artifact.write(refused, tables.DROPPED, dropped)
        typer.echo(f"{kept.height} pairs kept, {refused.height} refused")
        for reason, count in refused.group_by("reason").len().sort("reason").iter_rows():
            typer.echo(f"  {reason}: {count}")


def tokenize_pairs(pairs: pl.DataFrame, formatter: Formatter, max_length: int) -> tuple[pl.DataFrame, pl.DataFrame]:
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
    prompts, names = pairs["prompt"].to_list(), [f"pair {name}" for name in pairs["pair_id"]]
    chosen = formatter.answers(prompts, pairs["chosen"].to_list(), names)
    rejected = formatter.answers(prompts, pairs["rejected"].to_list(), names)
    kept: list[Row] = []
    refused: list[Row] = []
    for row, first, second in zip(pairs.iter_rows(named=True), chosen, rejected, strict=True):
        pair = pair_up(first, second)
        if problem := _problem(row, first, second, pair, formatter, max_length):
            refused.append({"source_file": row["source_file"], "source_row": row["source_row"], "reason": problem[0], "detail": problem[1]})
        else:
            kept.append({"pair_id": row["pair_id"], "unit_id": row["unit_id"], "token_hash": pair.token_hash, **vars(pair)})
    return _table(kept, tables.TOKENIZED), _table(refused, tables.DROPPED)


def _problem(row: Row, chosen: Answer, rejected: Answer, pair: TokenPair, formatter: Formatter, max_length: int) -> tuple[str, str] | None:
    messages: list[dict[str, str]] = row["prompt"]  # type: ignore[assignment]
    if token := formatter.special_token_in(str(row["chosen"]), str(row["rejected"]), *(m["content"] for m in messages)):
        return "special_token_in_text", f"pair {row['pair_id']} holds {token!r}"
    if pair.longest > max_length:
        return "overlong", f"pair {row['pair_id']} has {pair.longest} tokens, max_length is {max_length}"
    if chosen.ids == rejected.ids:
        return "identical_tokens", f"the replies of pair {row['pair_id']} differ in text but not in tokens"
    return None


def _table(rows: list[Row], contract: artifact.Contract) -> pl.DataFrame:
    return pl.DataFrame(rows, schema={name: column.dtype.type for name, column in contract.columns.items()})
