import os

import pika
import prometheus_client

import backhop.opentelemetry  # needs opentelemetry-api
import backhop.pika
import backhop.prometheus  # needs prometheus_client

metrics = backhop.prometheus.Metrics()  # one for the process
tracing = backhop.opentelemetry.Tracing()


def to_my_log(event: backhop.Event) -> None:
    if event.name == "parked":
        print(event, event.exception, flush=True)


def purge(message: backhop.pika.Message) -> None:
    print(f"{message.body.decode()}, attempt {message.attempt}", flush=True)
    raise RuntimeError("507 queue is full")


prometheus_client.start_http_server(int(os.environ.get("PORT", "9464")))
url = os.environ.get("AMQP_URL", "amqp://localhost")
channel = pika.BlockingConnection(pika.URLParameters(url)).channel()
policy = backhop.Policy(initial=0.5, max_attempts=3)
retrier = backhop.pika.Retrier(channel, "purges", policy, work_queue="quorum", on_event=[metrics, tracing, to_my_log])
retrier.consume(purge).start_consuming()
