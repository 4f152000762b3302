# frozen_string_literal: true

require "prometheus/client"

require_relative "../backhop"

module Backhop
  # {Metrics} in a registry of the gem prometheus-client (2 to 4), or of prometheus-client-mmap:
  #
  #     require "backhop/prometheus_metrics"
  #
  #     metrics = Backhop::PrometheusMetrics.new
  #     retrier = Backhop::Bunny::Retrier.new(channel, queue: "orders", policy: policy, on_event: metrics)
  class PrometheusMetrics < Metrics
    # @param registry [::Prometheus::Client::Registry]
    # @param error_types [Array<Class, String>] as {Metrics}'
    # @raise [::Prometheus::Client::Registry::AlreadyRegisteredError] the registry has such metrics already: one object serves
    #   all retriers and workers of a process
    def initialize(registry = ::Prometheus::Client.registry, error_types: [])
      super(error_types: error_types)
      @takes_keywords = registry.method(:counter).parameters.include?(%i[keyreq docstring]) # that of mmap takes positions
      @instruments = TABLE.to_h { |metric| [metric, registered(registry, metric)] }
    end

    private

    def registered(registry, metric)
      return registry.public_send(metric.kind, metric.name, *positions(metric)) unless @takes_keywords

      options = metric.kind == :histogram ? { buckets: metric.buckets } : {}
      registry.public_send(metric.kind, metric.name, docstring: metric.help, labels: metric.labels, **options)
    end

    def positions(metric)
      case metric.kind
      when :histogram then [metric.help, {}, metric.buckets]
      when :gauge then [metric.help, {}, :livesum]
      else [metric.help]
      end
    end

    def record(metric, value, values)
      instrument = @instruments.fetch(metric)
      labels = metric.labels.zip(values).to_h
      case metric.kind
      when :counter then @takes_keywords ? instrument.increment(by: value, labels: labels) : instrument.increment(labels, value)
      when :gauge then @takes_keywords ? instrument.set(value, labels: labels) : instrument.set(labels, value)
      else @takes_keywords ? instrument.observe(value, labels: labels) : instrument.observe(labels, value)
      end
    end
  end
end
