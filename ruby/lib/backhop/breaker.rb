# frozen_string_literal: true

module Backhop
  # A circuit breaker: spares a downstream that is down. While it is open, no handler gets a
  # message, and messages wait without an attempt. Then one message at a time probes.
  #
  #     api = Backhop::Breaker.new("billing")
  #     worker = Backhop::Worker.new("amqp://localhost", queue: "invoices", breaker: api)
  #
  # Give one breaker to all workers and retriers of a process that call the same downstream.
  #
  # With `key`, each key has a breaker of its own: a message whose key is open waits, and messages
  # of other keys flow. At most 10,000 keys are kept.
  #
  #     hosts = Backhop::Breaker.new(
  #       "webhooks", key: ->(message) { URI(message.headers["url"]).host }
  #     )
  class Breaker
    STATES = Core.names("BH_BREAKER_")
    DAY_MS = 24 * Times::HOUR_MS
    LONGEST_MS = 100_000_000_000
    NEVER = -1
    RANDOM_BYTES = 8
    MANY = 1_000_000_000
    private_constant :STATES, :DAY_MS, :LONGEST_MS, :NEVER, :RANDOM_BYTES, :MANY

    extend Checks::Keywords

    # The permit of one call.
    # @api private
    Permit = Struct.new(:key, :generation, :number, :until_ms, :at_ms, :gate) do
      # Returns false if no handler may get the message before until_ms.
      def granted? = generation.positive?

      # Returns how long the message waits if it is not granted, in seconds.
      def delay = Times.seconds([until_ms - at_ms, 1].max)
    end
    private_constant :Permit

    # @return [String] the name, in events, metrics and logs
    attr_reader :name

    # @api private
    attr_reader :native

    # Returns the option breaker, or raises if it is no breaker, or cannot work with the topology.
    # @api private
    def self.of(given, topology)
      return if given.nil?

      Checks.object(given, "breaker", Breaker).tap { |breaker| breaker.check_serves(topology) }
    end

    # @param name [String] for events, metrics and logs, 1 to 64 bytes
    # @param errors [Class, #call, Array, nil] classes of exceptions, or predicates: failures of the
    #   downstream. Others are the message's own fault, and count as nothing. Default: every failure
    #   except permanent ones
    # @param key [#call, nil] gets the {Message} and returns the key of its breaker, a String,
    #   Symbol or Integer. If it raises, the attempt fails
    # @param window [Numeric, String] seconds that a call counts, 0.006 to 86,400
    # @param least_calls [Integer] calls in the window before their share of failures counts
    # @param failure_percent [Integer] share of failures in the window that opens it, 1 to 100
    # @param row_failures [Integer] failures in a row that open it; 0: off
    # @param slow [Numeric, String, nil] seconds; calls that take longer are slow; nil: off
    # @param slow_percent [Integer] share of slow calls in the window that opens it, 1 to 100
    # @param probe_successes [Integer] successes in a row that close it, 1 to 1000
    # @param probe_timeout [Numeric, String] seconds after which a probe counts as failed, 0.001 to
    #   86,400
    # @param ramp_calls [Integer] after it closed, calls at once grow from 1 up to this number, and
    #   are unlimited then; 1 to 65,536
    # @param throttled_opens [Boolean] whether each {Throttled} opens it, as with whole_queue
    # @param pauses [Policy, nil] its delays are the times between opening and probing. Default: 10
    #   s, doubled up to 5 min, jitter 0.2. Limits on attempts and age are ignored
    # @raise [InvalidArgumentError] if an option has a wrong value
    def initialize(name, errors: nil, key: nil, window: 60, least_calls: 20, failure_percent: 50, row_failures: 10,
                   slow: nil, slow_percent: 100, probe_successes: 3, probe_timeout: 60, ramp_calls: 1024,
                   throttled_opens: false, pauses: nil)
      @name = name_of(name).dup.freeze
      @errors = FailureRules.list(errors, "errors")
      @key = key.nil? ? nil : Checks.callable(key, "key")
      settings = [
        Checks.time(window, "window", (6..DAY_MS)), Checks.integer(least_calls, "least_calls", (1..MANY)),
        percent(failure_percent, "failure_percent"), Checks.integer(row_failures, "row_failures", (0..MANY)),
        slow.nil? ? 0 : Checks.time(slow, "slow", (1..DAY_MS)), percent(slow_percent, "slow_percent"),
        Checks.integer(probe_successes, "probe_successes", (1..1000)),
        Checks.time(probe_timeout, "probe_timeout", (1..DAY_MS)), Checks.integer(ramp_calls, "ramp_calls", (1..65_536)),
        Checks.truth(throttled_opens, "throttled_opens") ? 1 : 0
      ]
      @native = made(settings, pauses && Checks.object(pauses, "pauses", Policy))
      freeze
    end

    # Opens the breaker by hand. Calls that end later do not change that.
    #
    # @param duration [Numeric, String, nil] seconds until it probes; nil: until {#close}
    # @param key [String, Symbol, Integer, nil] which breaker, if it is by key
    # @return [void]
    # @raise [InvalidArgumentError] the duration is no time
    # @raise [StateError] a key is missing, or not wanted
    def open(duration = nil, key: nil)
      now_ms = Times.monotonic_ms
      until_ms = duration.nil? ? NEVER : now_ms + Checks.time(duration, "duration", (1..LONGEST_MS))
      Status.check(@native.open(named(key), until_ms, now_ms))
    end

    # Closes the breaker by hand. Calls at once then grow from 1, as after its probes.
    #
    # @param key (see #open)
    # @return [void]
    # @raise [StateError] a key is missing, or not wanted
    def close(key: nil) = @native.close(named(key), Times.monotonic_ms)

    # Disables the breaker until {#close} or {#open}: each message goes to a handler.
    #
    # @return [void]
    # @raise [StateError] it is by key
    def disable
      raise StateError, "breaker #{name.inspect} is by key: only a breaker without a key can be disabled" if by_key?

      Status.check(@native.disable("", Times.monotonic_ms))
    end

    # @return [Symbol] :closed, :open, :half_open or :disabled
    # @raise [StateError] it is by key: see {#state_of}
    def state = STATES.fetch(read(nil).first)

    # @return [String, nil] why it has this state, for example "14 of 20 failed in 60 s:
    #   TimeoutError"
    # @raise [StateError] it is by key: see {#reason_of}
    def reason = Core.text(read(nil).last)

    # @param key [String, Symbol, Integer]
    # @return [Symbol] the state of a key. A key without a message is closed
    # @raise [StateError] it is not by key
    def state_of(key) = STATES.fetch(read(key).first)

    # @param key [String, Symbol, Integer]
    # @return [String, nil] why the key has its state
    # @raise [StateError] it is not by key
    def reason_of(key) = Core.text(read(key).last)

    # @return [String]
    def inspect = "#<#{self.class} #{name.inspect}#{by_key? ? " by key" : " #{state}"}>"

    # Returns true if each key has a breaker.
    # @api private
    def by_key? = !@key.nil?

    # Raises StrategyError if messages cannot wait as this breaker needs it.
    # @api private
    def check_serves(topology)
      return if !by_key? || topology.defers?

      raise StrategyError,
            "breaker #{name.inspect} is by key, and with strategy #{topology.strategy.inspect} no message can " \
            "wait without an attempt: take strategy :ladder, or a breaker without a key"
    end

    # Requests the permit to call a handler with a message now. Raises what the key raises.
    #
    # @return [Permit]
    # @api private
    def permit(message, now_ms = Times.monotonic_ms)
      key = text(@key.call(message)) if by_key?
      Permit.new(key, *@native.permit(key || "", now_ms), now_ms)
    end

    # Records the end of a call.
    #
    # @param result [Outcomes::Result]
    # @param error [Exception, nil] the handler's
    # @api private
    def record(permit, result, error, now_ms = Times.monotonic_ms)
      kind = Native.bh_call_kind_of(Plan.outcome(result.outcome), own_fault?(error) ? 0 : 1)
      end_call(permit, now_ms, kind, error, Times.milliseconds(result.retry_after), result.whole_queue ? 1 : 0)
    end

    # Gives a permit back: the call has no outcome.
    # @api private
    def forget(permit) = end_call(permit, Times.monotonic_ms, Native::BH_CALL_IGNORED)

    # Returns true if a failure is not the downstream's.
    # @api private
    def own_fault?(error)
      return false if error.nil? || @errors.empty?

      [error, *Outcomes.reason_of(error)].none? { |each| FailureRules.verdict(@errors, each) }
    rescue *Outcomes::FAILURES # its cause cannot be read
      false
    end

    private

    def name_of(name)
      return name unless Checks.text(name, "name").empty?

      raise InvalidArgumentError, "the name of a Breaker is \"\": give a name of 1 to 64 bytes, as the downstream's"
    end

    def percent(value, name) = Checks.integer(value, name, (1..100))

    def made(settings, pauses)
      error = Native.bh_breaker_settings_error(name, *settings)
      raise InvalidArgumentError, error unless error.empty?

      random = Random.urandom(RANDOM_BYTES)
      Core.made(Native.bh_breaker_new(name, *settings, by_key? ? 1 : 0, pauses&.native, random))
    end

    def read(key) = @native.read(named(key), Times.monotonic_ms)

    # Returns the key as the core takes it: "" if the breaker is not by key.
    def named(key)
      return key.nil? ? "" : text(key) if by_key? != key.nil?
      raise StateError, "breaker #{name.inspect} is by key: give a key to open, close, state_of or reason_of" if by_key?

      raise StateError, "breaker #{name.inspect} is not by key: give no key"
    end

    def text(key)
      case key
      when String then key
      when Symbol, Integer then key.to_s
      else
        raise InvalidArgumentError,
              "the key of breaker #{name.inspect} is #{Text.shown(key)}: give a String, Symbol or Integer"
      end
    end

    def end_call(permit, now_ms, kind, error = nil, retry_after_ms = 0, whole_queue = 0)
      @native.record(permit.key || "", permit.generation, permit.number, kind, [now_ms - permit.at_ms, 0].max,
                     retry_after_ms, whole_queue, error ? Outcomes.class_name(error) : "", now_ms)
    end
  end
end
