# frozen_string_literal: true

require "io/wait"

module Backhop
  # Consumes a work queue and calls your handler. Failed messages are retried, and parked after the
  # last attempt.
  #
  # A background thread of the core keeps two connections, reconnects, publishes copies, awaits
  # their confirms and settles messages. So heartbeats go on while a handler runs for an hour.
  #
  #     worker = Backhop::Worker.new(
  #       "amqp://localhost", queue: "cdn-purge", policy: policy, threads: 8
  #     )
  #     worker.run { |message| purge(message.body) }
  #
  # If the handler returns, its message is acknowledged. If it raises, the message is retried; Park
  # and Drop end it instead.
  #
  # Under {#run}, SIGINT and SIGTERM drain: the worker takes no more messages, and the handlers have
  # `drain` seconds to finish. A second signal stops at once. All workers of the process get the
  # signal, and then the trap of before is called. Messages that are not settled in time return to
  # the queue.
  #
  # Events are logged and passed to on_event.
  #
  # After a fork, the parent's worker raises ForkedError in the child. Make a new worker there.
  class Worker
    MODES = Core.numbers("BH_MODE_")
    DRAIN = (0..Times::HOUR_MS)
    TIMEOUT = (1..Times::HOUR_MS)
    MOST_REPLAYED = (2**53) - 1
    LOOK_AFTER = 1 # seconds: how often events are taken while every thread has a message
    CLOCK = Time.method(:now)
    NOTHING = [WaitTimeoutError.status, StateError.status].freeze
    NO_LIBRABBITMQ = <<~TEXT.tr("\n", " ").strip
      this Backhop was built without librabbitmq, which its Worker needs (Backhop::Bunny and Backhop::Kicks do not):
      install librabbitmq 0.11 or newer, OpenSSL and pkg-config (Debian and Ubuntu: librabbitmq-dev libssl-dev
      pkg-config, Fedora: librabbitmq-devel openssl-devel pkgconf, Homebrew: rabbitmq-c openssl pkgconf), then: gem
      install --platform ruby backhop -- --with-librabbitmq
    TEXT
    private_constant :MODES, :DRAIN, :TIMEOUT, :MOST_REPLAYED, :LOOK_AFTER, :CLOCK, :NOTHING, :NO_LIBRABBITMQ

    extend Checks::Keywords

    # @return [Topology] the topology, with its policy
    attr_reader :topology

    # @param uri [String, Array<String>] "amqp://user:password@host:port/vhost?heartbeat=seconds",
    #   or "amqps://" for TLS; several are tried in turn
    # @param queue [String] the work queue, at most 247 bytes
    # @param policy [Policy] the rules for delays and limits; default: Policy.new
    # @param topology [Topology] replaces queue, policy and the other options of a topology
    # @param strategy [Symbol] see {Topology#initialize}; likewise queue_type, namespace, series,
    #   stripes, work_queue and work_queue_arguments
    # @param threads [Integer] number of handlers that run at once under {#run}, 1 to 10,000
    # @param prefetch [Integer] number of messages that the broker sends ahead, 0 to 65535; also the
    #   most fibers at once under {#serve}. 0 consumes nothing: use it to only replay
    # @param never [Class, #call, Array] classes of exceptions that park a message at once, or
    #   predicates. A predicate gets the exception and returns true (park), false, or the shortest
    #   delay in seconds (retry)
    # @param only [Class, #call, Array] classes or predicates likewise; an exception that matches
    #   none of them parks at once
    # @param policies [Hash{Class, #call => Policy}] policies by class of exception or predicate.
    #   The first match applies, else the queue's policy. All policies share one count of attempts
    # @param mode [Symbol] the effect of each connect on the topology: :create missing parts,
    #   :verify all parts, or :none. Rungs that only a RetryAfter can need are declared on demand
    #   with :create; :verify requires them
    # @param ca_file [String, Pathname, nil] PEM file of the CAs to trust with amqps://; default:
    #   the system's. The peer is always verified
    # @param cert [String, Pathname, nil] PEM file of a client certificate and its chain, for
    #   amqps://. If the URI has no user, RabbitMQ reads the user from the certificate (SASL
    #   EXTERNAL)
    # @param key [String, Pathname, nil] PEM file of its private key, without a passphrase; default:
    #   the file of the certificate
    # @param connect_timeout [Numeric] seconds to connect, 0.001 to 3600
    # @param confirm_timeout [Numeric] seconds to wait for the confirm of a copy, 0.001 to 3600
    # @param back_off [Policy, nil] delays between attempts to connect and to publish; its limits
    #   are ignored. Default: 100 ms, doubled up to 10 s, the lower half random
    # @param drain [Numeric] seconds for handlers to finish after a stop, 0 to 3600
    # @param timeout [Numeric, String, nil] seconds for a handler, 0.001 to 86,400; nil: no limit.
    #   Under {#serve} with Async, {TimeoutError} is raised in the handler at the limit. A handler
    #   in a thread is not aborted: its attempt fails when it returns
    # @param breaker [Breaker, nil] the circuit breaker of the downstream that the handlers call
    # @param on_event [#call, Array<#call>, nil] called with each {Event}, in the thread that emits
    #   it
    # @param retry_events [Boolean] whether each retry is an event. A listener that needs these
    #   events, such as a tracing, implies it
    # @param fail_fast [Boolean] whether {#run} and {#serve} raise if the first start cannot
    #   succeed: refused password, vhost or permission; missing work queue; queue with other
    #   arguments; certificate that does not match. A broker that is not reachable yet never raises.
    #   After the worker was ready once, it retries all errors
    # @param logger [Logger, nil] default: {Backhop.logger}
    # @param legacy_counter [String, nil] see {History#initialize}; likewise wait_queues
    # @raise [InvalidArgumentError] if an option has a wrong value, or Metrics have different
    #   error_types
    # @raise [ForeignPolicyError] if the given topology does not serve one of the policies
    # @raise [StrategyError] if the strategy cannot serve the policy, or a breaker by key
    # @raise [NoLibrabbitmqError] if this Backhop was built without librabbitmq; the text says what
    #   to install
    # @raise [URIError] if a URI is malformed
    def initialize(uri, queue: nil, policy: nil, topology: nil, strategy: nil, queue_type: nil, namespace: nil,
                   series: nil, stripes: nil, work_queue: nil, work_queue_arguments: nil, threads: 8, prefetch: 100,
                   never: [], only: [], policies: {}, mode: :create, ca_file: nil, cert: nil, key: nil,
                   connect_timeout: 10, confirm_timeout: 30, back_off: nil, drain: 20, timeout: nil, breaker: nil,
                   on_event: nil, retry_events: false, fail_fast: true, logger: nil, legacy_counter: nil,
                   wait_queues: [])
      @topology = Topology.of(queue, policy, topology, policies,
                              strategy:, queue_type:, namespace:, series:, stripes:, work_queue:,
                              work_queue_arguments:)
      @threads = Checks.integer(threads, "threads", (1..10_000))
      @breaker = Breaker.of(breaker, @topology)
      rules = FailureRules.new(never, only, policies)
      limit = HandlerLimit.new(timeout)
      @drain_ms = Checks.time(drain, "drain", DRAIN)
      @logger = logger ? Checks.logger(logger, "logger") : Backhop.logger
      @listeners = Listeners.new(@topology.queue, on_event, CLOCK, @logger)
      Checks.integer(prefetch, "prefetch", (0..65_535))
      @native = Core.made(Native.bh_worker_new(@topology.policy.native, @topology.native), NO_LIBRABBITMQ,
                          NoLibrabbitmqError)
      @readable = nil # while it runs: the core's descriptor
      @leader = Mutex.new
      @events = Mutex.new
      @taking = Mutex.new
      @replays = Mutex.new
      @changing = Mutex.new
      @changed = ConditionVariable.new # each event
      @replayed = nil # during a replay: a Queue for its event
      @run = nil # the last one
      add_uris(uri)
      @counted = @listeners.leave_to_core
      @counted.each { |metrics| check(@native.set_metrics(metrics.blank)) }
      is_each_retry = Checks.truth(retry_events, "retry_events") || @listeners.retry_listener?
      @handling = Handling.new(@native, @topology, rules, limit, @listeners, @logger,
                               is_each_retry: is_each_retry, most_failures: prefetch + Native::BH_WORKER_MOST_EVENTS,
                               breaker: @breaker)
      @listeners.attach(self)
      check(@native.set(Core.number(MODES, mode, "mode"), prefetch, *timeouts(connect_timeout, confirm_timeout),
                        limit.ms, Checks.object(back_off || Policy.back_off, "back_off", Policy).native,
                        History.reader(legacy_counter, Checks.texts(wait_queues, "wait_queues")),
                        *paths(ca_file:, cert:, key:), @breaker&.by_key? ? nil : @breaker&.native,
                        Checks.truth(fail_fast, "fail_fast") ? 1 : 0, is_each_retry ? 1 : 0))
    end

    # Calls the handler in threads until the worker is stopped and drained, by SIGINT, SIGTERM or
    # {#stop}. Other threads, and with a fiber scheduler other fibers, run meanwhile.
    #
    # A handler that raises SystemExit, Interrupt or another SignalException ends the run, and `run`
    # raises the exception. Messages in hand of other handlers are settled, and its own message
    # returns to the queue. A handler that ends its thread has failed, and a new thread takes its
    # place.
    #
    # @param handler [#call, nil] the handler, unless you give a block
    # @yieldparam message [Message]
    # @return [void]
    # @raise [InvalidArgumentError] if the handler has no method call
    # @raise [StateError] if the worker runs already
    # @raise [AccessError, MissingError, ClashError, BrokerError, TLSError] with fail_fast: why the
    #   first start cannot succeed
    def run(handler = nil, &block)
      handler = Checks.callable(handler || block, "the handler")
      Signals.during(self) do
        running do |run|
          @threads.times { |index| start_thread(index, handler, run) }
          take_events until run.wait(LOOK_AFTER)
        end
      end
    end

    # Calls the handler in fibers of the current fiber scheduler, at most `prefetch` at once, until
    # the worker is stopped and drained. It traps no signals: call {#stop} from your own trap.
    #
    # @param handler [#call, nil] the handler, unless you give a block
    # @yieldparam message [Message]
    # @return [void]
    # @raise [InvalidArgumentError] if the handler has no method call
    # @raise [StateError] if there is no fiber scheduler, or the worker runs already
    # @raise [AccessError, MissingError, ClashError, BrokerError, TLSError] with fail_fast: why the
    #   first start cannot succeed
    def serve(handler = nil, &block)
      handler = Checks.callable(handler || block, "the handler")
      raise StateError, "serve needs a fiber scheduler; without one, there is run" unless Fiber.current_scheduler

      running do |run|
        until run.drained?
          while (message = take(run))
            schedule(handler, message, run)
          end
          look(run)
        end
        run.abort # the handlers that are not done at the limit
      end
    end

    # Stops the worker: it takes no more messages, and drains. You can call it from any thread, a
    # handler or a signal's trap. Another call sets the time limit again. If you call it before the
    # first run, that run drains at once. After the worker drained, a call has no effect on the next
    # run.
    #
    # @param drain [Numeric, nil] seconds for handlers to finish, 0 to 3600; default: the worker's
    #   drain
    # @return [void]
    # @raise [InvalidArgumentError] if drain is outside its range
    def stop(drain: nil) = Status.check(@native.stop(drain.nil? ? @drain_ms : Checks.time(drain, "drain", DRAIN)))

    # Sets user and password for a secret that changes. Call it at any time, from any thread. All
    # URIs have them from the next login on. An open connection stays. If the broker refuses
    # the login, the worker tries again, with its back-off.
    #
    # @param user [String] as it is, without percent-escapes
    # @param password [String] as it is. RabbitMQ takes an OAuth 2 token as the password
    # @return [void]
    # @raise [InvalidArgumentError] if one is no String or has a zero byte, or the user is empty
    def set_credentials(user, password)
      raise InvalidArgumentError, "password is no text: give a String" unless password.is_a?(String) # not shown

      status = @native.set_credentials(Checks.text(user, "user"), password)
      Status.check(status, "give a user, and no zero byte in user or password")
    end

    # Moves parked messages back to their work queue, while the worker runs, and waits for the end.
    # It moves the messages that were parked when it began. Do not call it in on_event or the
    # logger.
    #
    # @param most [Integer, nil] the most messages to move; nil: all
    # @return [Integer] the number of moved messages
    # @raise [StateError] if the worker does not run, or another replay runs
    # @raise [Error] what ended the replay; the other messages are still parked
    def replay(most = nil)
      Checks.integer(most, "most", (0..MOST_REPLAYED)) unless most.nil?
      return 0 if most&.zero?

      ended = begin_replay(most || MOST_REPLAYED)
      event = ended.pop
      raise StateError, "the worker stopped before its replay ended" unless event
      raise event.error if event.error

      event.count
    end

    # Waits until the worker consumes. Call it while {#run} or {#serve} runs, or is about to.
    #
    # @param timeout [Numeric, String, nil] the limit: seconds, or "20s"; nil: no limit
    # @return [self]
    # @raise [WaitTimeoutError] the worker is not ready in that time; the text has the state and its
    #   reason
    # @raise [AccessError, MissingError, ClashError, BrokerError, TLSError] with fail_fast: why the
    #   first start cannot succeed
    # @raise [StateError] the worker has stopped
    # @raise [InvalidArgumentError] the timeout is no time or negative
    def ready(timeout = nil)
      deadline_ms = Deadline.after(timeout)
      @changing.synchronize do
        until (health = self.health).state == :ready
          raise @run.failures.first || health.over if @run&.drained?

          remaining = Deadline.remaining(deadline_ms)
          raise health.late(timeout) if remaining&.zero?

          @changed.wait(@changing, remaining)
        end
      end
      self
    end

    # @return [Symbol] :starting, :ready, :reconnecting, :paused (the broker blocks the connection,
    #   or the breaker is not closed) or :stopped
    def state = health.state

    # @return [String, nil] the text of the event that led to the state
    def state_reason = health.reason

    # @return [String]
    def inspect = "#<#{self.class} for #{topology.queue.inspect}>"

    # Returns the number of copies that are not confirmed.
    # @api private
    def pending = @native.copies

    # Returns whether it is ready, as {Retrier#readiness}.
    # @api private
    def readiness = [state == :ready]

    # Returns what the core read of a message.
    # @api private
    def read(taken)
      delivery = Delivery.of(Core.made(Native.bh_delivery_new))
      history = History.of(Core.made(Native.bh_history_new), delivery)
      Status.check(@native.read(taken, delivery.native, history.native))
      history
    end

    private

    def health = Health.new(is_worker: true).tap { |health| @native.state(health.native) }

    def check(status) = Status.check(status, @native.error)

    def paths(**given) = given.map { |name, path| path.nil? ? "" : Checks.path(path, name.to_s) }

    def timeouts(connect, confirm)
      [Checks.time(connect, "connect_timeout", TIMEOUT), Checks.time(confirm, "confirm_timeout", TIMEOUT)]
    end

    def add_uris(uri)
      uris = Checks.texts(uri, "uri")
      raise InvalidArgumentError, "uri is []: give one at least" if uris.empty?

      uris.each { |each| check(@native.add_uri(each)) }
    end

    # --- Running ----------------------------------------------------------------------------------

    # Yields a Run, and raises its first failure. If an exception ends the block, or its thread is
    # killed as at the exit of the process, the run is stopped at once.
    def running
      run = start
      begin
        yield run
      ensure
        cut(run) unless run.drained?
        close(run) if run.drained?
      end
      raise run.failures.first unless run.failures.empty?
    end

    # Starts the core. The locks keep other threads from taking its events and messages before the
    # new Run is set.
    def start
      @events.synchronize do
        @taking.synchronize do
          check(@native.set_metrics(@counted.first.blank)) unless @counted.empty?
          check(@native.start)
          @readable = IO.for_fd(@native.fd, autoclose: false)
          @counted.each { |metrics| metrics.join(@native) }
          @run = Run.new
        end
      end
    end

    # Closes the descriptors of a run that has drained. The lock keeps them from a thread that
    # waits. At the exit of the process Ruby kills all threads. A thread that is killed while it
    # waits for a Mutex can leave the next thread asleep, so this does not wait in the Mutex.
    def close(run)
      run.close
      sleep(0.005) until @leader.try_lock
      begin
        @native.close_fd
      ensure
        @leader.unlock
      end
    end

    def cut(run)
      is_ours = @native.stop(@drain_ms).zero? # false in a forked child
      run.abort # aborted handlers settle before the core stops
      @native.stop(0) if is_ours
      look(run) until run.drained? || !is_ours
    end

    def start_thread(index, handler, run)
      Thread.new { work(index, handler, run) }.name = "backhop-#{topology.queue}-#{index + 1}"
    end

    def work(index, handler, run)
      while (message = take(run) || wait(run))
        run.handling { @handling.call(handler, message) { false } }
        end_early(run)
      end
      is_over = true
    rescue Exception => e # rubocop:disable Lint/RescueException
      give_up(run, e)
    ensure
      replace_thread(index, handler, run) unless is_over || e || HandlerCall.exiting?
    end

    # Starts a thread in place of the current one, which a handler ended.
    def replace_thread(index, handler, run)
      end_early(run)
      start_thread(index, handler, run) unless run.drained? || run.cut?
    end

    def schedule(handler, message, run)
      Fiber.schedule do
        run.handling { @handling.call(handler, message) { run.cut? } }
        end_early(run)
      rescue Exception => e # rubocop:disable Lint/RescueException
        give_up(run, e)
      end
    end

    # Ends the run because of an exception that is not a handler's failure.
    def give_up(run, failure)
      run.failures << failure
      return if run.drained? || run.cut?

      @native.stop(@drain_ms)
      end_early(run)
    end

    # Stops at once if the run failed and no other handler has a message. The message of the failed
    # thread stays unsettled.
    def end_early(run)
      @native.stop(0) if run.failed_and_idle? && !run.drained?
    end

    def begin_replay(most)
      @events.synchronize do # no other thread can take the event before @replayed is set
        raise StateError, "a replay runs already" if @replayed

        Status.check(@native.replay(most), "the worker does not run, or a replay runs already", StateError)
        @replayed = Queue.new
      end
    end

    def end_replay(event)
      @replayed&.push(event)
      @replayed = nil
    end

    # --- Taking -----------------------------------------------------------------------------------

    # Returns a message of this run; nil if there is none now.
    def take(run)
      status, taken = @taking.synchronize { run.drained? ? NOTHING.first : @native.take }
      return TakenMessage.new(self, taken) if status.zero?

      raise Status.error(status) unless NOTHING.include?(status)
    end

    # Waits for a message; nil once the run has drained. Only one thread at a time waits for the
    # core.
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

    # Takes all events, then waits for another event or message. Another thread may have taken the
    # last event.
    def look(run)
      take_events
      @readable.wait_readable(LOOK_AFTER) unless run.drained?
    end

    def take_events
      @events.synchronize do
        loop do
          status, event = @native.take_event
          break unless status.zero?

          emit(Event.new(event, *@handling.failure_of(event)))
        end
        @listeners.note_gauges
      end
    end

    def emit(event)
      @listeners.emit_event(event)
    ensure # also if on_event raises: the core returns an event only once
      end_replay(event) if event.name == :replayed
      end_run(event) if event.name == :drained
      @changing.synchronize { @changed.broadcast }
    end

    # Ends the run. The core's error is its failure, unless only messages were not settled in time.
    def end_run(event)
      @counted.each { |metrics| metrics.part(@native) }
      @run.failures << event.error unless event.error.nil? || event.error.is_a?(WaitTimeoutError)
      @run.drained
      end_replay(nil)
    end

    # A message that a worker took. The body and the headers are read at the first access.
    # @api private
    class TakenMessage < Message
      # @return [Native::Message]
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
    private_constant :TakenMessage
  end
end
