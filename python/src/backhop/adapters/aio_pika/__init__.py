"""The retrier over aio-pika. Internal: import backhop.aio_pika."""

from ..._errors import PoisonError
from .consumers import Consumer
from .message import Message
from .retrier import Retrier

__all__ = ["Consumer", "Message", "PoisonError", "Retrier"]
