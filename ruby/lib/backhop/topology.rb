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
    # @api private
    WHATS = {
      Native::BH_DECLARE_EXCHANGE => :exchange,
      Native::BH_DECLARE_QUEUE => :queue,
      Native::BH_DECLARE_BINDING => :binding
    }.freeze
    SERIES = [5, 10, 20, 40].to_h { |series| [series, series] }.freeze
    LONGEST_NAME = 247 # bytes, as the core has it
    private_constant :STRATEGIES, :QUEUE_TYPES, :SERIES, :LONGEST_NAME

    extend Values::Keywords

    # A work queue's name, which the core takes.
    # @api private
    def self.name_of(queue)
      Values.text(queue, "queue", InvalidNameError)
      raise InvalidNameError, "queue is empty: give the work queue's name" if queue.empty?
      return queue if queue.bytesize <= LONGEST_NAME

      raise InvalidNameError, "queue is #{queue.bytesize} bytes long: give a name of #{LONGEST_NAME} bytes at most"
    end

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
    # @param stripes [Integer] wait queues of each of the ladder's rungs, 1 to 64, each a share of the load; raising it later
    #   redeclares nothing
    # @param work_queue [Symbol, nil] :quorum or :classic: declare the work queue too; default: it is there already (:reject
    #   and :native, which live in its arguments, declare it always)
    # @param work_queue_arguments [Hash{String, Symbol => String, Integer}] its arguments beside those that the strategy
    #   sets
    # @param policies [Array<Policy>] further policies that it shall serve
    # @raise [InvalidArgumentError] for what is no value of an option
    # @raise [StrategyError] where the strategy cannot serve the policy; the text names one that does
    # @raise [InvalidNameError] for a name that cannot be used
    def initialize(queue, policy: Policy.new, strategy: :ladder, queue_type: :quorum, namespace: nil, series: 10,
                   stripes: 1, work_queue: nil, work_queue_arguments: {}, policies: [])
      @policy = Values.object(policy, "policy", Policy)
      @native = Core.made(Native.bh_topology_new(Topology.name_of(queue)))
      Status.check(@native.set_strategy(Core.number(STRATEGIES, strategy, "strategy")))
      Status.check(@native.set_queue_type(Core.number(QUEUE_TYPES, queue_type, "queue_type")))
      Status.check(@native.set_namespace(Values.text(namespace, "namespace"))) if namespace
      Status.check(@native.set_series(Core.number(SERIES, series, "series")))
      Status.check(@native.set_stripes(Values.integer(stripes, "stripes", (1..64))))
      Status.check(@native.set_work_queue_type(Core.number(QUEUE_TYPES, work_queue, "work_queue"))) if work_queue
      Values.object(work_queue_arguments, "work_queue_arguments", Hash)
      work_queue_arguments.each { |name, value| Status.check(add_work_queue_argument(name.to_s, value)) }
      further(policies).each { |each| check(@native.add_policy(each.native)) }
      check(@native.build(policy.native))
      @declarations = Array.new(@native.count) { |index| declaration(index) }.freeze
      freeze
    end

    # That of a queue, its policy and further options, or the one that is given instead.
    # @api private
    def self.of(queue, policy, topology, policies, **options)
      given = { queue: queue, policy: policy, **options }.compact
      served = Choice.policies(policies).values
      if topology
        Values.object(topology, "topology", Topology)
        served.each { |each| topology.check_serves(each) }
        return topology if given.empty?

        raise InvalidArgumentError, "a topology has its #{given.keys.first}: give no other"
      end
      raise InvalidArgumentError, "queue is missing: give the work queue, or a topology" if queue.nil?

      new(queue, policies: served, **given.except(:queue))
    end

    # @return [String] the work queue
    def queue = @native.queue

    # @return [Symbol] where a message waits
    def strategy = STRATEGIES.key(@native.strategy)

    # @return [String] "<queue>.parked", where messages go after their last attempt
    def parked_queue = @native.parked_queue

    # @return [String, nil] "<namespace>.unroutable", where messages go whose work queue was gone when they were to come back,
    #   of all that share the namespace; nil for strategy :native, which has none
    def unroutable_queue = Core.text(@native.unroutable_queue)

    # Whether a message is one of this work queue's: of those in the unroutable queue the one to send home.
    # @api private
    def owns?(delivery) = @native.owns(delivery.native) == 1

    # @return [Float] strategy :message_ttl: how late a message can come back at worst, in seconds, because one with a longer
    #   delay is before it; other strategies: 0
    def worst_lateness = Times.seconds(@native.worst_lateness_ms)

    # @return [Array<Float>] the ladder's rungs that the policy uses, in seconds, ascending
    def rungs = Array.new(@native.rung_count) { |index| Times.seconds(@native.rung_ms(index)) }

    # @param attempt [Integer] 1, 2, ...
    # @return [PreviewRow] the preview of the attempt-th failure
    # @raise [PolicyError] for a number that is none
    def row(attempt)
      Policy.check_attempt(attempt)
      times = { lowest: :lowest_ms, mean: :mean_ms, highest: :highest_ms, total: :total_ms }.transform_values do |getter|
        Times.seconds(@native.public_send(getter, policy.native, attempt))
      end
      PreviewRow.new(attempt: attempt, **times, rungs: @native.spread(policy.native, attempt)).freeze
    end

    # The lowest, mean and highest delay after each failure, and their running total, as its wait queues make them of its
    # policy.
    #
    # @param failures [Integer, nil] how many; default: all that are retried, at most 20
    # @return [Preview]
    # @raise [PolicyError] for a number that is none, or above 10,000
    def preview(failures = nil) = Preview.new(policy.previewed(failures).map { |attempt| row(attempt) })

    # @param attempt [Integer] 1, 2, ...
    # @return [Hash{Float => Float}] what share of the messages waits on which of the ladder's rungs, in seconds, after the
    #   attempt-th failure
    # @raise [PolicyError] for a number that is none
    def shares(attempt)
      Policy.check_attempt(attempt)
      shares = rungs.each_with_index.to_h { |rung, i| [rung, @native.share(policy.native, attempt, i)] }
      shares.reject { |_, share| share.zero? }
    end

    # Refuses a broker that cannot serve the strategy.
    #
    # @param product [String] of its server properties
    # @param version [String] likewise
    # @return [void]
    # @raise [BrokerError] the text names a strategy that it can serve
    def check_broker(product, version) = check(@native.check_broker(product, version))

    # Refuses a policy whose waits it has not.
    # @api private
    def check_serves(policy)
      return if @native.check_policy(policy.native).zero?

      raise ForeignPolicyError, "policies: the topology has not all waits of #{policy.inspect}: make it with that policy " \
                                "among its policies"
    end

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

    def further(policies)
      return policies if policies.is_a?(Array) && policies.all?(Policy)

      raise InvalidArgumentError, "policies is #{Values.shown(policies)}: give an Array of #{Policy}"
    end

    def add_work_queue_argument(name, value)
      return @native.add_work_queue_int(name, value) if value.is_a?(Integer)
      return @native.add_work_queue_string(name, value.to_s) if value.is_a?(String) || value.is_a?(Symbol)

      raise InvalidArgumentError, "work_queue_arguments: #{name} is #{Values.shown(value)}: give a String or an Integer"
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
