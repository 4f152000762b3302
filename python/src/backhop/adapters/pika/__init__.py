"""The retrier over pika. Internal: import backhop.pika."""

from ..._errors import PoisonError
from .consumers import Consumer
from .message import Message
from .retrier import Retrier

__all__ = ["Consumer", "Message", "PoisonError", "Retrier"]
