"""The versions that this Backhop was built with."""

from __future__ import annotations

from dataclasses import dataclass

from . import _backhop as c


@dataclass(frozen=True, slots=True)
class BuildInfo:
    """The versions that this Backhop was built with. Print it if you report a bug."""

    version: str
    """The version of the core and of the package."""
    worker: bool
    """True if it has a Worker, because it was built with librabbitmq."""
    librabbitmq_compiled: str
    """The version of librabbitmq that it was compiled with; "" if none."""
    librabbitmq_loaded: str
    """The version of librabbitmq that runs; "" if none."""

    def __str__(self) -> str:
        if not self.worker:
            return f"backhop {self.version}, without librabbitmq: no Worker"
        return (
            f"backhop {self.version}, compiled with librabbitmq {self.librabbitmq_compiled}, "
            f"running with {self.librabbitmq_loaded}"
        )


def build_info() -> BuildInfo:
    """Returns the versions of the core and of librabbitmq."""
    compiled, loaded = c.bh_worker_librabbitmq()
    return BuildInfo(c.bh_version(), bool(compiled), compiled, loaded)
