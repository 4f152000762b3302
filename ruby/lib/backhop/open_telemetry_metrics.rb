# frozen_string_literal: true

require "opentelemetry-metrics-api"

require_relative "../backhop"

module Backhop
  # {Metrics} as instruments of OpenTelemetry, with its names and attributes:
  #
  #     require "backhop/open_telemetry_metrics"
  #
  #     retrier = Backhop::Bunny::Retrier.new(channel, queue: "orders", on_event: Backhop::OpenTelemetryMetrics.new)
  #
  # Make it, and retriers and workers, once the SDK is configured. The SDK's default buckets are made for milliseconds, and
  # these are seconds: give it {bounds} as views, before.
  class OpenTelemetryMetrics < Metrics
    # The gauge of copies that are not confirmed: one for each meter, which sums what all metrics of that meter know of.
    # @api private
    class Unconfirmed
      @all = ObjectSpace::WeakMap.new
      @lock = Mutex.new

      # That of a meter.
      def self.of(meter) = @lock.synchronize { @all[meter] ||= new(meter) }

      def initialize(meter)
        @metrics = ObjectSpace::WeakMap.new
        metric = Metrics::UNCONFIRMED
        meter.create_observable_gauge(metric.otel_name, callback: proc { value }, unit: metric.unit, description: metric.help)
      end

      def add(metrics) = @metrics[metrics] = true

      private

      # A source of two metrics counts once.
      def value = @metrics.keys.flat_map(&:sources).uniq(&:object_id).sum(&:pending)
    end
    private_constant :Unconfirmed

    # The upper bounds of each histogram's buckets, by its name, for views of the SDK:
    #
    #     Backhop::OpenTelemetryMetrics.bounds.each do |name, bounds|
    #       aggregation = OpenTelemetry::SDK::Metrics::Aggregation::ExplicitBucketHistogram.new(boundaries: bounds)
    #       OpenTelemetry.meter_provider.add_view(name, aggregation: aggregation)
    #     end
    #
    # @return [Hash{String => Array<Float>}]
    def self.bounds
      TABLE.select { |metric| metric.kind == :histogram }.to_h { |metric| [metric.otel_name, metric.buckets] }
    end

    # @param meter_provider [::OpenTelemetry::Metrics::MeterProvider]
    # @param error_types [Array<Class, String>] as {Metrics}'
    def initialize(meter_provider: ::OpenTelemetry.meter_provider, error_types: [])
      super(error_types: error_types)
      @meter_provider = meter_provider
      @instruments = (TABLE - [UNCONFIRMED]).to_h do |metric|
        [metric, meter.public_send(:"create_#{metric.kind}", metric.otel_name, unit: metric.unit, description: metric.help)]
      end
    end

    # @api private
    def hands_on? = true

    # The gauge is made here, as the API forgets one of before the SDK was configured.
    # @api private
    def attach(source)
      super
      Unconfirmed.of(meter).add(self)
    end

    private

    def meter = @meter_provider.meter("backhop", version: VERSION)

    def record(metric, value, values)
      attributes = metric.otel_labels.zip(values).reject { |_, each| each.empty? }.to_h
      instrument = @instruments.fetch(metric)
      metric.kind == :counter ? instrument.add(value, attributes: attributes) : instrument.record(value, attributes: attributes)
    end
  end
end
