# frozen_string_literal: true

module Backhop
  # Counters and histograms of the events of retriers and workers, without another library.
  #
  #     metrics = Backhop::Metrics.new
  #     retrier = Backhop::Bunny::Retrier.new(
  #       channel, queue: "orders", policy: policy, on_event: metrics
  #     )
  #     metrics.text                         # what Prometheus scrapes
  #
  # One object can serve all retriers and workers. The number of label values is limited: ids and
  # error texts are no labels. Further queues and error classes count as "_OTHER".
  # {PrometheusMetrics} and {OpenTelemetryMetrics} record into these libraries.
  class Metrics
    include RetryListener

    # A metric of the core's table.
    # @api private
    Metric = Struct.new(
      :number, :kind, :name, :otel_name, :unit, :help, :labels, :otel_labels, :buckets, keyword_init: true
    )

    KINDS = Core.names("BH_INSTRUMENT_")
    private_constant :KINDS

    # @api private
    TABLE = Array.new(Native::BH_METRIC_LAST) do |number|
      name, otel_name, unit, help, instrument, labels, otel_labels, buckets = Native.bh_metric_describe(number)
      Metric.new(
        number: number, kind: KINDS.fetch(instrument), name: name.to_sym, otel_name: otel_name, unit: unit, help: help,
        labels: labels.map(&:to_sym).freeze, otel_labels: otel_labels.freeze, buckets: buckets.freeze
      ).freeze
    end.freeze

    # @api private
    UNCONFIRMED = TABLE.fetch(Native::BH_METRIC_COPIES_UNCONFIRMED)

    # @api private
    READY = TABLE.fetch(Native::BH_METRIC_CONSUMERS_READY)

    # @param error_types [Array<Class, String>] classes of errors that get a label value, 32 at
    #   most; empty: the first classes that occur
    # @raise [InvalidArgumentError] if there are more, or one is neither a class nor a name
    def initialize(error_types: [])
      @error_types = Checks.object(error_types, "error_types", Array).map { |each| error_type(each) }.uniq
      most = Native::BH_METRICS_MOST_ERROR_TYPES
      given = @error_types.size
      raise InvalidArgumentError, "error_types holds #{given} classes: give #{most} at most" if given > most

      @native = blank
      @lock = Mutex.new
      @sources = ObjectSpace::WeakMap.new
      @workers = []
    end

    # Counts an event. Pass the metrics as on_event.
    #
    # @param event [Event]
    # @return [void]
    def call(event)
      @lock.synchronize do
        Status.check(@native.observe(event.native))
        @native.sample_count.times { |index| sampled(index) } if hands_on?
      end
    end

    # @return [String] all metrics, in Prometheus' text format
    def text
      @lock.synchronize do
        Status.check(@native.set(Native::BH_METRIC_COPIES_UNCONFIRMED, pending))
        all = blank
        Status.check(all.add(@native))
        @workers.each { |worker| read(worker, all) }
        each_consumer { |queue, is_ready| Status.check(all.add_consumer(queue, is_ready ? 1 : 0)) }
        all.text
      end
    end

    # The core's metrics. One call counts, and no other Ruby thread runs during it.
    # @api private
    attr_reader :native

    # Returns true if each sample is recorded into a library; false if the counts are read on
    # demand.
    # @api private
    def hands_on? = false

    # Adds a source to the gauges as long as it exists: a retrier, or a worker whose core does not
    # count.
    #
    # @param source [#pending, #readiness]
    # @api private
    def attach(source) = @lock.synchronize { @sources[source] = true }

    # Returns the number of copies that are not confirmed.
    # @api private
    def pending = sources.sum(&:pending)

    # @return [Array<#pending>]
    # @api private
    def sources = @sources.keys

    # Called when a gauge may have changed, for a library that cannot read it on demand.
    # @api private
    def note_gauges; end

    # Adds the counts of a worker's core, until {#part}.
    #
    # @param worker [Native::Worker]
    # @api private
    def join(worker) = @lock.synchronize { @workers << worker }

    # Keeps the counts of a worker's core, and forgets the worker.
    # @api private
    def part(worker) = @lock.synchronize { read(worker, @native) if @workers.delete(worker) }

    # Returns new metrics of the core with the same error types.
    # @api private
    def blank
      Core.made(Native.bh_metrics_new).tap do |made|
        @error_types.each { |each| Status.check(made.add_error_type(each)) }
      end
    end

    private

    def error_type(each)
      return each.to_s if each.is_a?(Class) || (each.is_a?(String) && !each.empty?)

      raise InvalidArgumentError, "error_types holds #{Text.shown(each)}: give classes, or their names"
    end

    # Yields the queue of each consumer of the sources, and whether it is ready.
    def each_consumer
      sources.each { |source| source.readiness.each { |is_ready| yield source.topology.queue, is_ready } }
    end

    # Records the number of ready consumers of each queue.
    def record_ready
      counts = Hash.new(0)
      each_consumer { |queue, is_ready| counts[queue] += is_ready ? 1 : 0 }
      counts.each { |queue, count| record(READY, count, [queue]) }
    end

    # Adds a worker's counts. A worker from before a fork has none here.
    def read(worker, all)
      status = worker.read_metrics(all)
      Status.check(status) unless status == ForkedError.status
    end

    def sampled(index)
      number, value, *labels = @native.sample(index)
      metric = TABLE.fetch(number)
      record(metric, value, labels.first(metric.labels.size))
    end

    # Records a sample, with the values of its labels.
    def record(metric, value, values) end
  end
end
