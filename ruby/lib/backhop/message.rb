# frozen_string_literal: true

module Backhop
  # A message for a handler: the body, the properties and headers, and its past attempts. Bunny,
  # Kicks, the worker and {Testing.rehearse} all pass it.
  class Message
    # @return [String] the body, binary
    attr_reader :body
    # @api private
    attr_reader :topology

    # @return [String, nil] W3C traceparent of this attempt's span. A tracing sets it; if the
    #   attempt fails, the next attempt can link to it ({History#traceparent})
    attr_accessor :traceparent

    # @return [Integer, nil] start of the handler, in us of the monotonic clock; nil without
    #   listeners
    # @api private
    attr_accessor :began_us

    # @return [Breaker::Permit, nil] the permit of the breaker, until the handler ends
    # @api private
    attr_accessor :permit

    # @param body [String] binary
    # @param topology [Topology] the topology of the work queue
    # @param redelivered [Boolean]
    # @yieldreturn [History] called once, at the first access to the history
    # @api private
    def initialize(body, topology, redelivered: false, &read)
      @body = body
      @topology = topology
      @redelivered = redelivered
      @read = read
    end

    # @return [String] the work queue
    def queue = topology.queue

    # Does nothing: a message reads its parts at the first access, and Backhop settles it after your
    # handler.
    #
    # @return [self]
    def freeze = self

    # @return [History] the message's past, from its headers
    def history = @history ||= @read.call

    # @return [Boolean] true if the broker delivered it before and it was not settled
    def redelivered? = @redelivered

    # @return [Delivery] the properties and headers as they arrived
    def delivery = history.delivery

    # @return [Hash{String => Object}] a new Hash of the headers, Backhop's own included
    def headers = delivery.headers

    # @return [String, nil] for example "application/json"
    def content_type = delivery.property(:content_type)

    # @return [String, nil] for example "gzip"
    def content_encoding = delivery.property(:content_encoding)

    # @return [String, nil]
    def correlation_id = delivery.property(:correlation_id)

    # @return [String, nil] the queue for the reply
    def reply_to = delivery.property(:reply_to)

    # @return [String, nil]
    def type = delivery.property(:type)

    # @return [String, nil]
    def app_id = delivery.property(:app_id)

    # @return [String, nil] the publisher's message-id; every failed message has an {#id}
    def message_id = delivery.property(:message_id)

    # @return [Integer, nil]
    def priority = delivery.property(:priority)

    # @return [Time, nil] in UTC, to the second
    def timestamp
      seconds = delivery.property(:timestamp)
      seconds && Time.at(seconds, in: "UTC")
    end

    # @return [Integer] number of this attempt, from 1
    def attempt = history.attempts + 1

    # @return [Integer] the policy's number of attempts; 0: no limit
    def max_attempts = topology.policy.max_attempts

    # @return [Boolean] true if the message is parked when this attempt fails
    def last_attempt? = max_attempts.between?(1, attempt)

    # @return [String] the exchange of the first publish
    def exchange = history.exchange

    # @return [String] the routing key of the first publish
    def routing_key = history.routing_key

    # Returns the id that all attempts share: the message-id, else the id of the first copy.
    #
    # Use it to make handlers idempotent, and publish with a message-id. A lost connection can leave
    # two copies of one original: without a message-id they have two ids.
    #
    # @return [String, nil] nil for the first attempt of a message without message-id
    def id = history.id

    # Returns the id of events and logs: {#id}, else the one that the first copy gets. Returns nil
    # if the message cannot be read.
    # @api private
    def event_id
      history.event_id
    rescue Error
      nil
    end

    # @return [Time, nil] time of the first failure, in UTC; nil before it
    def first_failure = history.first_failure

    # @return [Integer] how often Throttled or a breaker deferred it; these were no attempts
    def deferrals = history.deferrals

    # @return [Float, nil] delay before this attempt, in seconds; nil for a first attempt
    def last_delay = history.last_delay

    # @return [String, nil] text of the last error
    def last_error = history.last_error

    # @return [Array<Death>] the broker's x-death records, latest first
    def deaths = history.deaths

    # @return [String]
    def inspect
      "#<#{self.class} #{event_id.inspect} of queue #{queue.inspect}, attempt #{attempt}, #{body.bytesize} bytes>"
    end
  end
end
