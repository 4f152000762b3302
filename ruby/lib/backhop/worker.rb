# frozen_string_literal: true

require "io/wait"

module Backhop
  # Consumes a queue and handles its messages; what fails comes back later, and is parked after its last attempt.
  #
  # The core's background thread keeps two connections, makes them again where they are lost, publishes copies, awaits their
  # confirms and acknowledges: heartbeats go on while a handler runs for an hour.
  #
  #     worker = Backhop::Worker.new("amqp://localhost", queue: "cdn-purge", policy: policy, threads: 8)
  #     worker.run { |message| purge(message.body) }
  #
  # A handler that returns acknowledges its message; one that raises sees it again later, unless it raises Park or Drop.
  # Ctrl-C and SIGTERM drain: no more messages are taken, and handlers have `drain` seconds to finish. A message that they
  # do not settle in time goes back to the queue.
  #
  # Events are logged, and given to on_event: connected, failed, disconnected, blocked, unblocked, cancelled, returned,
  # nacked, unconfirmed, refused, retried, parked, stale, replayed, missed, drained.
  #
  # After a fork a worker of the parent refuses to work in the child with a ForkedError: make a new one there.
  class Worker
    MODES = { create: Native::BH_MODE_CREATE, verify: Native::BH_MODE_VERIFY, none: Native::BH_MODE_NONE }.freeze
    LONGEST_DRAIN = 3600
    LOOK_AFTER = 1 # seconds: how often events are looked for while every thread has a message
    SIGNALS = %w[INT TERM].freeze
    NOTHING = [WaitTimeoutError.status, StateError.status].freeze
    NO_LIBRABBITMQ = <<~TEXT.tr("\n", " ").strip
      this Backhop was built without librabbitmq, which its Worker needs (Backhop::Bunny and Backhop::Kicks do not): install
      librabbitmq 0.11 or newer, OpenSSL and pkg-config (Debian and Ubuntu: librabbitmq-dev libssl-dev pkg-config, Fedora:
      librabbitmq-devel openssl-devel pkgconf, Homebrew: rabbitmq-c openssl pkgconf), then:
      gem install --platform ruby backhop -- --with-librabbitmq
    TEXT
    private_constant :MODES, :LONGEST_DRAIN, :LOOK_AFTER, :SIGNALS, :NOTHING, :NO_LIBRABBITMQ

    # @return [Topology] and its policy
    attr_reader :topology

    # @param uri [String, Array<String>] "amqp://user:password@host:port/vhost?heartbeat=seconds", "amqps://" for TLS; or
    #   several, to try in turn
    # @param queue [String] the work queue, which has to be there; or give a topology, to choose a strategy or to declare it
    #   too
    # @param policy [Policy] of the queue; default: Policy.new
    # @param topology [Topology] instead of queue and policy
    # @param threads [Integer] how many handlers run at once under {#run}
    # @param prefetch [Integer] messages that the broker sends ahead, and so the most fibers at once under {#serve}; 0
    #   consumes nothing: for a worker that only replays
    # @param never [Array<Module>] classes of exceptions that park a message at once
    # @param mode [Symbol] how to treat the broker's topology at each connect: :create what is missing, :verify that all is
    #   there and change nothing, :none. Rungs that only a handler's RetryAfter can need are made on demand under :create
    #   alone: verifying asks for them too
    # @param ca_file [String, nil] PEM file of the CAs to trust with amqps:// instead of the system's; the peer is always
    #   verified
    # @param connect_timeout [Numeric] seconds for a connection
    # @param confirm_timeout [Numeric] seconds for the broker's confirm of a copy
    # @param back_off [Policy, nil] delays between attempts to connect and to publish; its limits are ignored; default: 100 ms,
    #   doubled up to 10 s
    # @param drain [Numeric] seconds that handlers may take to finish once the worker is told to stop; an hour at most
    # @param on_event [#call, nil] called with each {Event}, from whichever thread meets it
    # @param retry_events [Boolean] whether each retry is an event too
    # @param logger [Logger] default: {Backhop.logger}
    # @param legacy_counter [String, nil] as History's
    # @param wait_queues [Array<String>] as History's
    # @raise [NoLibrabbitmqError] where this Backhop was built without librabbitmq; the text says what to install
    # @raise [URIError] for a URI that cannot be read
    def initialize(uri, queue: nil, policy: nil, topology: nil, threads: 8, prefetch: 100, never: [], mode: :create,
                   ca_file: nil, connect_timeout: 10, confirm_timeout: 30, back_off: nil, drain: 20, on_event: nil,
                   retry_events: false, logger: Backhop.logger, legacy_counter: nil, wait_queues: [])
      raise ::ArgumentError, "give a queue and its policy, or a topology" if topology.nil? == queue.nil?
      raise ::ArgumentError, "a topology has its policy: give no other" if topology && policy
      raise ::ArgumentError, "threads is #{threads}: give 1 or more" if threads < 1
      raise ::ArgumentError, "drain is #{drain}: give an hour at most" if Times.milliseconds(drain) > LONGEST_DRAIN * 1000

      @topology = topology || Topology.new(queue, policy: policy || Policy.new)
      @threads = threads
      @never = Outcomes.parking(never)
      @drain = drain
      @on_event = on_event
      @logger = logger
      @native = Core.made(Native.bh_worker_new(@topology.policy.native, @topology.native), NO_LIBRABBITMQ,
                          NoLibrabbitmqError)
      @readable = IO.for_fd(@native.fd, autoclose: false)
      @leader = Mutex.new
      @events = Mutex.new
      @taking = Mutex.new
      @run = nil # the last
      set_connections(Array(uri), ca_file, connect_timeout, confirm_timeout, back_off)
      check(@native.set_mode(Core.number(MODES, mode, "mode")))
      check(@native.set_prefetch(prefetch))
      check(@native.set_retry_events(retry_events ? 1 : 0))
      check(@native.set_legacy_counter(legacy_counter)) if legacy_counter
      Array(wait_queues).each { |each| check(@native.add_wait_queue(each)) }
    end

    # Handles messages in threads of its own until the worker is stopped and drained: by Ctrl-C, SIGTERM or {#stop}. Other
    # threads, and under a fiber scheduler other fibers, run meanwhile.
    #
    # @yieldparam message [Message]
    # @return [void]
    def run(&handler)
      raise ::ArgumentError, "give run a block, which handles a message" unless handler

      running do |run|
        @threads.times { |index| start_thread(index, handler, run) }
        take_events until run.wait(LOOK_AFTER)
      end
    end

    # Handles messages in fibers of the current fiber scheduler, up to `prefetch` at once, until the worker is stopped and
    # drained, as {#run}.
    #
    # @yieldparam message [Message]
    # @return [void]
    # @raise [StateError] where there is no fiber scheduler
    def serve(&handler)
      raise ::ArgumentError, "give serve a block, which handles a message" unless handler
      raise StateError, "serve needs a fiber scheduler; without one, there is run" unless Fiber.current_scheduler

      running do |run|
        until run.drained?
          while (message = take(run))
            schedule(handler, message, run)
          end
          look(run)
        end
      end
    end

    # Stops, draining; from any thread, a handler or a signal's trap. Stopping again sets the limit anew.
    #
    # @param drain [Numeric, nil] seconds that handlers may take to finish; default: the worker's
    # @return [void]
    def stop(drain: nil) = Status.check(@native.stop(Times.milliseconds(drain || @drain)))

    # Sends parked messages back to the work queue, while the worker runs: up to `most`, and none that is parked after this.
    # The event :replayed tells how many went.
    #
    # @param most [Integer]
    # @return [void]
    def replay(most)
      Status.check(@native.replay(most), "the worker does not run, or a replay is under way already", StateError)
    end

    # @return [String]
    def inspect = "#<#{self.class} for #{topology.queue.inspect}>"

    # What the core read of a message.
    # @api private
    def read(taken)
      delivery = Delivery.of(Core.made(Native.bh_delivery_new))
      history = History.of(Core.made(Native.bh_history_new), delivery)
      Status.check(@native.read(taken, delivery.native, history.native))
      history
    end

    # A message that a worker took: what is not asked for is not read.
    # @api private
    class Taken < Message
      attr_reader :taken

      def initialize(worker, taken) # rubocop:disable Lint/MissingSuper
        @worker = worker
        @taken = taken
      end

      def body = @body ||= @taken.body

      def redelivered? = @taken.redelivered == 1

      def history = @history ||= @worker.read(@taken)
    end

    # What the threads of one run share; one whose handler takes longer outlives it, and has no part in the next.
    # @api private
    class Run
      # @return [Array<Exception>] failures that are no handler's own
      attr_reader :failures
      # Whether it ends without waiting for its handlers.
      attr_accessor :is_cut

      def initialize
        @failures = []
        @is_drained = @is_cut = false
        @ended, @ending = IO.pipe # not a ConditionVariable, which an exception breaks under a fiber scheduler
      end

      def drained? = @is_drained

      def drained
        @is_drained = true
        @ending.write(".")
        @ending.close
      end

      # Whether it has drained, after so many seconds at most.
      def wait(seconds) = @ended.wait_readable(seconds)

      def close
        @ended.read(1) # whoever writes it may be about to
        @ended.close
      end
    end
    private_constant :Taken, :Run

    private

    def check(status) = Status.check(status, @native.error)

    def set_connections(uris, ca_file, connect_timeout, confirm_timeout, back_off)
      uris.each { |uri| check(@native.add_uri(uri)) }
      check(@native.set_ca_file(ca_file.to_s)) if ca_file
      check(@native.set_connect_timeout_ms(Times.milliseconds(connect_timeout)))
      check(@native.set_confirm_timeout_ms(Times.milliseconds(confirm_timeout)))
      check(@native.set_back_off(back_off.native)) if back_off
    end

    # --- Running -------------------------------------------------------------------------------------------------------

    # Yields a Run, and raises its first failure. Where the block does not end by itself, for an exception or as its thread
    # is killed, which is how a process's exit ends threads, the run is stopped at once.
    def running
      run = start
      begin
        trapping { yield run }
      ensure
        cut(run) unless run.drained?
        run.close if run.drained?
      end
      raise run.failures.first unless run.failures.empty?
    end

    # No event is told, and no message taken, between the core's start and the new Run.
    def start
      @events.synchronize do
        @taking.synchronize do
          check(@native.start)
          @run = Run.new
        end
      end
    end

    def cut(run)
      run.is_cut = true
      is_ours = @native.stop(0).zero? # not in a child that was forked meanwhile
      look(run) until run.drained? || !is_ours
    end

    def start_thread(index, handler, run)
      Thread.new { work(handler, run) }.name = "backhop-#{topology.queue}-#{index + 1}"
    end

    def work(handler, run)
      while (message = take(run) || wait(run))
        handle(handler, message)
      end
      is_over = true
    rescue Exception => e # rubocop:disable Lint/RescueException
      give_up(run, e)
    ensure
      give_up(run, StateError.new("a handler ended its thread")) unless is_over || e
    end

    def schedule(handler, message, run)
      Fiber.schedule do
        handle(handler, message)
      rescue Exception => e # rubocop:disable Lint/RescueException
        give_up(run, e)
      end
    end

    # A failure that is no handler's own ends the run.
    def give_up(run, failure)
      run.failures << failure
      @native.stop(Times.milliseconds(@drain)) unless run.drained? || run.is_cut
    end

    # --- Taking --------------------------------------------------------------------------------------------------------

    # A message of this run, if there is one.
    def take(run)
      status, taken = @taking.synchronize { run.drained? ? NOTHING.first : @native.take }
      return Taken.new(self, taken) if status.zero?

      raise Status.error(status) unless NOTHING.include?(status)
    end

    # The next message; one thread waits for all. Nil once the run has drained.
    def wait(run)
      @leader.synchronize do
        until run.drained?
          message = take(run)
          return message if message

          look(run)
        end
      end
      nil
    end

    # Takes the events that there are, and waits for more, or for a message; another thread may take the last event.
    def look(run)
      take_events
      @readable.wait_readable(LOOK_AFTER) unless run.drained?
    end

    def take_events
      @events.synchronize do
        loop do
          status, event = @native.take_event
          return unless status.zero?

          tell(Event.of(event))
        end
      end
    end

    def tell(event)
      @logger.add(event.level) { event.to_s }
      @on_event&.call(event)
    rescue *Outcomes::FAILURES => e
      @logger.error { "on_event failed at #{event.name}: #{Outcomes.text(e)}" }
    ensure
      @run.drained if event.name == :drained # whatever on_event does, nobody takes this event again
    end

    # --- Handling ------------------------------------------------------------------------------------------------------

    def handle(handler, message)
      handler.call(message)
    rescue *Outcomes::FAILURES => e
      result = Outcomes.result_of(e, @never)
      @logger.info { "#{message.id}: attempt #{message.attempt} #{result.outcome}: #{result.error}" }
      @logger.debug { "#{message.id}: #{e.backtrace&.join("\n")}" }
      settle(message, result)
    else
      settle(message, Outcomes::OK)
    end

    def settle(message, result)
      status = @native.settle(message.taken, Plan.outcome(result.outcome), result.error,
                              Times.milliseconds(result.retry_after))
      @logger.warn { "#{message.id} comes again: #{Status.error(status).message}" } unless status.zero?
    end

    # --- Signals -------------------------------------------------------------------------------------------------------

    # In the main thread, INT and TERM drain; once more, they stop at once.
    def trapping
      return yield unless Thread.current == Thread.main

      before = {}
      is_asked = false
      SIGNALS.each do |signal|
        before[signal] = Signal.trap(signal) do
          stop(drain: is_asked ? 0 : nil)
          is_asked = true
        rescue ForkedError # a child that has this trap from its parent
          Signal.trap(signal, before[signal] || "SYSTEM_DEFAULT")
          Process.kill(signal, Process.pid)
        end
      end
      begin
        yield
      ensure
        before.each { |signal, handler| Signal.trap(signal, handler || "SYSTEM_DEFAULT") }
      end
    end
  end
end
