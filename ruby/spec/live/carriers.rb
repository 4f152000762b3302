# frozen_string_literal: true

require "async"
require "logger"
require "timeout"

require "backhop/bunny"
require "backhop/kicks"

# The carriers of the contract for handlers (tests/contract): each calls a handler with the messages
# of a queue. A program of its own can load this file.
module Carriers
  KICKS = %w[kicks-3.3.0 serverengine-2.4.0].map do |gem|
    File.join(ENV["BACKHOP_GEMS"] || File.expand_path("../../../../shared/gems", __dir__), gem, "lib")
  end
  THREADS = 2

  # Returns true for a carrier whose code path another one has: its examples are left to the long
  # profile.
  def self.further?(name) = !%w[run bunny-subscribe].include?(name)

  # Yields, to end a consumer of Bunny. If the broker closes the channel at the same moment, the
  # answer that Bunny waits for does not come.
  def self.leave
    yield
  rescue Timeout::Error
    nil
  end

  # For consumers that have threads of their own: the main thread only waits.
  module Waiting
    def call
      self.begin
      @is_waiting = true
      sleep
    end

    # Returns true once the main thread waits. Before, an exception raised in it can get lost:
    # Ruby's Logger rescues every exception while it writes a line.
    def waiting? = @is_waiting
  end

  # The worker, by run.
  class Run
    attr_reader :worker

    def initialize(url, queue, handler, threads: THREADS, timeout: nil, **options)
      options = { threads: threads, timeout: timeout, retry_events: true, **self.class.room(threads), **options }
      @worker = Backhop::Worker.new(url, queue: queue, **options)
      @handler = handler
    end

    def self.room(_threads) = { prefetch: 10 }

    # Consumes until it is stopped.
    def call = @worker.run(@handler)

    def waiting? = true

    def begin
      @thread = Thread.new { call }
      @thread.report_on_exception = false
      @worker.ready
    end

    def begin_stop(seconds) = @worker.stop(drain: seconds)

    def stop(seconds)
      begin_stop(seconds)
      @thread&.join
    end

    # Stops while a handler has a message, and returns after the limit.
    def stop_early
      begin_stop(0)
      sleep 0.01 until @worker.state == :stopped
    end
  end

  # The worker, by serve.
  class Serve < Run
    def initialize(...)
      super
      @aborts = Queue.new
    end

    def self.room(threads) = { prefetch: threads }

    def call
      Async do |task|
        serving = task.async do
          @worker.serve(@handler)
        ensure
          @aborts << nil
        end
        @aborts.pop
        serving.stop
        serving.wait
      end.wait
    end

    # Stops the task that serves, from any thread.
    def abort = @aborts << nil
  end

  # The base class for the clients of Bunny.
  class OverBunny
    include Waiting

    attr_reader :retrier, :connection, :channel

    def initialize(url, queue, handler, threads: THREADS, timeout: nil, **options)
      @connection = Bunny.new(url, network_recovery_interval: 0.1, logger: Logger.new(IO::NULL)).start
      # Bunny waits for its pool if a handler never ends, and Bunny 2 sometimes at any cancel: for 1
      # s here, not for 60 s.
      @channel = @connection.create_channel(nil, threads, false, 1)
      @channel.prefetch(10)
      @handler = handler
      @threads = threads
      @timeout = timeout
      @retrier = Backhop::Bunny::Retrier.new(@channel, queue: queue, **options)
    end

    def stop(seconds)
      begin_stop(seconds)
      begin
        @retrier.drain(seconds)
      rescue Backhop::WaitTimeoutError, Backhop::ConnectionFailedError
        nil # a handler that never ends
      end
      Carriers.leave { @connection.close }
    end

    # In a thread of its own: Bunny ends the threads of a pool when it closes the channel.
    def stop_early = Thread.new { stop(0.05) }.join
  end

  # Bunny, by subscribe.
  class Subscribe < OverBunny
    # The first messages may come before the call that subscribes has returned.
    def subscription
      sleep 0.01 until @subscription
      @subscription
    end

    def begin
      @subscription = @retrier.subscribe(@handler, prefetch: 10, threads: @threads, timeout: @timeout)
    end

    def begin_stop(seconds)
      consuming = subscription
      Thread.new { consuming.cancel(seconds) }
      consuming.wait
    end
  end

  # Bunny, by wrap.
  class Wrap < OverBunny
    def begin
      @retrier.declare
      queue = @channel.queue(@retrier.topology.queue, no_declare: true)
      registry = @connection.topology_registry if @connection.respond_to?(:topology_registry)
      registry&.delete_recorded_queue_named(queue.name)
      @consumer = queue.subscribe(manual_ack: true, &@retrier.wrap(@handler))
    end

    def begin_stop(_seconds) = Carriers.leave { @channel.open? && @consumer&.cancel }
  end

  # A worker of Kicks, run by Kicks' own code.
  class OfKicks
    include Waiting

    def self.load
      return if defined?(::Sneakers::Worker)

      $LOAD_PATH.concat(KICKS)
      require "sneakers"
      ::Sneakers.configure(log: IO::NULL, exchange: "")
      ::Sneakers.error_reporters.clear
    end

    def initialize(url, queue, handler, threads: THREADS, **options)
      options.delete(:timeout) # the worker of Kicks has none
      @connection = Bunny.new(url, network_recovery_interval: 0.1, logger: Logger.new(IO::NULL))
      kind = Class.new do
        include ::Sneakers::Worker
        from_queue queue, handler: Backhop::Kicks::Handler, ack: true, exchange: "", threads: threads, prefetch: 10,
                          queue_options: { no_declare: true }, backhop: options

        define_method(:work_with_params) do |_payload, delivery_info, _metadata|
          handler.call(delivery_info[:backhop])
          ack!
        end
      end
      @connection.start
      @worker = kind.new(nil, nil, connection: -> { @connection })
    end

    def begin = @worker.run

    def channel = @worker.queue.channel

    # Kicks waits for its handlers without a limit.
    def stop(seconds)
      channel&.work_pool&.instance_variable_set(:@shutdown_timeout, 1) # see OverBunny
      Carriers.leave { @worker.stop if seconds >= 1 && @connection.open? && @worker.queue.channel.open? }
      Carriers.leave { @connection.close }
    end
  end

  ALL = {
    "run" => Run, "serve" => Serve, "bunny-subscribe" => Subscribe, "bunny-wrap" => Wrap, "kicks" => OfKicks
  }.freeze

  # Returns why a carrier cannot be played here; nil if it can.
  def self.missing(name)
    return "built without librabbitmq" if ALL[name] <= Run && !Backhop.build_info.worker?

    "Kicks is not there" if name == "kicks" && !KICKS.all? { |path| File.directory?(path) }
  end
end
