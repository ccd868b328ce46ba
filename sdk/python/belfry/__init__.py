"""Workers and clients of Belfry, a distributed crontab."""
from ._http import BelfryError, Unanswered
from .client import Client
from .run import Cancelled, Permanent, Run, Step
from .worker import Worker

__version__ = "1.0.0"
__all__ = ["BelfryError", "Cancelled", "Client", "Permanent", "Run", "Step", "Unanswered", "Worker"]
