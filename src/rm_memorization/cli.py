"""The command line: one subcommand a stage, and the tools. A command's module is imported only when it runs."""

import importlib
import sys
from collections.abc import Callable
from typing import Any, cast

import typer
from typer.core import TyperCommand, TyperGroup

from .errors import UserError

COMMANDS = {
    "ingest": ("stages.ingest", "Read source files into pairs; refused rows go to a ledger."),
    "backbone": ("stages.backbone", "Bring the backbone into a folder of safetensors and list its files."),
    "tokenize": ("stages.tokenize", "Turn pairs into token ids; overlong pairs go to a ledger."),
    "split": ("stages.split", "Decide which run holds out whom, and certify the design."),
    "manifest": ("stages.manifest", "List what one run trains on."),
    "sft": ("stages.sft", "Fine-tune the backbone on the chosen replies."),
    "train-rm": ("stages.train_rm", "Train the reward model."),
    "score": ("stages.score", "Score every pair with one run's reward model."),
    "score-panels": ("stages.score_panels", "Score the audit panels with one run's reward model."),
    "aggregate-cm": ("stages.aggregate_cm", "Compute TM, TG and CM."),
    "audit-length": ("stages.audit_length", "Audit reward against length."),
    "audit-factorial": ("stages.audit_factorial", "Audit correctness against verbosity, 2×2."),
    "audit-refusal": ("stages.audit_refusal", "Audit refusals against helpful answers."),
    "report": ("stages.report", "Draw the figures and write the pages."),
    "verify": ("verify", "Check that every result is whole and follows from what it claims."),
    "lineage": ("lineage", "Print what a result was made from."),
    "hashes": ("hashes", "Print the content hash of every table."),
    "diagnostic": ("diagnostic", "Check definitions, negative controls and isolation on random tensors."),
    "overview": ("overview", "Print the main numbers of a finished experiment."),
    "config-schema": ("config_schema", "Print the JSON schema of the config, or the reference of its keys."),
}


class _Lazy(TyperCommand):
    """Stands for a command in `--help`; loads it when it is called."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any
    ) -> typer.Context:
        context = _load(str(self.name)).make_context(info_name, args, parent, **extra)
        return cast("typer.Context", context)


def _load(name: str) -> TyperCommand:
    module = importlib.import_module(f".{COMMANDS[name][0]}", __package__)
    function: Callable[..., Any] = getattr(module, name.replace("-", "_"))
    single = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    single.command(name, help=COMMANDS[name][1])(function)
    return cast("TyperCommand", typer.main.get_command(single))


class _Group(TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - typer's signature
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> TyperCommand | None:  # noqa: ARG002 - typer's signature
        if cmd_name not in COMMANDS:
            return None
        return _Lazy(cmd_name, short_help=COMMANDS[cmd_name][1], rich_markup_mode=None)


app = typer.Typer(
    cls=_Group,
    help="Which preference pairs does a reward model memorize, and which does it only generalise to?",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@app.callback()
def _root() -> None:
    pass


def main() -> None:
    """Run a command; a user's mistake is one line on standard error and exit code 1."""
    try:
        app(prog_name="rm-memorization")
    except UserError as error:
        sys.exit(f"error: {error}")
