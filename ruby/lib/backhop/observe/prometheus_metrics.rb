# frozen_string_literal: true

require "prometheus/client"

require_relative "../../backhop"

module Backhop
  # {Metrics} in a registry of the gem prometheus-client (2 to 4) or prometheus-client-mmap.
  #
  #     require "backhop/prometheus_metrics"
  #
  #     metrics = Backhop::PrometheusMetrics.new
  #     retrier = Backhop::Bunny::Retrier.new(channel, queue: "orders", on_event: metrics)
  #
  # If the data store is in the memory of one process, which is the default, the registry reads the
  # metrics when it is scraped. If several processes share the store (DirectFileStore,
  # prometheus-client-mmap), each event is written to it.
  class PrometheusMetrics < Metrics
    # A metric of the registry that reads its values from Backhop's text on demand.
    # @api private
    class Read
      LINE = /^(?<name>\w+?)(?<part>_bucket|_sum|_count)?(?:\{(?<labels>.*)\})? (?<value>\S+)$/
      LABEL = /(\w+)="((?:[^"\\]|\\.)*)"/
      ESCAPES = { "\\n" => "\n", "\\\"" => "\"", "\\\\" => "\\" }.freeze
      private_constant :LINE, :LABEL, :ESCAPES

      # @return [Symbol] :counter, :gauge or :histogram
      attr_reader :type
      # @return [Symbol]
      attr_reader :name
      # @return [String]
      attr_reader :docstring
      # @return [Array<Symbol>]
      attr_reader :labels

      # @yieldreturn [String] Prometheus' text
      def initialize(metric, &text)
        @type = metric.kind
        @name = metric.name
        @docstring = metric.help
        @labels = metric.labels
        @text = text
      end

      # @return [Hash{Hash => Float, Hash}] values by labels; a histogram's value is a Hash of its
      #   buckets, "+Inf" and "sum"
      def values
        @text.call.each_line.with_object({}) do |line, all|
          read = LINE.match(line)
          next unless read && [read[:name], "#{read[:name]}#{read[:part]}"].include?(name.to_s)

          labels = read[:labels].to_s.scan(LABEL).to_h { |label, value| [label.to_sym, value.gsub(/\\./, ESCAPES)] }
          put(all, labels, read[:part], Float(read[:value]))
        end
      end

      # @return [Float, Hash, nil] the value of these labels
      def get(labels: {}) = values[labels]

      private

      def put(all, labels, part, value)
        return all[labels] = value unless type == :histogram

        bound = labels.delete(:le)
        (all[labels] ||= {})[bound || "sum"] = value unless part == "_count" # equals the bucket +Inf
      end
    end
    private_constant :Read

    # @param registry [::Prometheus::Client::Registry]
    # @param error_types [Array<Class, String>] see {Metrics#initialize}
    # @raise [InvalidArgumentError] see {Metrics#initialize}
    # @raise [::Prometheus::Client::Registry::AlreadyRegisteredError] the registry has these metrics
    #   already. Use one object for all retriers and workers of a process
    def initialize(registry = ::Prometheus::Client.registry, error_types: [])
      super(error_types: error_types)
      # Without it, the gem for several processes takes positional arguments.
      @takes_keywords = registry.method(:counter).parameters.include?(%i[keyreq docstring])
      @hands_on = !@takes_keywords || shared?(::Prometheus::Client.config.data_store)
      @instruments = TABLE.to_h do |metric|
        [metric, hands_on? ? registered(registry, metric) : registry.register(Read.new(metric) { text })]
      end
    end

    # @api private
    def hands_on? = @hands_on

    # @api private
    def note_gauges
      return unless hands_on?

      record(UNCONFIRMED, pending, [])
      record_ready
    end

    private

    # Returns true if other processes read the store.
    def shared?(store) = !store.class.to_s.match?(/\APrometheus::Client::DataStores::(Synchronized|SingleThreaded)\z/)

    def registered(registry, metric)
      return registry.public_send(metric.kind, metric.name, *positions(metric)) unless @takes_keywords

      options = metric.kind == :histogram ? { buckets: metric.buckets } : {}
      options[:store_settings] = { aggregation: metric == UNCONFIRMED ? :sum : :max } if metric.kind == :gauge && files?
      registry.public_send(metric.kind, metric.name, docstring: metric.help, labels: metric.labels, **options)
    end

    # Returns true if the store can sum the values of several processes.
    def files? = ::Prometheus::Client.config.data_store.class.to_s.end_with?("::DirectFileStore")

    def positions(metric)
      case metric.kind
      when :histogram then [metric.help, {}, metric.buckets]
      when :gauge then [metric.help, {}, metric == UNCONFIRMED ? :livesum : :max]
      else [metric.help]
      end
    end

    def record(metric, value, values)
      instrument = @instruments.fetch(metric)
      labels = metric.labels.zip(values).to_h
      case metric.kind
      when :counter
        @takes_keywords ? instrument.increment(by: value, labels: labels) : instrument.increment(labels, value)
      when :gauge then @takes_keywords ? instrument.set(value, labels: labels) : instrument.set(labels, value)
      else @takes_keywords ? instrument.observe(value, labels: labels) : instrument.observe(labels, value)
      end
    end
  end
end
