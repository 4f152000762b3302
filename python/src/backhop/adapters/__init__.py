"""The retriers over Python's AMQP clients. Internal: import backhop.pika or backhop.aio_pika."""
