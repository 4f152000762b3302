"""A FastAPI app with a worker. The app does not start if the worker does not get ready.

AMQP_URL=amqp://guest:guest@localhost/ uvicorn health_fastapi:app
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator

from fastapi import FastAPI, Response

import backhop

worker = backhop.Worker(
    os.environ.get("AMQP_URL", "amqp://localhost"),
    queue=os.environ.get("QUEUE", "cdn-purge"),
    work_queue="quorum" if os.environ.get("DECLARE") else None,
)


async def async_handle(message: backhop.Message) -> None:
    print("began", flush=True)
    await asyncio.sleep(0.2)
    print("ended", flush=True)


# README: begin
@contextlib.asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
    serving = asyncio.create_task(worker.serve(async_handle))
    try:
        await worker.ready_async(timeout=30)  # raises if the worker cannot consume
        yield
    finally:
        worker.stop()                    # drains
        await serving


app = FastAPI(lifespan=lifespan)


@app.get("/health")
def health(response: Response) -> dict[str, str]:
    if worker.state not in ("ready", "paused"):
        response.status_code = 503
    return {"state": worker.state, "reason": worker.state_reason}
# README: end
