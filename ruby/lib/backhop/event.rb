# frozen_string_literal: true

module Backhop
  # What a worker met, and what it did about it; see {Worker} for the names.
  #
  # @!attribute [r] name
  #   @return [Symbol] as :disconnected
  # @!attribute [r] text
  #   @return [String] in words, with what to do; it never holds a password
  # @!attribute [r] error
  #   @return [Error, nil] the reason, where there is one
  # @!attribute [r] id
  #   @return [String, nil] the message's id, the same for all its attempts
  # @!attribute [r] connection
  #   @return [String, nil] of an event about one of the worker's two connections: "consume" or "publish"
  # @!attribute [r] host
  #   @return [String, nil] its "host:port"
  # @!attribute [r] attempts
  #   @return [Integer] failed attempts of the message so far
  # @!attribute [r] delay
  #   @return [Float] seconds until the next attempt; of a retry, how long the message waits
  # @!attribute [r] count
  #   @return [Integer] how many messages it is about
  Event = Struct.new(
    :name, :text, :error, :id, :connection, :host, :attempts, :delay, :count, # rubocop:disable Lint/StructNewOverride
    keyword_init: true
  ) do
    # The event that a worker gave.
    # @api private
    def self.of(native)
      status = native.status
      text = native.text
      new(
        name: Native.bh_event_name(native.what).to_sym,
        text: text,
        error: (Status.error(status, text) unless status.zero?),
        id: Core.text(native.id),
        connection: Core.text(native.connection),
        host: Core.text(native.host),
        attempts: native.attempts,
        delay: Times.seconds(native.delay_ms),
        count: native.count
      ).freeze
    end

    # @return [Integer] how it is logged: one of Logger's levels
    def level
      case name
      when :retried then Logger::DEBUG
      when :connected, :unblocked, :stale, :replayed then Logger::INFO
      when :drained then error ? Logger::WARN : Logger::INFO
      when :refused then Logger::ERROR
      else Logger::WARN
      end
    end

    # @return [String]
    def to_s
      [
        name.to_s,
        ("message #{id}" if id),
        text,
        ("#{count} messages" if count.positive?),
        ("in #{format("%g", delay)} s" if delay.positive?)
      ].compact.reject(&:empty?).join(": ")
    end
  end
end
