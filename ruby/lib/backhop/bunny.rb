# frozen_string_literal: true

require "bigdecimal" # without it Bunny ends its connection where a header holds a decimal
require "bunny"

require_relative "../backhop"
require_relative "bunny/version"
require_relative "bunny/confirming"
require_relative "bunny/copy"
require_relative "bunny/declared"
require_relative "bunny/declarer"
require_relative "bunny/message"
require_relative "bunny/original"
require_relative "bunny/outbox"
require_relative "bunny/publisher"
require_relative "bunny/replay"
require_relative "bunny/retrier"
require_relative "bunny/subscription"

module Backhop
  # Retries over Bunny.
  #
  #     require "backhop/bunny"
  #
  #     retrier = Backhop::Bunny::Retrier.new(channel, queue: "cdn-purge", policy: policy)
  #     retrier.subscribe { |message| purge(message.body) }.wait  # returns: ack; raises: later; raise Backhop::Park: parked
  #
  # It publishes on a confirm channel of its own, on the connection of your channel, which stays as it is. A message that
  # failed is acknowledged when the broker confirmed its copy. These confirms are pipelined: no handler waits for one, and
  # a burst of failures takes one round trip.
  #
  # What Bunny cannot keep of a header (the worker keeps all): the width of an integer and of a float; negative 32-bit
  # integers, which it reads as positive; decimals in a copy are doubles; values of less than four bytes at an array's end.
  # Header types that it does not know end its connection.
  #
  # Bunny from 2.19 on, and below 4.
  module Bunny
    check_version
  end
end
