# frozen_string_literal: true

require "opentelemetry-metrics-api"

require_relative "../../backhop"

module Backhop
  # {Metrics} that record into instruments of OpenTelemetry, with OpenTelemetry's names and
  # attributes.
  #
  #     require "backhop/open_telemetry_metrics"
  #
  #     metrics = Backhop::OpenTelemetryMetrics.new
  #     retrier = Backhop::Bunny::Retrier.new(channel, queue: "orders", on_event: metrics)
  #
  # Configure the SDK first, then make the metrics, the retriers and the workers. The SDK's default
  # buckets are for milliseconds, but these histograms are in seconds: add {bounds} to the SDK as
  # views.
  class OpenTelemetryMetrics < Metrics
    # The gauge of unconfirmed copies. Each meter has one, which sums the copies of all its metrics.
    # @api private
    class Unconfirmed
      @all = ObjectSpace::WeakMap.new
      @lock = Mutex.new

      # Returns the gauge of a meter.
      def self.of(meter) = @lock.synchronize { @all[meter] ||= new(meter) }

      def initialize(meter)
        @metrics = ObjectSpace::WeakMap.new
        metric = Metrics::UNCONFIRMED
        meter.create_observable_gauge(
          metric.otel_name, callback: proc { value }, unit: metric.unit, description: metric.help
        )
      end

      def add(metrics) = @metrics[metrics] = true

      private

      # Counts a source once, even if two metrics have it.
      def value = @metrics.keys.flat_map(&:sources).uniq(&:object_id).sum(&:pending)
    end
    private_constant :Unconfirmed

    # Returns the upper bounds of each histogram's buckets, in seconds, by the histogram's name. Use
    # them in views of the SDK:
    #
    #     Backhop::OpenTelemetryMetrics.bounds.each do |name, bounds|
    #       histogram = OpenTelemetry::SDK::Metrics::Aggregation::ExplicitBucketHistogram
    #       aggregation = histogram.new(boundaries: bounds)
    #       OpenTelemetry.meter_provider.add_view(name, aggregation: aggregation)
    #     end
    #
    # @return [Hash{String => Array<Float>}]
    def self.bounds
      TABLE.select { |metric| metric.kind == :histogram }.to_h { |metric| [metric.otel_name, metric.buckets] }
    end

    # @param meter_provider [::OpenTelemetry::Metrics::MeterProvider]
    # @param error_types [Array<Class, String>] see {Metrics#initialize}
    # @raise [InvalidArgumentError] see {Metrics#initialize}
    def initialize(meter_provider: ::OpenTelemetry.meter_provider, error_types: [])
      super(error_types: error_types)
      @meter_provider = meter_provider
      # opentelemetry-metrics-api before 0.2 has no gauges
      others = (TABLE - [UNCONFIRMED]).select { |metric| meter.respond_to?(:"create_#{metric.kind}") }
      @instruments = others.to_h do |metric|
        create = :"create_#{metric.kind}"
        [metric, meter.public_send(create, metric.otel_name, unit: metric.unit, description: metric.help)]
      end
    end

    # @api private
    def hands_on? = true

    # @api private
    def note_gauges
      record_ready if @instruments.key?(READY)
    end

    # Makes the gauge here and not in initialize: the API drops a gauge that was made before the SDK
    # was configured.
    # @api private
    def attach(source)
      super
      Unconfirmed.of(meter).add(self)
    end

    private

    def meter = @meter_provider.meter("backhop", version: VERSION)

    def record(metric, value, values)
      attributes = metric.otel_labels.zip(values).reject { |_, each| each.empty? }.to_h
      instrument = @instruments[metric]
      return unless instrument # an older API has no gauges

      method = metric.kind == :counter ? :add : :record
      instrument.public_send(method, value, attributes: attributes)
    end
  end
end
