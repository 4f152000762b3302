# frozen_string_literal: true

module Backhop
  # Counters and histograms of what retriers and workers tell, without any further library:
  #
  #     metrics = Backhop::Metrics.new
  #     retrier = Backhop::Bunny::Retrier.new(channel, queue: "orders", policy: policy, on_event: metrics)
  #     metrics.text                         # what Prometheus scrapes
  #
  # One may serve them all. Labels are bounded: never an id or an error's text; of queues and classes of errors only so many
  # are told apart, and the rest is "_OTHER". {PrometheusMetrics} and {OpenTelemetryMetrics} hand all of it to these libraries.
  class Metrics
    include Bridge

    # A metric of the core's table.
    # @api private
    Metric = Struct.new(:number, :kind, :name, :otel_name, :unit, :help, :labels, :otel_labels, :buckets, keyword_init: true)

    KINDS = { Native::BH_INSTRUMENT_COUNTER => :counter, Native::BH_INSTRUMENT_GAUGE => :gauge,
              Native::BH_INSTRUMENT_HISTOGRAM => :histogram }.freeze
    private_constant :KINDS

    # @api private
    TABLE = Array.new(Native::BH_METRIC_LAST) do |number|
      labels = Native.bh_metric_label_count(number)
      Metric.new(
        number: number, kind: KINDS.fetch(Native.bh_metric_instrument(number)), name: Native.bh_metric_name(number).to_sym,
        otel_name: Native.bh_metric_otel_name(number), unit: Native.bh_metric_unit(number), help: Native.bh_metric_help(number),
        labels: Array.new(labels) { |index| Native.bh_metric_label(number, index).to_sym }.freeze,
        otel_labels: Array.new(labels) { |index| Native.bh_metric_otel_label(number, index) }.freeze,
        buckets: Array.new(Native.bh_metric_bucket_count(number)) { |index| Native.bh_metric_bucket(number, index) }.freeze
      ).freeze
    end.freeze

    # @api private
    UNCONFIRMED = TABLE.fetch(Native::BH_METRIC_COPIES_UNCONFIRMED)

    # @param error_types [Array<Class, String>] classes of errors to tell apart, 32 at most; none: the first that are met
    # @raise [InvalidArgumentError] for more, or what is neither
    def initialize(error_types: [])
      @error_types = Values.object(error_types, "error_types", Array).map { |each| error_type(each) }.uniq
      most = Native::BH_METRICS_MOST_ERROR_TYPES
      given = @error_types.size
      raise InvalidArgumentError, "error_types holds #{given} classes: give #{most} at most" if given > most

      @native = blank
      @lock = Mutex.new
      @sources = ObjectSpace::WeakMap.new
      @workers = []
    end

    # Counts an event: for on_event.
    #
    # @param event [Event]
    # @return [void]
    def call(event)
      @lock.synchronize do
        Status.check(@native.observe(event.native))
        @native.sample_count.times { |index| sampled(index) } if hands_on?
      end
    end

    # @return [String] everything, in Prometheus' text format
    def text
      @lock.synchronize do
        Status.check(@native.set(Native::BH_METRIC_COPIES_UNCONFIRMED, pending))
        all = blank
        Status.check(all.add(@native))
        @workers.each { |worker| read(worker, all) }
        all.text
      end
    end

    # The core's metrics, to count with one call, while no other thread runs.
    # @api private
    attr_reader :native

    # Whether each sample is handed on to a library; else all of it is read when it is asked for.
    # @api private
    def hands_on? = false

    # Copies that are not confirmed of a retrier, or of a worker whose core does not count, are counted as long as it is there.
    #
    # @param source [#pending]
    # @api private
    def attach(source) = @lock.synchronize { @sources[source] = true }

    # How many copies are not confirmed.
    # @api private
    def pending = sources.sum(&:pending)

    # @return [Array<#pending>]
    # @api private
    def sources = @sources.keys

    # It may be another number now: for a library that cannot ask for it when it is read.
    # @api private
    def note_pending; end

    # A worker's core counts from now on, until {#part}.
    #
    # @param worker [Native::Worker]
    # @api private
    def join(worker) = @lock.synchronize { @workers << worker }

    # What a worker has counted is kept.
    # @api private
    def part(worker) = @lock.synchronize { read(worker, @native) if @workers.delete(worker) }

    # Metrics of the core that tell the same classes of errors apart, and have counted nothing.
    # @api private
    def blank
      Core.made(Native.bh_metrics_new).tap do |made|
        @error_types.each { |each| Status.check(made.add_error_type(each)) }
      end
    end

    private

    def error_type(each)
      return each.to_s if each.is_a?(Class) || (each.is_a?(String) && !each.empty?)

      raise InvalidArgumentError, "error_types holds #{Values.shown(each)}: give classes, or their names"
    end

    # A worker of before a fork counts nothing here.
    def read(worker, all)
      status = worker.read_metrics(all)
      Status.check(status) unless status == ForkedError.status
    end

    def sampled(index)
      metric = TABLE.fetch(@native.sample_metric(index))
      values = Array.new(metric.labels.size) { |label| @native.sample_label(index, label) }
      record(metric, @native.sample_value(index), values)
    end

    # Hands a sample on, with its labels' values.
    def record(metric, value, values) end
  end
end
