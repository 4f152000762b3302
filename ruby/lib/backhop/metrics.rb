# frozen_string_literal: true

module Backhop
  # Counters and histograms of what retriers and workers tell, without any further library:
  #
  #     metrics = Backhop::Metrics.new
  #     retrier = Backhop::Bunny::Retrier.new(channel, queue: "orders", policy: policy, on_event: metrics)
  #     metrics.watch(retrier)               # for backhop_copies_unconfirmed
  #     metrics.text                         # what Prometheus scrapes
  #
  # One may serve them all. Labels are bounded: never an id or an error's text; of queues and classes of errors only so many
  # are told apart, and the rest is "_OTHER". {PrometheusMetrics} and {OpenTelemetryMetrics} hand all of it to these libraries.
  class Metrics
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

    # @param error_types [Array<Class, String>] classes of errors to tell apart, 32 at most; none: the first that are met
    # @raise [InvalidArgumentError] for more, or what is neither
    def initialize(error_types: [])
      @native = Core.made(Native.bh_metrics_new)
      Values.object(error_types, "error_types", Array).each do |each|
        unless each.is_a?(Class) || each.is_a?(String)
          raise InvalidArgumentError, "error_types holds #{Values.shown(each)}: give classes, or their names"
        end

        Status.check(@native.add_error_type(each.to_s))
      end
      @lock = Mutex.new
      @watched = []
    end

    # Counts an event: for on_event.
    #
    # @param event [Event]
    # @return [void]
    def call(event)
      @lock.synchronize do
        Status.check(@native.observe(event.native))
        hand_on unless instance_of?(Metrics) # whose text has it all
      end
    end

    # Has the copies of these retriers that are not confirmed counted.
    #
    # @param retriers [Array<Bunny::Retrier>]
    # @return [self]
    def watch(*retriers)
      @lock.synchronize { @watched = [*@watched, *retriers] }
      self
    end

    # @return [String] everything, in Prometheus' text format
    def text
      @lock.synchronize do
        count_unconfirmed
        @native.text
      end
    end

    private

    def count_unconfirmed
      return if @watched.empty?

      count = @watched.sum(&:pending)
      Status.check(@native.set(Native::BH_METRIC_COPIES_UNCONFIRMED, count))
      record(TABLE[Native::BH_METRIC_COPIES_UNCONFIRMED], count, [])
    end

    def hand_on
      @native.sample_count.times { |index| sampled(index) }
      count_unconfirmed
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
