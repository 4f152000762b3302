"""What this Backhop was built of."""

from __future__ import annotations

from dataclasses import dataclass

from . import _backhop as c


@dataclass(frozen=True, slots=True)
class BuildInfo:
    """What this Backhop was built of; print it when you report a bug."""

    version: str
    """Of the core, which is the package's too."""
    worker: bool
    """Whether it was built with librabbitmq, so that there is a Worker."""
    librabbitmq_compiled: str
    """The version of librabbitmq that it was compiled with; "" without."""
    librabbitmq_loaded: str
    """The version that runs."""

    def __str__(self) -> str:
        if not self.worker:
            return f"backhop {self.version}, without librabbitmq: no Worker"
        return (
            f"backhop {self.version}, compiled with librabbitmq {self.librabbitmq_compiled}, "
            f"running with {self.librabbitmq_loaded}"
        )


def build_info() -> BuildInfo:
    """Versions compiled and loaded, and whether there is a Worker."""
    compiled = c.bh_worker_librabbitmq_compiled()
    return BuildInfo(c.bh_version(), bool(compiled), compiled, c.bh_worker_librabbitmq_loaded())
