# frozen_string_literal: true

module Backhop
  # For your tests: what becomes of a message, with your handler and your policy, without a broker and without waiting.
  #
  #     it "tries a full queue again, and then parks" do
  #       rehearsal = Backhop::Testing.rehearse("/index.html", policy: policy) { |message| purge(message.body) }
  #       expect(rehearsal.outcome).to eq(:parked)
  #       expect(rehearsal.delays).to match([be_within(3).of(10), be_within(10).of(30)]) # by jitter and rung
  #       puts rehearsal                       # a table
  #     end
  #
  # The decisions are those of the core, as in production; of the broker, what waits comes back when its delay is over, with
  # the headers that retries count by.
  module Testing
    # A clock that goes on only when it is told to. Calling it gives the moment.
    class Clock
      # @return [Time]
      attr_reader :now

      # @param start [Time]
      def initialize(start = Time.utc(2026))
        @now = start
      end

      alias call now

      # Lets time pass.
      #
      # @param seconds [Numeric]
      # @return [Time] the moment then
      def advance(seconds) = @now += Rational(Times.milliseconds(seconds), 1000)
    end

    # Random bytes, the same in every run. Calling it with a number gives so many.
    class SeededRandom
      # @param seed [Integer] another one gives others
      def initialize(seed = 0)
        @random = Random.new(seed)
      end

      # @param count [Integer]
      # @return [String]
      def call(count) = @random.bytes(count)
    end

    # One call of the handler, or of none where the poison guard parked the message before.
    #
    # @!attribute [r] number
    #   @return [Integer] which attempt it is
    # @!attribute [r] at
    #   @return [Float] seconds since the first one began
    # @!attribute [r] error
    #   @return [Exception, nil] what the handler raised
    # @!attribute [r] plan
    #   @return [Plan] what was decided then
    Attempt = Struct.new(:number, :at, :error, :plan, keyword_init: true) do
      # @return [Float] how long the message waits after it, in seconds; 0 where it does not
      def delay = plan.delay

      # @return [String] a line
      def to_s
        became = error&.inspect || ("ok" if plan.action == :ack)
        again = delay.positive? ? "again in #{Times.duration(delay)}" : nil
        "attempt #{number.to_s.rjust(2)} after #{Times.duration(at).rjust(12)}: #{[became, again].compact.join(", ")}"
      end
    end

    # What became of a message: Attempts that print as a table.
    class Rehearsal
      include Enumerable

      ENDS = { ack: :acked, park: :parked, drop: :dropped }.freeze
      AGAIN = %i[retry reject return].freeze
      private_constant :ENDS, :AGAIN

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

      # @return [Integer] how many attempts
      def size = @attempts.size

      # @return [Symbol] :acked, :parked, :dropped, or :waiting where it would go on
      def outcome = ENDS.fetch(@attempts.last.plan.action, :waiting)

      # @return [String, nil] why it was parked: exhausted, permanent, too-old, oversized or poison
      def reason = @attempts.last.plan.reason

      # @return [Array<Float>] how long it waited after each attempt that was followed by another, in seconds
      def delays = select { |attempt| AGAIN.include?(attempt.plan.action) }.map(&:delay)

      # @return [Array<Exception>] what the handler raised, in order
      def errors = filter_map(&:error)

      # @return [String] a table
      def to_s = [*@attempts, "#{outcome}#{" (#{reason})" if reason}"].join("\n")
      alias inspect to_s
    end

    # Hands a message to a handler until it is settled for good.
    #
    # @param body [String] the message's body
    # @param queue [String] the work queue
    # @param policy [Policy] how long, how often, how random, when to give up
    # @param strategy [Symbol] where the message waits
    # @param never [Class, #call, Array] as Worker's, as is only
    # @param policies [Hash{Class, #call => Policy}] as Worker's
    # @param exchange [String] where the message was published; default: the default exchange
    # @param routing_key [String] default: the queue's name
    # @param headers [Hash] the message's headers
    # @param properties [Hash] its properties by name, as {message_id: "42"}
    # @param legacy_counter [String, nil] as History's
    # @param wait_queues [Array<String>] as History's
    # @param clock [Clock]
    # @param random [#call]
    # @param most_attempts [Integer] ends a rehearsal that would go on
    # @yieldparam message [Message]
    # @return [Rehearsal]
    def self.rehearse(body = "", queue: "work", policy: Policy.new, strategy: :ladder, never: [], only: [], policies: {},
                      exchange: "", routing_key: queue, headers: {}, properties: {}, legacy_counter: nil, wait_queues: [],
                      clock: Clock.new, random: SeededRandom.new, most_attempts: 100, &handler)
      Values.callable(handler, "the handler")
      Values.integer(most_attempts, "most_attempts", (1..))
      topology = Topology.of(queue, policy, nil, policies, strategy: strategy)
      decider = Decider.new(topology, never: never, only: only, policies: policies, legacy_counter: legacy_counter,
                                      wait_queues: wait_queues, clock: clock, random: random)
      broker = Broker.new(decider.topology, exchange, routing_key, properties, headers)
      Rehearsal.new(Play.new(decider, clock, broker, body, handler).attempts(most_attempts))
    end

    # What a broker keeps of a message.
    # @api private
    class Broker
      def initialize(topology, exchange, routing_key, properties, headers)
        @queue = topology.queue
        @exchange = exchange
        @routing_key = routing_key
        @properties = properties
        @headers = headers.transform_keys(&:to_s)
        @returns = 0 # by the broker alone, for strategies :reject and :native
      end

      def deliver
        { exchange: @exchange, routing_key: @routing_key, properties: @properties, headers: @headers }
      end

      # The plan is carried out, and the message waits and comes back.
      def take(plan)
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

    # A message's attempts, one after the other.
    # @api private
    class Play
      def initialize(decider, clock, broker, body, handler)
        @decider = decider
        @clock = clock
        @broker = broker
        @body = body
        @handler = handler
        @start = clock.now
      end

      def attempts(most)
        attempts = []
        while attempts.size < most
          attempts << attempt
          plan = attempts.last.plan
          break unless %i[retry reject return].include?(plan.action)

          @clock.advance(plan.delay)
          @broker.take(plan)
        end
        attempts
      end

      private

      def attempt
        at = (@clock.now - @start).to_f
        history = @decider.read(**@broker.deliver)
        message = Message.new(@body, @decider.topology) { history }
        plan = @decider.guard(history)
        error = raised_with(message) unless plan
        Attempt.new(number: message.attempt, at: at, error: error, plan: plan || @decider.plan(history, error)).freeze
      end

      def raised_with(message)
        @handler.call(message)
        nil
      rescue *Outcomes::FAILURES => e
        e
      end
    end
    private_constant :Broker, :Play
  end
end
