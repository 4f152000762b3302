# frozen_string_literal: true

module Backhop
  # What a handler gets: the body, its properties and headers, and what the headers tell of its past. It is the same over each
  # client, in a worker, and in {Testing.rehearse}.
  class Message
    # @return [String] binary
    attr_reader :body
    # @api private
    attr_reader :topology

    # @return [String, nil] the span of this attempt, as W3C's traceparent, by who traces it: where the attempt fails, the next
    #   one can link to it ({History#traceparent})
    attr_accessor :traceparent

    # @return [Integer, nil] when its handler got it, in us of a clock to measure with, where somebody listens
    # @api private
    attr_accessor :began_us

    # @param body [String]
    # @param topology [Topology] of its queue
    # @param redelivered [Boolean]
    # @yieldreturn [History] asked for once, where something of it is asked for
    # @api private
    def initialize(body, topology, redelivered: false, &read)
      @body = body
      @topology = topology
      @redelivered = redelivered
      @read = read
    end

    # @return [String] the work queue
    def queue = topology.queue

    # @return [History] all that the headers tell
    def history = @history ||= @read.call

    # @return [Boolean] whether the broker delivered it before, without a settlement
    def redelivered? = @redelivered

    # @return [Delivery] what arrived: properties and headers
    def delivery = history.delivery

    # @return [Hash{String => Object}] its headers, Backhop's own included; read anew each time
    def headers = delivery.headers

    # @return [String, nil] as "application/json"
    def content_type = delivery.property(:content_type)

    # @return [String, nil] as "gzip"
    def content_encoding = delivery.property(:content_encoding)

    # @return [String, nil]
    def correlation_id = delivery.property(:correlation_id)

    # @return [String, nil] the queue that awaits an answer
    def reply_to = delivery.property(:reply_to)

    # @return [String, nil]
    def type = delivery.property(:type)

    # @return [String, nil]
    def app_id = delivery.property(:app_id)

    # @return [String, nil] the publisher's; {#id} is there for every message that failed
    def message_id = delivery.property(:message_id)

    # @return [Integer, nil]
    def priority = delivery.property(:priority)

    # @return [Time, nil] in UTC, to the second
    def timestamp
      seconds = delivery.property(:timestamp)
      seconds && Time.at(seconds, in: "UTC")
    end

    # @return [Integer] which attempt this is: 1 for the first
    def attempt = history.attempts + 1

    # @return [Integer] how often a handler sees the message in all, by its queue's policy; 0: no limit
    def max_attempts = topology.policy.max_attempts

    # @return [Boolean] whether it is parked if this attempt fails, as its attempts are used up then
    def last_attempt? = topology.policy.native.is_last(attempt) == 1

    # @return [String] where the message was first published, whatever brought it back
    def exchange = history.exchange

    # @return [String] the routing key with which it was first published
    def routing_key = history.routing_key

    # @return [String, nil] the id that all further attempts share: the message-id, else one that the first copy gets; nil
    #   before that. Make handlers idempotent by it, and publish with a message-id: two copies of an original without one, as
    #   a lost connection can leave them, have two ids
    def id = history.id

    # @return [Time, nil] the first failure, in UTC; nil where there is none
    def first_failure = history.first_failure

    # @return [Float, nil] how long the message waited before this attempt, in seconds; nil where it did not
    def last_delay = history.last_delay

    # @return [String, nil] the last error's text
    def last_error = history.last_error

    # @return [Array<Death>] the broker's x-death records, most recent first
    def deaths = history.deaths

    # @return [String]
    def inspect = "#<#{self.class} #{id.inspect} of queue #{queue.inspect}, attempt #{attempt}, #{body.bytesize} bytes>"
  end
end
