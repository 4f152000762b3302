# frozen_string_literal: true

module Backhop
  # Runs your handler and your policy in a test, without a broker and without waiting.
  #
  #     it "retries if the queue is full, and then parks" do
  #       rehearsal = Backhop::Testing.rehearse("/index.html", policy: policy) do |message|
  #         purge(message.body)
  #       end
  #       expect(rehearsal.outcome).to eq(:parked)
  #       # be_within: jitter and rungs change the delays
  #       expect(rehearsal.delays).to match([be_within(3).of(10), be_within(10).of(30)])
  #       puts rehearsal # a table
  #     end
  #
  # The core decides, as in production. The simulated broker delivers a waiting message after its
  # delay, with the headers that count retries.
  module Testing
    autoload :Broker, "backhop/broker"

    # A clock that {#advance} moves. Its call returns the time.
    class Clock
      # @return [Time]
      attr_reader :now

      # @param start [Time]
      def initialize(start = Time.utc(2026))
        @now = start
      end

      alias call now

      # Moves the clock.
      #
      # @param seconds [Numeric]
      # @return [Time] the new time
      def advance(seconds) = @now += Rational(Times.milliseconds(seconds), 1000)
    end

    # A random generator with a fixed sequence. Its call returns the given number of bytes.
    class SeededRandom
      # @param seed [Integer] chooses the sequence
      def initialize(seed = 0)
        @random = Random.new(seed)
      end

      # @param count [Integer]
      # @return [String]
      def call(count) = @random.bytes(count)
    end

    # One attempt. If the poison guard delayed or parked the message, or the breaker deferred it,
    # the handler was not called.
    #
    # @!attribute [r] number
    #   @return [Integer] number of the attempt, from 1
    # @!attribute [r] at
    #   @return [Float] seconds since the start of the first attempt
    # @!attribute [r] error
    #   @return [Exception, nil] the handler's exception
    # @!attribute [r] plan
    #   @return [Plan] the decision
    # @!attribute [r] breaker
    #   @return [Symbol, nil] the breaker's state after it: :closed, :open, :half_open or :disabled;
    #     nil without a breaker
    Attempt = Struct.new(:number, :at, :error, :plan, :breaker, keyword_init: true) do
      # @return [Float] delay until the next attempt, in seconds; 0 if there is none
      def delay = plan.delay

      # @return [String] one line of text
      def to_s
        became = error&.inspect || { ack: "ok", defer: "deferred" }[plan.action]
        again = delay.positive? ? "again in #{Times.duration(delay)}" : nil
        state = breaker && "breaker #{breaker.to_s.tr("_", "-")}"
        ending = [became, again, state].compact.join(", ")
        "attempt #{number.to_s.rjust(2)} after #{Times.duration(at).rjust(12)}: #{ending}"
      end
    end

    # All attempts of a message. It prints as a table.
    class Rehearsal
      include Enumerable

      ENDS = { ack: :acked, park: :parked, drop: :dropped }.freeze
      # The actions after which a message comes back.
      # @api private
      AGAIN = %i[retry defer reject return].freeze
      private_constant :ENDS

      # @api private
      def initialize(attempts)
        @attempts = attempts.freeze
        freeze
      end

      # @yieldparam attempt [Attempt]
      # @return [Rehearsal, Enumerator]
      def each(&block)
        return @attempts.each unless block

        @attempts.each(&block)
        self
      end

      # @return [Integer] the number of attempts
      def size = @attempts.size

      # @return [Symbol] :acked, :parked, :dropped, or :waiting if more attempts would follow
      def outcome = ENDS.fetch(@attempts.last.plan.action, :waiting)

      # @return [String, nil] why the message was parked: exhausted, permanent, too-old, oversized
      #   or poison
      def reason = @attempts.last.plan.reason

      # @return [Array<Float>] delay after each attempt that was followed by another, in seconds
      def delays = select { |attempt| AGAIN.include?(attempt.plan.action) }.map(&:delay)

      # @return [Array<Exception>] the handler's exceptions, in order
      def errors = filter_map(&:error)

      # @return [String] a table
      def to_s = [*@attempts, "#{outcome}#{" (#{reason})" if reason}"].join("\n")
      alias inspect to_s
    end

    # Calls the handler with a message until no attempt follows.
    #
    # @param body [String] the message's body
    # @param queue [String] the work queue
    # @param policy [Policy] the rules for delays and limits
    # @param strategy [Symbol] see {Topology#initialize}
    # @param never [Class, #call, Array] see {Worker#initialize}; likewise only and policies
    # @param exchange [String] the exchange of the first publish; default: the default exchange
    # @param routing_key [String] the routing key of the first publish; default: the queue's name
    # @param headers [Hash] the message's headers
    # @param properties [Hash] the message's properties by name, for example {message_id: "42"}
    # @param legacy_counter [String, nil] see {History#initialize}; likewise wait_queues
    # @param breaker [Breaker, nil] a breaker of its own. It gets the time of the clock; a message
    #   that gets no permit is deferred
    # @param clock [Clock] returns the time
    # @param random [#call] returns the given number of random bytes
    # @param most_attempts [Integer] ends the rehearsal after this number of attempts
    # @yieldparam message [Message]
    # @return [Rehearsal]
    # @raise [Exception] what ends the program, or a failed assertion of RSpec or Minitest
    # @raise [Error] if an option has a wrong value; see {Worker#initialize}
    def self.rehearse(body = "", queue: "work", policy: Policy.new, strategy: :ladder, never: [], only: [],
                      policies: {}, exchange: "", routing_key: queue, headers: {}, properties: {}, legacy_counter: nil,
                      wait_queues: [], breaker: nil, clock: Clock.new, random: SeededRandom.new, most_attempts: 100,
                      &handler)
      Checks.callable(handler, "the handler")
      Checks.integer(most_attempts, "most_attempts", (1..))
      topology = Topology.of(queue, policy, nil, policies, strategy: strategy)
      decider = Decider.new(topology, never: never, only: only, policies: policies, legacy_counter: legacy_counter,
                                      wait_queues: wait_queues, clock: clock, random: random)
      course = Course.new(decider.topology, exchange, routing_key, properties, headers)
      calls = Calls.new(Breaker.of(breaker, topology), clock)
      Rehearsal.new(Play.new(decider, clock, course, body, handler, calls).attempts(most_attempts))
    end

    # Keeps the state of one message, and changes it as a broker would.
    # @api private
    class Course
      def initialize(topology, exchange, routing_key, properties, headers)
        @queue = topology.queue
        @exchange = exchange
        @routing_key = routing_key
        @properties = properties
        @headers = headers.transform_keys(&:to_s)
        @returns = 0 # returns by the broker, with strategies :reject and :native
      end

      def deliver
        { exchange: @exchange, routing_key: @routing_key, properties: @properties, headers: @headers }
      end

      # Executes a plan: the message waits and is delivered again.
      def execute(plan)
        @returns += 1
        case plan.action
        when :return then @headers = @headers.merge("x-delivery-count" => @returns)
        when :reject then @headers = @headers.merge("x-death" => [death])
        else copy(plan)
        end
      end

      private

      def death
        { "queue" => @queue, "reason" => "rejected", "count" => @returns, "exchange" => @exchange,
          "routing-keys" => [@routing_key] }
      end

      def copy(plan)
        @headers = plan.copy_headers(@headers).except("BCC", "x-delay")
        @properties = plan.copy_properties(@properties).except(:expiration)
        @exchange = plan.exchange
        @routing_key = plan.routing_key
      end
    end

    # Uses a breaker at the time of the rehearsal's clock.
    # @api private
    class Calls
      # The wait of a message while the breaker is open without an end, in seconds.
      BLIND = 60
      private_constant :BLIND

      def initialize(breaker, clock)
        @breaker = breaker
        @clock = clock
        @offset_ms = Times.monotonic_ms - Times.since_epoch(clock.now)
      end

      # Requests the permit for a message.
      #
      # @return [Numeric, nil] how long the message waits without an attempt, in seconds; nil if it
      #   got a permit
      def refused(message)
        return unless @breaker

        message.permit = permit = @breaker.permit(message, now_ms)
        return if permit.granted?

        permit.until_ms.negative? ? BLIND : permit.delay
      end

      # Records the end of a handler.
      #
      # @param result [Outcomes::Result]
      def record(message, result, error) = message.permit && @breaker.record(message.permit, result, error, now_ms)

      # Returns the state of the message's breaker; nil without one.
      def state(message)
        key = message.permit&.key
        key ? @breaker.state_of(key) : message.permit && @breaker.state
      end

      private

      def now_ms = Times.since_epoch(@clock.now) + @offset_ms
    end

    # Runs the attempts of a message.
    # @api private
    class Play
      # Failed assertions of a test end the rehearsal.
      ASSERTIONS =
        %w[RSpec::Expectations::ExpectationNotMetError RSpec::Mocks::MockExpectationError Minitest::Assertion].freeze
      private_constant :ASSERTIONS

      def initialize(decider, clock, course, body, handler, calls)
        @decider = decider
        @clock = clock
        @course = course
        @body = body
        @handler = handler
        @calls = calls
        @start = clock.now
      end

      def attempts(most)
        attempts = []
        while attempts.size < most
          attempts << attempt
          plan = attempts.last.plan
          break unless Rehearsal::AGAIN.include?(plan.action)

          @clock.advance(plan.delay)
          @course.execute(plan)
        end
        attempts
      end

      private

      def attempt
        at = (@clock.now - @start).to_f
        history = @decider.read(**@course.deliver)
        message = Message.new(@body, @decider.topology) { history }
        plan, error = @decider.guard(history) || handled(message)
        Attempt.new(number: message.attempt, at: at, error: error, plan: plan, breaker: @calls.state(message)).freeze
      end

      # Returns the plan of a message and the handler's exception.
      def handled(message)
        wait = error = nil
        begin
          wait = @calls.refused(message)
        rescue *Outcomes::FAILURES => e # the key function's
          error = e
        end
        return [@decider.defer(message.history, wait)] if wait

        error ||= raised_with(message)
        result = @decider.result_of(error)
        @calls.record(message, result, error)
        [@decider.plan_of(message.history, result), error]
      end

      def raised_with(message)
        error = HandlerCall.error_of(message, nil, ->(_error) {}) { @handler.call(message) }
        raise error if error && error.class.ancestors.any? { |each| ASSERTIONS.include?(each.name) }

        error
      end
    end
    private_constant :Course, :Calls, :Play
  end
end
