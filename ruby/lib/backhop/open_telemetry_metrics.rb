# frozen_string_literal: true

require "opentelemetry-metrics-api"

require_relative "../backhop"

module Backhop
  # {Metrics} as instruments of OpenTelemetry, with its names and attributes:
  #
  #     require "backhop/open_telemetry_metrics"
  #
  #     retrier = Backhop::Bunny::Retrier.new(channel, queue: "orders", on_event: Backhop::OpenTelemetryMetrics.new)
  class OpenTelemetryMetrics < Metrics
    # @param meter_provider [::OpenTelemetry::Metrics::MeterProvider]
    # @param error_types [Array<Class, String>] as {Metrics}'
    def initialize(meter_provider: ::OpenTelemetry.meter_provider, error_types: [])
      super(error_types: error_types)
      meter = meter_provider.meter("backhop", version: VERSION)
      @instruments = TABLE.to_h do |metric|
        [metric, meter.public_send(:"create_#{metric.kind}", metric.otel_name, unit: metric.unit, description: metric.help)]
      end
    end

    # @api private
    def hands_on? = true

    private

    def record(metric, value, values)
      attributes = metric.otel_labels.zip(values).reject { |_, each| each.empty? }.to_h
      instrument = @instruments.fetch(metric)
      metric.kind == :counter ? instrument.add(value, attributes: attributes) : instrument.record(value, attributes: attributes)
    end
  end
end
