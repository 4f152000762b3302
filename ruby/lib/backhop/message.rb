# frozen_string_literal: true

module Backhop
  # What a handler gets: the body, and what the headers tell of its past.
  class Message
    # @return [String] binary
    attr_reader :body
    # @return [History] all that the headers tell
    attr_reader :history

    # @param body [String]
    # @param history [History]
    # @param redelivered [Boolean]
    def initialize(body, history, redelivered: false)
      @body = body
      @history = history
      @redelivered = redelivered
    end

    # @return [Boolean] whether the broker delivered it before, without a settlement
    def redelivered? = @redelivered

    # @return [Delivery] what arrived: properties and headers
    def delivery = history.delivery

    # @return [Hash{String => Object}] its headers, Backhop's own included; read anew each time
    def headers = delivery.headers

    # @return [Integer] which attempt this is: 1 for the first
    def attempt = history.attempts + 1

    # @return [String] where the message was first published, whatever brought it back
    def exchange = history.exchange

    # @return [String] the routing key with which it was first published
    def routing_key = history.routing_key

    # @return [String, nil] the id that all attempts share; nil where there is none yet. Make handlers idempotent by it
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
    def inspect = "#<#{self.class} #{id.inspect}, attempt #{attempt}, #{body.bytesize} bytes>"
  end
end
