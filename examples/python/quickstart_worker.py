import os

import backhop


def purge(message: backhop.Message) -> None:
    print(f"{message.body.decode()}, attempt {message.attempt}", flush=True)
    if message.attempt < 3:
        raise RuntimeError("507 queue is full")  # an exception: the message is retried


url = os.environ.get("AMQP_URL", "amqp://localhost")
policy = backhop.Policy(initial=1, factor=2, max_attempts=8)  # seconds
worker = backhop.Worker(url, queue="purges", policy=policy, work_queue="quorum", threads=8)
worker.run(purge)  # until Ctrl-C or SIGTERM
