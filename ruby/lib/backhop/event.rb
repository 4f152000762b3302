# frozen_string_literal: true

module Backhop
  # What a worker or a retrier met, and what it did about it; see {Worker} and {Bunny::Retrier} for the names.
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
  # @!attribute [r] queue
  #   @return [String] the work queue
  Event = Struct.new(
    :name, :text, :error, :id, :connection, :host, :attempts, :delay, :count, :queue, # rubocop:disable Lint/StructNewOverride
    keyword_init: true
  ) do
    # The event that a worker gave.
    # @api private
    def self.of(native, queue)
      status = int(native, :STATUS)
      text = string(native, :TEXT) || string(native, :REASON) || ""
      new(
        name: Native.bh_event_name(native.what).to_sym,
        text: text,
        error: (Status.error(status, text) unless status.zero?),
        id: string(native, :ID),
        connection: string(native, :CONNECTION),
        host: string(native, :HOST),
        attempts: int(native, :ATTEMPTS),
        delay: Times.seconds(int(native, :DELAY)),
        count: int(native, :COUNT),
        queue: queue
      ).freeze
    end

    def self.string(native, field) = Core.text(native.string(Native.const_get("BH_FIELD_#{field}")))

    def self.int(native, field) = Native.bh_event_int(native, Native.const_get("BH_FIELD_#{field}"))
    private_class_method :string, :int

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

    # Logs it, and hands it to a listener.
    # @api private
    def tell(listener, logger = Backhop.logger)
      Backhop.log(level, logger) { to_s }
      hand(listener, logger)
    end

    # Hands it to a listener. What that raises is logged, and breaks nothing.
    # @api private
    def hand(listener, logger = Backhop.logger)
      listener&.call(self)
    rescue *Outcomes::FAILURES => e
      Backhop.log(:error, logger) { "on_event failed at #{name}: #{Outcomes.text(e)}" }
    end

    # @return [String]
    def to_s
      [
        name.to_s,
        ("queue #{queue}" if queue),
        ("message #{id}" if id),
        text,
        ("#{count} message#{"s" if count > 1}" if count.positive? && !id),
        ("in #{format("%g", delay)} s" if delay.positive?)
      ].compact.reject(&:empty?).join(": ")
    end
  end
end
