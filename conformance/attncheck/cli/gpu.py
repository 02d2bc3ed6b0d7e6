"""`attncheck gpu`: PyTorch's fused backends on this machine's GPU."""

import typer

import attncheck.gpu
from attncheck.cli.app import app


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    add_help_option=False,
    epilog="Example: `attncheck gpu --out build/gpu`",
)
def gpu(context: typer.Context) -> None:
    """Judge PyTorch's fused backends on this machine's GPU, and time them."""
    raise typer.Exit(attncheck.gpu.main(context.args))
