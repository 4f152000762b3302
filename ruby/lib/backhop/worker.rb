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
  # Under {#run}, Ctrl-C and SIGTERM drain: no more messages are taken, and handlers have `drain` seconds to finish; a second
  # one stops at once. Every worker that runs in the process is told, and then whoever had trapped the signal before. A
  # message that is not settled in time goes back to the queue.
  #
  # Events are logged, and given to on_event.
  #
  # After a fork a worker of the parent refuses to work in the child with a ForkedError: make a new one there.
  class Worker
    MODES = { create: Native::BH_MODE_CREATE, verify: Native::BH_MODE_VERIFY, none: Native::BH_MODE_NONE }.freeze
    DRAIN = (0..Times::HOUR_MS)
    TIMEOUT = (1..Times::HOUR_MS)
    MOST_REPLAYED = (2**53) - 1
    LOOK_AFTER = 1 # seconds: how often events are looked for while every thread has a message
    CLOCK = Time.method(:now)
    PUBLISHED_AGAIN = [Native::BH_EVENT_RETURNED, Native::BH_EVENT_NACKED].freeze
    NOTHING = [WaitTimeoutError.status, StateError.status].freeze
    NO_LIBRABBITMQ = <<~TEXT.tr("\n", " ").strip
      this Backhop was built without librabbitmq, which its Worker needs (Backhop::Bunny and Backhop::Kicks do not): install
      librabbitmq 0.11 or newer, OpenSSL and pkg-config (Debian and Ubuntu: librabbitmq-dev libssl-dev pkg-config, Fedora:
      librabbitmq-devel openssl-devel pkgconf, Homebrew: rabbitmq-c openssl pkgconf), then:
      gem install --platform ruby backhop -- --with-librabbitmq
    TEXT
    private_constant :MODES, :DRAIN, :TIMEOUT, :MOST_REPLAYED, :LOOK_AFTER, :CLOCK, :PUBLISHED_AGAIN, :NOTHING,
                     :NO_LIBRABBITMQ

    extend Values::Keywords

    # @return [Topology] and its policy
    attr_reader :topology

    # @param uri [String, Array<String>] "amqp://user:password@host:port/vhost?heartbeat=seconds", "amqps://" for TLS; or
    #   several, to try in turn
    # @param queue [String] the work queue
    # @param policy [Policy] of the queue; default: Policy.new
    # @param topology [Topology] instead of queue, policy, and what a topology takes
    # @param strategy [Symbol] as Topology's, as are queue_type, namespace, series, stripes, work_queue,
    #   work_queue_arguments
    # @param threads [Integer] how many handlers run at once under {#run}
    # @param prefetch [Integer] messages that the broker sends ahead, and so the most fibers at once under {#serve}; 0
    #   consumes nothing: for a worker that only replays
    # @param never [Class, #call, Array] classes of exceptions that park a message at once; or predicates, which are given
    #   the exception, and say true, false, or after how many seconds it is tried again at the soonest
    # @param only [Class, #call, Array] likewise: what is none of these parks at once
    # @param policies [Hash{Class, #call => Policy}] policies of their own for classes of exceptions, or for predicates that
    #   are given the exception; the first that fits is used, else the policy. One count of attempts serves them all
    # @param mode [Symbol] how to treat the broker's topology at each connect: :create what is missing, :verify that all is
    #   there and change nothing, :none. Rungs that only a handler's RetryAfter can need are made on demand under :create
    #   alone: verifying asks for them too
    # @param ca_file [String, nil] PEM file of the CAs to trust with amqps:// instead of the system's; the peer is always
    #   verified
    # @param connect_timeout [Numeric] seconds for a connection
    # @param confirm_timeout [Numeric] seconds for the broker's confirm of a copy
    # @param back_off [Policy, nil] delays between attempts to connect and to publish; its limits are ignored; default: 100 ms,
    #   doubled up to 10 s, of which the lower half is random
    # @param drain [Numeric] seconds that handlers may take to finish once the worker is told to stop; an hour at most
    # @param on_event [#call, Array<#call>, nil] called with each {Event}, from whichever thread meets it
    # @param retry_events [Boolean] whether each retry is an event too; it is where on_event has what needs it: a tracing, or
    #   metrics that hand on what they count
    # @param fail_fast [Boolean] whether {#run} and {#serve} end with the error where the worker was never ready and that cannot
    #   mend itself: a refused password, vhost or permission, a work queue that is missing, a clash, a certificate that does
    #   not match. A broker that is not up yet is waited for; once the worker was ready, everything is tried again without end
    # @param logger [Logger, nil] default: {Backhop.logger}
    # @param legacy_counter [String, nil] as History's
    # @param wait_queues [Array<String>] as History's
    # @raise [InvalidArgumentError] for what is no value of an option; for Metrics with different error_types
    # @raise [ForeignPolicyError] where the topology that is given does not serve one of the policies
    # @raise [NoLibrabbitmqError] where this Backhop was built without librabbitmq; the text says what to install
    # @raise [URIError] for a URI that cannot be read
    def initialize(uri, queue: nil, policy: nil, topology: nil, strategy: nil, queue_type: nil, namespace: nil, series: nil,
                   stripes: nil, work_queue: nil, work_queue_arguments: nil, threads: 8, prefetch: 100, never: [], only: [],
                   policies: {}, mode: :create, ca_file: nil, connect_timeout: 10, confirm_timeout: 30, back_off: nil,
                   drain: 20, on_event: nil, retry_events: false, fail_fast: true, logger: nil, legacy_counter: nil,
                   wait_queues: [])
      @topology = Topology.of(queue, policy, topology, policies,
                              strategy:, queue_type:, namespace:, series:, stripes:, work_queue:,
                              work_queue_arguments:)
      @threads = Values.integer(threads, "threads", (1..10_000))
      @choice = Choice.new(never, only, policies)
      @drain_ms = Values.time(drain, "drain", DRAIN)
      @logger = logger ? Values.logger(logger, "logger") : Backhop.logger
      @listeners = Listeners.new(@topology.queue, on_event, CLOCK, @logger)
      Values.integer(prefetch, "prefetch", (0..65_535))
      @native = Core.made(Native.bh_worker_new(@topology.policy.native, @topology.native), NO_LIBRABBITMQ,
                          NoLibrabbitmqError)
      @readable = IO.for_fd(@native.fd, autoclose: false)
      @leader = Mutex.new
      @events = Mutex.new
      @taking = Mutex.new
      @replays = Mutex.new
      @replayed = nil # where a replay is awaited: a Queue for its event
      @run = nil # the last
      set_connections(uri, ca_file, connect_timeout, confirm_timeout, back_off)
      check(@native.set_mode(Core.number(MODES, mode, "mode")))
      check(@native.set_prefetch(prefetch))
      @most_failures = prefetch + Native::BH_WORKER_MOST_EVENTS
      @counted = @listeners.leave_to_core
      @counted.each { |metrics| check(@native.set_metrics(metrics.blank)) }
      @tells_retries = Values.truth(retry_events, "retry_events") || @listeners.bridges?
      @failures = @listeners.any? ? {} : nil # errors and spans of messages that failed, by the number of these
      @listeners.attach(self)
      check(@native.set_event(Native::BH_EVENT_RETRIED, @tells_retries ? 1 : 0))
      check(@native.set_fail_fast(Values.truth(fail_fast, "fail_fast") ? 1 : 0))
      check(@native.set_legacy_counter(Values.text(legacy_counter, "legacy_counter"))) if legacy_counter
      Values.texts(wait_queues, "wait_queues").each { |each| check(@native.add_wait_queue(each)) }
    end

    # Handles messages in threads of its own until the worker is stopped and drained: by Ctrl-C, SIGTERM or {#stop}. Other
    # threads, and under a fiber scheduler other fibers, run meanwhile. A handler that exits ends it: what other handlers have
    # in hand is settled, and its own message goes back to the queue.
    #
    # @param handler [#call, nil] or a block
    # @yieldparam message [Message]
    # @return [void]
    # @raise [InvalidArgumentError] for what cannot be called
    # @raise [AccessError, MissingError, ClashError, BrokerError, TLSError] with fail_fast: why the worker can never be ready
    def run(handler = nil, &block)
      handler = Values.callable(handler || block, "the handler")
      Signals.during(self) do
        running do |run|
          @threads.times { |index| start_thread(index, handler, run) }
          take_events until run.wait(LOOK_AFTER)
        end
      end
    end

    # Handles messages in fibers of the current fiber scheduler, up to `prefetch` at once, until the worker is stopped and
    # drained, as {#run}. Signals are the host's: stop it from there.
    #
    # @param handler [#call, nil] or a block
    # @yieldparam message [Message]
    # @return [void]
    # @raise [InvalidArgumentError] for what cannot be called
    # @raise [StateError] where there is no fiber scheduler
    # @raise [AccessError, MissingError, ClashError, BrokerError, TLSError] with fail_fast: why the worker can never be ready
    def serve(handler = nil, &block)
      handler = Values.callable(handler || block, "the handler")
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
    def stop(drain: nil) = Status.check(@native.stop(drain.nil? ? @drain_ms : Values.time(drain, "drain", DRAIN)))

    # Sends parked messages back to the work queue, while the worker runs, and waits for its end: none that is parked after
    # this goes. From any thread but those of the worker's on_event and logger.
    #
    # @param most [Integer, nil] how many at most; nil: all
    # @return [Integer] how many went
    # @raise [StateError] the worker does not run, or a replay is under way already
    # @raise [Error] what ended it; the messages that did not go are parked still
    def replay(most = nil)
      Values.integer(most, "most", (0..MOST_REPLAYED)) unless most.nil?
      return 0 if most&.zero?

      ended = begin_replay(most || MOST_REPLAYED)
      event = ended.pop
      raise StateError, "the worker stopped before its replay ended" unless event
      raise event.error if event.error

      event.count
    end

    # @return [String]
    def inspect = "#<#{self.class} for #{topology.queue.inspect}>"

    # How many copies are not confirmed.
    # @api private
    def pending = @native.copies

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

      def topology = @worker.topology

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
        @lock = Mutex.new
        @busy = 0
        @is_drained = @is_cut = false
        @ended, @ending = IO.pipe # not a ConditionVariable, which an exception breaks under a fiber scheduler
      end

      def drained? = @is_drained

      def drained
        @is_drained = true
        @ending.write(".")
        @ending.close
      end

      # Yields while a handler has a message in hand.
      def handling
        @lock.synchronize { @busy += 1 }
        yield
      ensure
        @lock.synchronize { @busy -= 1 }
      end

      # Whether it failed, and no handler has a message in hand.
      def failed_and_idle? = !failures.empty? && @lock.synchronize { @busy.zero? }

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

    def set_connections(uri, ca_file, connect_timeout, confirm_timeout, back_off)
      uris = Values.texts(uri, "uri")
      raise InvalidArgumentError, "uri is []: give one at least" if uris.empty?

      uris.each { |each| check(@native.add_uri(each)) }
      check(@native.set_ca_file(ca_file.to_s)) if ca_file
      check(@native.set_connect_timeout_ms(Values.time(connect_timeout, "connect_timeout", TIMEOUT)))
      check(@native.set_confirm_timeout_ms(Values.time(confirm_timeout, "confirm_timeout", TIMEOUT)))
      check(@native.set_back_off(Values.object(back_off || Policy.back_off, "back_off", Policy).native))
    end

    # --- Running -------------------------------------------------------------------------------------------------------

    # Yields a Run, and raises its first failure. Where the block does not end by itself, for an exception or as its thread
    # is killed, which is how a process's exit ends threads, the run is stopped at once.
    def running
      run = start
      begin
        yield run
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
          check(@native.set_metrics(@counted.first.blank)) unless @counted.empty?
          check(@native.start)
          @counted.each { |metrics| metrics.join(@native) }
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
        run.handling { handle(handler, message) }
        end_early(run)
      end
      is_over = true
    rescue Exception => e # rubocop:disable Lint/RescueException
      give_up(run, e)
    ensure
      give_up(run, StateError.new("a handler ended its thread")) unless is_over || e
    end

    def schedule(handler, message, run)
      Fiber.schedule do
        run.handling { handle(handler, message) }
        end_early(run)
      rescue Exception => e # rubocop:disable Lint/RescueException
        give_up(run, e)
      end
    end

    # A failure that is no handler's own ends the run.
    def give_up(run, failure)
      run.failures << failure
      return if run.drained? || run.is_cut

      @native.stop(@drain_ms)
      end_early(run)
    end

    # The message of what failed stays unsettled: there is nothing to wait for once no other handler has one.
    def end_early(run)
      @native.stop(0) if run.failed_and_idle? && !run.drained?
    end

    def begin_replay(most)
      @events.synchronize do # before whose event nobody can take it
        raise StateError, "a replay is under way already" if @replayed

        Status.check(@native.replay(most), "the worker does not run, or a replay is under way already", StateError)
        @replayed = Queue.new
      end
    end

    def end_replay(event)
      @replayed&.push(event)
      @replayed = nil
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
          break unless status.zero?

          tell(Event.new(event, *failure_of(event)))
        end
        @listeners.note_pending
      end
    end

    # The error and the span of a message that comes again, or is parked, now.
    def failure_of(native)
      return unless @failures

      what = native.what
      lost = what == Native::BH_EVENT_MISSED || (what == Native::BH_EVENT_DISCONNECTED &&
                                                 native.string(Event.field(:connection)) == "consume")
      @failures.clear if lost
      @failures.delete(native.message) unless PUBLISHED_AGAIN.include?(what)
    end

    def tell(event)
      @listeners.pass(event)
    ensure # whatever on_event does, nobody takes this event again
      end_replay(event) if event.name == :replayed
      end_run(event) if event.name == :drained
    end

    # Where the core gave up, its reason is the run's failure; messages that were not settled in time are none.
    def end_run(event)
      @counted.each { |metrics| metrics.part(@native) }
      @run.failures << event.error unless event.error.nil? || event.error.is_a?(WaitTimeoutError)
      @run.drained
      end_replay(nil)
    end

    # --- Handling ------------------------------------------------------------------------------------------------------

    def handle(handler, message)
      @listeners.tell_message(:delivered, message)
      handler.call(message)
    rescue *Outcomes::FAILURES => e
      result = @choice.result_of(e)
      @listeners.tell_message(Plan::ENDS[result.outcome], message, e, result.error)
      Backhop.log(Logger::DEBUG, @logger) { "#{message.inspect}: #{e.backtrace&.join("\n")}" }
      @native.set_error_class(message.taken, Outcomes.class_name(e)) # of a message that is gone, settling tells so
      @native.set_traceparent(message.taken, message.traceparent) if message.traceparent
      keep(message, e) if @failures && result.outcome != :dropped && (@tells_retries || may_park?(message, result))
      settle(message, result)
    else
      @listeners.tell_message(:succeeded, message)
      settle(message, Outcomes::OK)
    end

    def may_park?(message, result)
      @native.may_park(message.taken, (result.policy || topology.policy).native, Plan.outcome(result.outcome),
                       Times.milliseconds(result.retry_after)) == 1
    end

    # Keeps a failure for the event of what becomes of its message.
    def keep(message, error)
      @failures[message.taken.number] = [error, message.traceparent]
      @failures.shift while @failures.size > @most_failures # the oldest are of events that nobody took
    end

    def settle(message, result)
      status = @native.settle_by(message.taken, (result.policy || topology.policy).native, Plan.outcome(result.outcome),
                                 result.error, Times.milliseconds(result.retry_after))
      return if status.zero?

      @failures&.delete(message.taken.number)
      tell_stale(message, status)
    end

    # It was not settled: the broker delivers it again.
    def tell_stale(message, status)
      @listeners.tell(:stale) do |native|
        Event.set(native, :status, status)
        Event.set(native, :id, id_of(message))
        Status.check(native.set_cause(status == StateError.status ? "" : Status.error(status).message))
      end
    end

    def id_of(message)
      message.id
    rescue Error # it cannot be read
      nil
    end
  end
end
