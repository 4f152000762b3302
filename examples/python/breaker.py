import os

import backhop

api = backhop.Breaker("purge API")  # give it to each consumer that calls this API


def purge(message: backhop.Message) -> None:
    print(f"{message.body.decode()}, attempt {message.attempt}", flush=True)
    if message.attempt < 3:
        raise RuntimeError("503 service unavailable")  # ten in a row open the breaker


url = os.environ.get("AMQP_URL", "amqp://localhost")
worker = backhop.Worker(url, queue="purges", work_queue="quorum", breaker=api)
worker.run(purge)
