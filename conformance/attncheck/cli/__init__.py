"""The command line: judge an implementation here, or by files anywhere else."""

# Each adds its commands to the application, which shows them in this order.
from attncheck.cli import run, files, measure, board, gpu, about  # noqa: F401, I001
from attncheck.cli.app import app

__all__ = ["app"]
