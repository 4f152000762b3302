"""Worker: consumes and retries on connections of its own. Internal: import backhop.Worker."""

from .worker import AsyncHandler, Handler, Worker

__all__ = ["AsyncHandler", "Handler", "Worker"]
