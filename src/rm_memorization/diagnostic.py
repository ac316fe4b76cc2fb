"""Checks of definitions, negative controls and isolation on random tensors, on CPU or CUDA.

Rewards with a known truth are drawn with torch on the device; the estimators that `aggregate_cm` uses are held against
plain tensor arithmetic there. The receipt keeps every seed's scalars.
"""

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import polars as pl
import typer

from . import artifact, options, tables
from .code_digest import code_digest
from .design import design, matrix
from .errors import UserError
from .estimators import Floats, Membership, means, probabilities
from .record import recorded

UNITS, PAIRS, RUNS, HELD_OUT = 300, 4, 25, 5
EFFECT = 1.0
ROUNDING = 1e-12
NOISE = 4.0  # standard errors


def diagnostic(
    seeds: Annotated[
        list[int], typer.Option(help="Seed of the random tensors; repeat it, or separate several by spaces.")
    ],
    more: Annotated[list[int] | None, typer.Argument(help="Further seeds.", show_default=False)] = None,
    device: options.Device = options.DeviceName.cpu,
    receipt: Annotated[Path, typer.Option(help="Table to write.")] = Path(
        "results/diagnostic/diagnostic.parquet"
    ),
    record: options.Record = None,
) -> None:
    """Run the checks, print them and write the receipt; fail if one fails."""
    from .scoring import use

    chosen = [*seeds, *(more or [])]
    with recorded("diagnostic", record, seeds=chosen, device=device):
        use(device, 1)
        table = checks(chosen, device)
        artifact.write(table, tables.DIAGNOSTIC, receipt)
    for row in table.iter_rows(named=True):
        typer.echo(
            f"{'pass' if row['passed'] else 'FAIL'}  seed {row['seed']}  {row['check']:<28} {row['value']: .3e}  bound {row['bound']:.3e}"
        )
    typer.echo(f"receipt: {receipt}")
    if not table["passed"].all():
        raise UserError(
            "diagnostic",
            f"{(~table['passed']).sum()} of {table.height} checks fail",
            hint="see the lines above",
        )


def checks(seeds: list[int], device: str) -> pl.DataFrame:
    """Run all checks for each seed.

    Parameters
    ----------
    seeds
        Distinct seeds.
    device
        ``cpu`` or ``cuda``.

    Returns
    -------
    pl.DataFrame
        Of the diagnostic contract.
    """
    code = code_digest("diagnostic")
    rows = [
        (seed, name, value, bound)
        for seed in seeds
        for name, (value, bound) in _scalars(seed, device).items()
    ]
    frame = pl.DataFrame(rows, schema=["seed", "check", "value", "bound"], orient="row")
    return frame.with_columns(
        passed=pl.col("value").abs() <= pl.col("bound"), device=pl.lit(device), code=pl.lit(code)
    )


def _scalars(seed: int, device: str) -> dict[str, tuple[float, float]]:
    """Give each check's value and the bound on its size."""
    import torch

    generator = torch.Generator(device=device).manual_seed(seed)
    member = _membership(seed)
    inside = torch.tensor(member.trained, device=device)
    noise = torch.randn((len(inside), RUNS, 2), generator=generator, device=device)
    null_chosen, rejected = noise[..., 0], noise[..., 1]
    chosen = null_chosen + EFFECT * inside
    p, null = _probabilities(chosen, rejected), _probabilities(null_chosen, rejected)
    tm, tg, cm = means(p, member)
    own = _tensor_arithmetic(chosen, rejected, inside)
    tolerance = 1e-6  # the sigmoid is taken in float64 here and there, on margins in float32
    return {
        "tm_against_tensors": (_worst(tm, own[0]), tolerance),
        "tg_against_tensors": (_worst(tg, own[1]), tolerance),
        "cm_is_tm_minus_tg": (_worst(cm, tm - tg), ROUNDING),
        "planted_effect_shortfall": (min(0.0, float(cm.mean()) - 0.1), ROUNDING),
        "cm_without_effect": _noise(means(null, member)[2]),
        "cm_with_labels_swapped": (_worst(means(1 - p, member)[2], -cm), ROUNDING),
        "cm_after_shift_of_rewards": (
            _worst(means(_probabilities(chosen + 8, rejected + 8), member)[2], cm),
            1e-5,
        ),
        "isolation_of_other_units": (_isolation(p, member, cm), 0.0),
        "order_of_runs": (_order(p, member, cm), ROUNDING),
        "mean_of_sigmoid_not_sigmoid_of_mean": (_sigmoid_gap(chosen, rejected, tm, inside), 0.0),
    }


def _membership(seed: int) -> Membership:
    held = design({f"u{unit:03d}": PAIRS for unit in range(UNITS)}, RUNS, HELD_OUT, seed)
    out = matrix(held, RUNS).repeat(PAIRS, axis=0)
    return Membership(~out, out)


def _probabilities(chosen: Any, rejected: Any) -> Floats:
    return probabilities(chosen.cpu().numpy(), rejected.cpu().numpy())


def _tensor_arithmetic(chosen: Any, rejected: Any, inside: Any) -> tuple[Floats, Floats]:
    """TM and TG in torch on the device, by the definitions."""
    p = (chosen - rejected).double().sigmoid()
    tm = (p * inside).sum(1) / inside.sum(1)
    tg = (p * ~inside).sum(1) / (~inside).sum(1)
    return tm.cpu().numpy(), tg.cpu().numpy()


def _worst(a: Floats, b: Floats) -> float:
    return float(np.abs(a - b).max())


def _noise(cm: Floats) -> tuple[float, float]:
    """Mean CM where nothing was memorized, and what units' noise allows."""
    units = cm.reshape(UNITS, PAIRS).mean(axis=1)
    return float(units.mean()), NOISE * float(units.std(ddof=1)) / UNITS**0.5


def _isolation(p: Floats, member: Membership, cm: Floats) -> float:
    """Change the first unit's rewards: nobody else's CM may move."""
    changed = p.copy()
    changed[:PAIRS] = 1 - changed[:PAIRS]
    return _worst(means(changed, member)[2][PAIRS:], cm[PAIRS:])


def _order(p: Floats, member: Membership, cm: Floats) -> float:
    backwards = Membership(member.trained[:, ::-1], member.held_out[:, ::-1])
    return _worst(means(p[:, ::-1], backwards)[2], cm)


def _sigmoid_gap(chosen: Any, rejected: Any, tm: Floats, inside: Any) -> float:
    """0 if σ(mean margin) differs from the mean of σ somewhere, as it must; 1 if the two were mixed up."""
    margin = ((chosen - rejected).double() * inside).sum(1) / inside.sum(1)
    return float(_worst(margin.sigmoid().cpu().numpy(), tm) < 1e-3)  # noqa: PLR2004
