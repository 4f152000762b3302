# frozen_string_literal: true

module Backhop
  # An exchange, a queue or a binding to declare: durable, neither auto-deleted nor exclusive nor internal.
  #
  # @!attribute [r] what
  #   @return [Symbol] :exchange, :queue or :binding
  # @!attribute [r] name
  #   @return [String] of a binding: its destination
  # @!attribute [r] type
  #   @return [String] exchange: fanout, direct, x-delayed-message; queue: quorum, classic; binding: queue or exchange
  # @!attribute [r] source
  #   @return [String] binding: the exchange that it begins at
  # @!attribute [r] routing_key
  #   @return [String]
  # @!attribute [r] arguments
  #   @return [Hash{String => String, Integer}]
  # @!attribute [r] wait
  #   @return [Float] the rung that this belongs to, in seconds; 0 for none
  # @!attribute [r] on_demand
  #   @return [Boolean] as {#on_demand?}
  Declaration = Struct.new(
    :what, :name, :type, :source, :routing_key, :arguments, :wait, :on_demand, keyword_init: true
  ) do
    # @return [Boolean] for a rung that only a handler's RetryAfter can need: declaring leaves it out until a plan asks for
    #   it
    def on_demand? = on_demand
  end

  # The exchanges, queues and bindings that a strategy needs, as data. It never changes.
  class Topology
    STRATEGIES = {
      ladder: Native::BH_STRATEGY_LADDER,
      message_ttl: Native::BH_STRATEGY_MESSAGE_TTL,
      reject: Native::BH_STRATEGY_REJECT,
      delayed_exchange: Native::BH_STRATEGY_DELAYED_EXCHANGE,
      native: Native::BH_STRATEGY_NATIVE
    }.freeze
    QUEUE_TYPES = { quorum: Native::BH_QUEUE_QUORUM, classic: Native::BH_QUEUE_CLASSIC }.freeze
    WHATS = {
      Native::BH_DECLARE_EXCHANGE => :exchange,
      Native::BH_DECLARE_QUEUE => :queue,
      Native::BH_DECLARE_BINDING => :binding
    }.freeze
    private_constant :STRATEGIES, :QUEUE_TYPES, :WHATS

    # @api private
    attr_reader :native

    # @return [Policy] the delays that it serves
    attr_reader :policy

    # @return [Array<Declaration>] in an order in which they can be made
    attr_reader :declarations

    # @param queue [String] the work queue; at most 247 bytes
    # @param policy [Policy] the delays to serve
    # @param strategy [Symbol] where a message waits: :ladder, :message_ttl, :reject, :delayed_exchange or :native
    # @param queue_type [Symbol] of the wait, parked and unroutable queues: :quorum or :classic
    # @param namespace [String, nil] first part of the shared names; default "backhop", with classic queues
    #   "backhop.classic"
    # @param series [Integer] rungs per decade of the ladder: 5, 10, 20 or 40
    # @param work_queue [Symbol, nil] :quorum or :classic: declare the work queue too; default: it is there already (:reject
    #   and :native, which live in its arguments, declare it always)
    # @param work_queue_arguments [Hash{String, Symbol => String, Integer}] its arguments beside those that the strategy
    #   sets
    # @raise [StrategyError] where the strategy cannot serve the policy; the text names one that does
    # @raise [InvalidNameError] for a name that cannot be used
    def initialize(queue, policy: Policy.new, strategy: :ladder, queue_type: :quorum, namespace: nil, series: 10,
                   work_queue: nil, work_queue_arguments: {})
      @policy = policy
      @native = Core.made(Native.bh_topology_new(queue))
      Status.check(@native.set_strategy(Core.number(STRATEGIES, strategy, "strategy")))
      Status.check(@native.set_queue_type(Core.number(QUEUE_TYPES, queue_type, "queue_type")))
      Status.check(@native.set_namespace(namespace)) if namespace
      Status.check(@native.set_series(series), "series is #{series.inspect}: give one of 5, 10, 20, 40")
      Status.check(@native.set_work_queue_type(Core.number(QUEUE_TYPES, work_queue, "work_queue"))) if work_queue
      work_queue_arguments.each { |name, value| Status.check(add_work_queue_argument(name.to_s, value)) }
      check(@native.build(policy.native))
      @declarations = Array.new(@native.count) { |index| declaration(index) }.freeze
      freeze
    end

    # @return [String] the work queue
    def queue = @native.queue

    # @return [Symbol] where a message waits
    def strategy = STRATEGIES.key(@native.strategy)

    # @return [String] "<queue>.parked", where messages go after their last attempt
    def parked_queue = @native.parked_queue

    # @return [Float] strategy :message_ttl: how late a message can come back at worst, in seconds, because one with a longer
    #   delay is before it; other strategies: 0
    def worst_lateness = Times.seconds(@native.worst_lateness_ms)

    # @return [Array<Float>] the ladder's rungs that the policy uses, in seconds, ascending
    def rungs = Array.new(@native.rung_count) { |index| Times.seconds(@native.rung_ms(index)) }

    # Refuses a broker that cannot serve the strategy.
    #
    # @param product [String] of its server properties
    # @param version [String] likewise
    # @return [void]
    # @raise [BrokerError] the text names a strategy that it can serve
    def check_broker(product, version) = check(@native.check_broker(product, version))

    # All of it as RabbitMQ definitions, for an administrator: rabbitmqctl import_definitions.
    #
    # @param vhost [String]
    # @return [String] JSON
    def definitions(vhost: "/")
      check(Native.bh_topology_export(@native, vhost))
      @native.definitions
    end

    # @return [String]
    def inspect = "#<#{self.class} #{strategy} for #{queue.inspect}: #{declarations.size} declarations>"

    private

    def check(status) = Status.check(status, @native.error)

    def add_work_queue_argument(name, value)
      return @native.add_work_queue_int(name, value) if value.is_a?(Integer)

      @native.add_work_queue_string(name, value.to_s)
    end

    def declaration(index)
      Declaration.new(
        what: WHATS.fetch(@native.declaration(index)),
        name: @native.name(index),
        type: @native.type(index),
        source: @native.source(index),
        routing_key: @native.routing_key(index),
        arguments: Array.new(@native.argument_count(index)) { |number| argument(index, number) }.to_h.freeze,
        wait: Times.seconds(@native.wait_ms(index)),
        on_demand: @native.on_demand(index) == 1
      ).freeze
    end

    def argument(index, number)
      is_integer = @native.argument_type(index, number) == Native::BH_TYPE_INT64
      [@native.argument_name(index, number),
       is_integer ? @native.argument_int(index, number) : @native.argument_string(index, number)]
    end
  end
end
