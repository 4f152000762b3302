# frozen_string_literal: true

module Backhop
  # An exchange, a queue or a binding to declare. It is durable, and neither auto-deleted nor
  # exclusive nor internal.
  #
  # @!attribute [r] what
  #   @return [Symbol] :exchange, :queue or :binding
  # @!attribute [r] name
  #   @return [String] the name; for a binding the name of its destination
  # @!attribute [r] type
  #   @return [String] for an exchange: fanout, direct or x-delayed-message; for a queue: quorum or
  #     classic; for a binding its destination: queue or exchange
  # @!attribute [r] source
  #   @return [String] for a binding the source exchange; else ""
  # @!attribute [r] routing_key
  #   @return [String] for a binding its routing key; else ""
  # @!attribute [r] arguments
  #   @return [Hash{String => String, Integer}] the x-arguments
  # @!attribute [r] wait
  #   @return [Float] the TTL of the rung that it belongs to, in seconds; 0 if it belongs to no rung
  # @!attribute [r] on_demand
  #   @return [Boolean] the same as {#on_demand?}
  Declaration = Struct.new(
    :what, :name, :type, :source, :routing_key, :arguments, :wait, :on_demand, keyword_init: true
  ) do
    # @return [Boolean] true if only a RetryAfter can need this rung: it is declared when a message
    #   needs it
    def on_demand? = on_demand
  end

  # The exchanges, queues and bindings that a work queue needs, as data. A topology is immutable.
  class Topology
    STRATEGIES = Core.numbers("BH_STRATEGY_")
    QUEUE_TYPES = Core.numbers("BH_QUEUE_")
    # @api private
    WHATS = Core.names("BH_DECLARE_", :none)
    SERIES = [5, 10, 20, 40].to_h { |series| [series, series] }.freeze
    LONGEST_NAME = 247 # bytes, the core's limit
    INT64 = (-(2**63)..((2**63) - 1))
    private_constant :STRATEGIES, :QUEUE_TYPES, :SERIES, :LONGEST_NAME, :INT64

    extend Checks::Keywords

    # Returns the work queue's name, or raises InvalidNameError or InvalidArgumentError.
    # @api private
    def self.name_of(queue)
      Checks.text(queue, "queue", InvalidNameError)
      raise InvalidNameError, "queue is empty: give the work queue's name" if queue.empty?
      return queue if queue.bytesize <= LONGEST_NAME

      raise InvalidNameError, "queue is #{queue.bytesize} bytes long: give a name of #{LONGEST_NAME} bytes at most"
    end

    # The core's view of a built topology.
    # @api private
    View = Struct.new(:queue, :parked_queue, :unroutable_queue, :worst_lateness_ms, :rungs_ms, :declaration_count,
                      :defers, :strategy)
    private_constant :View

    # Returns a declaration of the core as a {Declaration}.
    # @api private
    def self.declaration(fields)
      kind, name, type, source, routing_key, rung_ms, on_demand, _passive, _unbind, arguments = fields
      values = arguments.to_h { |key, tag, text, number| [key, tag == Native::BH_TYPE_INT64 ? number : text] }
      Declaration.new(what: WHATS.fetch(kind), name: name, type: type, source: source, routing_key: routing_key,
                      arguments: values.freeze, wait: Times.seconds(rung_ms), on_demand: on_demand == 1).freeze
    end

    # @api private
    attr_reader :native

    # @return [Policy] the policy whose delays it serves
    attr_reader :policy

    # @return [Array<Declaration>] all declarations, sorted so that each one's parts come before it
    attr_reader :declarations

    # @param queue [String] the work queue, at most 247 bytes
    # @param policy [Policy] the policy to serve
    # @param strategy [Symbol] where messages wait: :ladder, :message_ttl, :reject,
    #   :delayed_exchange or :native
    # @param queue_type [Symbol] type of the wait, parked and unroutable queues: :quorum or :classic
    # @param namespace [String, nil] prefix of the shared names; default "backhop", with classic
    #   queues "backhop.classic"
    # @param series [Integer] number of the ladder's rungs per decade: 5, 10, 20 or 40
    # @param stripes [Integer] number of wait queues of each rung, 1 to 64, which share its load.
    #   You can raise it later: no queue is redeclared
    # @param work_queue [Symbol, nil] :quorum or :classic declares the work queue with this type;
    #   nil: it exists already. The strategies :reject and :native always declare it, since they
    #   need its arguments
    # @param work_queue_arguments [Hash{String, Symbol => String, Integer}] arguments of the work
    #   queue, besides the strategy's own
    # @param policies [Array<Policy>] further policies to serve
    # @raise [InvalidArgumentError] if an option has a wrong value
    # @raise [StrategyError] if the strategy cannot serve a policy; the text names a strategy that
    #   can
    # @raise [InvalidNameError] if a name is invalid
    def initialize(queue, policy: Policy.new, strategy: :ladder, queue_type: :quorum, namespace: nil, series: 10,
                   stripes: 1, work_queue: nil, work_queue_arguments: {}, policies: [])
      @policy = Checks.object(policy, "policy", Policy)
      @native = Core.made(Native.bh_topology_new(Topology.name_of(queue)))
      check(@native.set(Core.number(STRATEGIES, strategy, "strategy"),
                        Core.number(QUEUE_TYPES, queue_type, "queue_type"),
                        namespace ? 1 : 0, namespace ? Checks.text(namespace, "namespace") : "",
                        Core.number(SERIES, series, "series"), Checks.integer(stripes, "stripes", (1..64)),
                        work_queue ? 1 : 0, Core.number(QUEUE_TYPES, work_queue || :quorum, "work_queue")))
      Checks.object(work_queue_arguments, "work_queue_arguments", Hash)
      work_queue_arguments.each { |name, value| Status.check(add_work_queue_argument(name.to_s, value)) }
      further(policies).each { |each| check(@native.add_policy(each.native)) }
      check(@native.build(policy.native))
      @view = View.new(*@native.read).freeze
      @declarations = Array.new(@view.declaration_count) do |index|
        Topology.declaration(@native.declaration(index))
      end.freeze
      freeze
    end

    # Returns the given topology, or makes one for the queue and the options.
    # @api private
    def self.of(queue, policy, topology, policies, **options)
      given = { queue: queue, policy: policy, **options }.compact
      served = FailureRules.policies(policies).values
      if topology
        Checks.object(topology, "topology", Topology)
        served.each { |each| topology.check_serves(each) }
        return topology if given.empty?

        raise InvalidArgumentError, "a topology has its #{given.keys.first}: give no other"
      end
      raise InvalidArgumentError, "queue is missing: give the work queue, or a topology" if queue.nil?

      new(queue, policies: served, **given.except(:queue))
    end

    # @return [String] the work queue
    def queue = @view.queue

    # @return [Symbol] where messages wait: :ladder, :message_ttl, :reject, :delayed_exchange or
    #   :native
    def strategy = STRATEGIES.key(@view.strategy)

    # @return [String] "<queue>.parked": the queue of messages after their last attempt
    def parked_queue = @view.parked_queue

    # Returns "<namespace>.unroutable", which all work queues of the namespace share. It gets
    # messages whose work queue did not exist at the end of their delay.
    #
    # @return [String, nil] nil for strategy :native
    def unroutable_queue = Core.text(@view.unroutable_queue)

    # Returns true if a message can wait without an attempt.
    # @api private
    def defers? = @view.defers == 1

    # Returns true if a message in the unroutable queue belongs to this work queue.
    # @api private
    def owns?(delivery) = @native.owns(delivery.native) == 1

    # Returns how late a message can arrive with strategy :message_ttl: a message with a longer
    # delay can be before it in the wait queue.
    #
    # @return [Float] seconds; 0 for the other strategies
    def worst_lateness = Times.seconds(@view.worst_lateness_ms)

    # @return [Array<Float>] the TTLs of the rungs that the policy uses, in seconds, ascending
    def rungs = @view.rungs_ms.map { |rung_ms| Times.seconds(rung_ms) }

    # Returns the delays after one failure, as the topology rounds them to its rungs.
    #
    # @param attempt [Integer] number of the failure: 1, 2, ...
    # @return [PreviewRow]
    # @raise [PolicyError] if attempt is not such a number
    def row(attempt) = Preview.row(policy, attempt, @native)

    # Returns the delays after each failure, as the topology rounds them to its rungs.
    #
    # @param failures [Integer, nil] number of rows, 0 to 10,000; default: all failures that are
    #   retried, at most 20
    # @return [Preview]
    # @raise [PolicyError] if failures is outside its range
    def preview(failures = nil) = Preview.of_topology(policy, @native, failures)

    # Returns how messages spread over the ladder's rungs after one failure.
    #
    # @param attempt [Integer] number of the failure: 1, 2, ...
    # @return [Hash{Float => Float}] the share of the messages, 0 to 1, by the rung's TTL in seconds
    # @raise [PolicyError] if attempt is not such a number
    def shares(attempt)
      Preview.check_attempt(attempt)
      shares = rungs.each_with_index.to_h { |rung, i| [rung, @native.share(policy.native, attempt, i)] }
      shares.reject { |_, share| share.zero? }
    end

    # Checks that a broker can serve the strategy.
    #
    # @param product [String] product of the broker's server properties
    # @param version [String] version of the broker's server properties
    # @return [void]
    # @raise [BrokerError] if the broker cannot serve the strategy; the text names one that it can
    #   serve
    # @raise [InvalidArgumentError] if an argument is no String
    def check_broker(product, version)
      check(@native.check_broker(Checks.text(product, "product"), Checks.text(version, "version")))
    end

    # Raises ForeignPolicyError if the topology has no rung for a delay of the policy.
    # @api private
    def check_serves(policy)
      return if @native.check_policy(policy.native).zero?

      raise ForeignPolicyError,
            "policies: the topology has not all waits of #{policy.inspect}: make it with that policy " \
            "among its policies"
    end

    # Returns the topology as RabbitMQ definitions, for rabbitmqctl import_definitions.
    #
    # @param vhost [String] the vhost of the definitions
    # @return [String] JSON
    # @raise [InvalidNameError] if the vhost's name is invalid
    # @raise [InvalidArgumentError] if the vhost is no String
    def definitions(vhost: "/")
      check(Native.bh_topology_export(@native, Checks.text(vhost, "vhost")))
      @native.definitions
    end

    # @return [String]
    def inspect = "#<#{self.class} #{strategy} for #{queue.inspect}: #{declarations.size} declarations>"

    private

    def check(status) = Status.check(status, @native.error)

    def further(policies)
      return policies if policies.is_a?(Array) && policies.all?(Policy)

      raise InvalidArgumentError, "policies is #{Text.shown(policies)}: give an Array of #{Policy}"
    end

    def add_work_queue_argument(name, value)
      if value.is_a?(Integer)
        return @native.add_work_queue_int(name, Checks.integer(value, "work_queue_arguments: #{name}", INT64))
      end
      return @native.add_work_queue_string(name, value.to_s) if value.is_a?(String) || value.is_a?(Symbol)

      raise InvalidArgumentError, "work_queue_arguments: #{name} is #{Text.shown(value)}: give a String or an Integer"
    end
  end
end
