# frozen_string_literal: true

require "json"
require "securerandom"
require "socket"
require "stringio"
require "uri"

require "backhop/bunny"
require "backhop/kicks"

URL = ENV.fetch("AMQP_URL", "").chomp("/")
VERSION = ENV.fetch("BACKHOP_BROKER_VERSION", "4.3").split(".").map(&:to_i)
NEEDS_BROKER = ("AMQP_URL is not set: tests/broker/broker run 4.3 -- ..." if URL.empty?)
# Bunny's patience: if it gives up at a recovery, as for a queue without a leader, a consumer is
# lost for good. Half the patience for an answer, as a recovery does not begin before one that is
# lost with its connection is given up.
PATIENT = { continuation_timeout: PATIENCE * 500, write_timeout: PATIENCE, logger: Logger.new(IO::NULL) }.freeze
QUICK = Backhop::Policy.new(initial: 0.1, jitter: :none, max: 0.2, max_attempts: 3, max_retry_after: 0)

# Waits for conditions.
module Patience
  module_function

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

  def until_true(patience = PATIENCE)
    deadline = now + patience
    until (result = yield)
      raise "it did not come true" if now > deadline

      sleep 0.01
    end
    result
  end
end

# A broker to declare at, to publish to, and to look into.
class Broker
  include Patience

  attr_reader :channel

  def initialize(url = URL)
    @url = url
    @queues = []
    connect
  end

  # Connects, for the first time or again.
  def connect
    @connection = Bunny.new(@url, automatically_recover: false, session_error_handler: nobody, **PATIENT)
    @connection.start
    @channel = @connection.create_channel
  end

  def queue(arguments = { "x-queue-type" => "classic" }, name: "test-#{SecureRandom.hex}")
    @channel.queue_declare(name, durable: true, arguments: arguments)
    @queues += [name, "#{name}.parked"]
    name
  end

  def publish(body, routing_key, exchange: "", headers: {}, **properties)
    frames = AMQ::Protocol::Basic::Publish.encode(
      @channel.id, body.b, { headers: headers, **properties }, exchange, routing_key, false, false, 131_072
    )
    @connection.send_frameset(frames, @channel)
  end

  # Publishes a message until the broker takes it. It refuses some (basic.nack) while it makes a
  # quorum queue of the name of one that was deleted a moment before.
  def insist(body, queue)
    channel = @connection.create_channel
    channel.confirm_select
    until_true do
      channel.basic_publish(body, "", queue)
      channel.wait_for_confirms
    end
    channel.close
  end

  # Publishes a message with a header of so many tables, each in another, which amq-protocol could
  # not encode.
  def publish_deep(body, queue, levels)
    table = levels.times.reduce("".b) { |inner, _| "\x01aF".b + [inner.bytesize].pack("N") + inner }
    header = "\x04deepF".b + [table.bytesize].pack("N") + table
    properties = [60, 0, body.bytesize, 1 << 13, header.bytesize].pack("nnQ>nN") + header
    frames = AMQ::Protocol::Basic::Publish.encode(@channel.id, body.b, { type: "" }, "", queue, false, false, 131_072)
                                          .map(&:encode)
    frames[1] = AMQ::Protocol::Frame.encode(:headers, properties, @channel.id)
    @connection.transport.write(frames.join)
  end

  # Counts the messages that are ready; nil if the queue is missing. A busy broker may report 0 for
  # a quorum queue.
  def count(queue)
    @channel.queue_declare(queue, passive: true).message_count
  rescue Bunny::NotFound
    closed = @channel
    until_true { !@connection.find_channel(closed.id).equal?(closed) }
    @channel = @connection.create_channel
    nil
  end

  # Waits until a queue has this number of ready messages.
  def await_count(queue, number) = until_true { count(queue) == number }

  # The next message of a queue, once it is there: delivery_info, properties, body.
  def get(queue)
    until_true { (count(queue) || 0).positive? && (got = take(queue)) && got }
  end

  def bodies(queue, count) = Array.new(count) { get(queue).last }

  # The bodies of all that a queue has.
  def all(queue) = Enumerator.produce { take(queue) }.take_while(&:itself).map(&:last)

  def close
    delete_all(@queues)
    @connection.close
  end

  def delete(topology)
    names = topology.declarations.group_by(&:what).transform_values { |all| all.map(&:name) }
    delete_all(names.fetch(:queue, []), names.fetch(:exchange, []))
  end

  # Deletes queues and exchanges in one write. The broker answers the last one alone: an answer to
  # each took half of the time of many examples.
  def delete_all(queues, exchanges = [])
    frames = queues.map { |name| AMQ::Protocol::Queue::Delete.encode(@channel.id, name, false, false, true) }
    frames += exchanges.map { |name| AMQ::Protocol::Exchange::Delete.encode(@channel.id, name, false, true) }
    return if frames.empty?

    @connection.transport.write(frames.map(&:encode).join)
    @channel.queue_delete("test-the-last-of-them")
  end

  # Controls the broker: tests/broker/README.md lists the requests.
  def control(*arguments)
    system(ENV.fetch("BACKHOP_BROKER_CTL"), *arguments, out: IO::NULL, exception: true)
  end

  # Imports definitions, as an administrator does by `rabbitmqctl import_definitions`. That wants a
  # file that the broker can see.
  def import(definitions)
    control("eval", %(rabbit_definitions:import_raw(base64:decode(<<"#{[definitions].pack("m0")}">>)).))
  end

  # Yields the URL of an empty vhost. Without tests/broker there is only the vhost of AMQP_URL.
  def with_vhost
    return yield(URL) unless ENV["BACKHOP_BROKER_CTL"]

    vhost = "test-#{SecureRandom.hex}"
    user = URI(URL).user
    import(JSON.generate(vhosts: [{ name: vhost }],
                         permissions: [{ user: user, vhost: vhost, configure: ".*", write: ".*", read: ".*" }]))
    begin
      yield "#{URL}/#{vhost}"
    ensure
      control("eval", %(rabbit_vhost:delete(<<"#{vhost}">>, <<"a test">>).))
    end
  end

  # Returns the URL of a new user, who may configure nothing.
  def stranger(user)
    import(JSON.generate(users: [{ name: user, password: "secret", tags: "" }],
                         permissions: [{ user: user, vhost: "/", configure: "^$", write: ".*", read: ".*" }]))
    URL.sub("guest:guest", "#{user}:secret")
  end

  private

  # Bunny reports a lost connection to this thread.
  def nobody = Thread.new { sleep }.tap { |thread| thread.report_on_exception = false }

  def take(queue)
    info, properties, body = @channel.basic_get(queue, manual_ack: false)
    info && [info, properties, body]
  end
end

# A TCP proxy in front of the broker, which holds what the broker says, or cuts the connections.
class Proxy
  BASIC_CONSUME = [60, 20].pack("nn")

  attr_reader :url

  def initialize
    @broker = URI(URL)
    @listener = TCPServer.new("127.0.0.1", 0)
    @url = URL.sub("#{@broker.host}:#{@broker.port}", "127.0.0.1:#{@listener.addr[1]}")
    @gate = Mutex.new
    @opened = ConditionVariable.new
    @is_held = @is_armed = false
    @silent = [] # the broker's ends of connections whose answers are held
    @sockets = []
    @thread = Thread.new { accept }
  end

  # From now on the client receives nothing, while the broker does.
  def hold = @gate.synchronize { @is_held = true }

  # Holds the answers to the next consumer, and all that follows on its connection. Other
  # connections pass.
  def hold_consumer = @is_armed = true

  # Returns true if a consumer waits for its answer.
  def holds_consumer? = @gate.synchronize { @silent.any? }

  def release
    @gate.synchronize do
      @is_held = false
      @silent.clear
      @opened.broadcast
    end
  end

  # Ends all connections; new ones pass.
  def cut
    held = @sockets
    @sockets = []
    held.each(&:close)
    release
  end

  def close
    @listener.close
    cut
    @thread.join
  end

  private

  def accept
    loop do
      client = @listener.accept
      broker = TCPSocket.new(@broker.host, @broker.port)
      @sockets += [client, broker]
      Thread.new { pump(client, broker, false) }
      Thread.new { pump(broker, client, true) }
    end
  rescue IOError, SystemCallError
    nil
  end

  def pump(source, sink, is_held)
    loop do
      data = source.readpartial(65_536)
      is_held ? wait(source) : arm(sink, data)
      sink.write(data)
    end
  rescue IOError, SystemCallError
    shut(sink)
  end

  def wait(broker) = @gate.synchronize { @opened.wait(@gate) while @is_held || @silent.include?(broker) }

  def arm(broker, data)
    return unless @is_armed && data.include?(BASIC_CONSUME)

    @is_armed = false
    @gate.synchronize { @silent << broker }
  end

  def shut(socket)
    socket.shutdown
  rescue IOError, SystemCallError
    nil
  end
end

# Raises the given errors in turn, and keeps its messages.
class Handler
  include Patience

  attr_reader :messages, :times

  def self.failing(times, error = RuntimeError) = new(*[error.new("no")] * times)

  def initialize(*errors)
    @errors = errors
    @messages = []
    @times = []
    @lock = Mutex.new
  end

  def call(message)
    error = @lock.synchronize do
      @messages << message
      @times << now
      @errors.shift
    end
    raise error if error
  end

  def saw(count) = until_true { @messages.size >= count }
end

# Helpers that the clients share.
module Client
  # A queue that exists. Bunny 3 would declare it after a recovery as it is described here, and so
  # with other arguments.
  def self.queue(channel, name)
    queue = channel.queue(name, no_declare: true)
    registry = channel.connection.topology_registry if channel.connection.respond_to?(:topology_registry)
    registry&.delete_recorded_queue_named(name)
    queue
  end

  # Consumes no more, and handles the delivered messages.
  def self.finish(consumer)
    return unless consumer&.channel&.connection&.open? && consumer.channel.open?

    consumer.cancel
    consumer.channel.work_pool.shutdown
    consumer.channel.work_pool.join(PATIENCE)
  end
end

# A consumer over Bunny, with so many handler threads.
class BunnyClient
  attr_reader :retrier, :connection, :channel

  def initialize(url, queue, handler, threads: 1, bunny: {}, **options)
    @queue = queue
    @handler = handler
    @connection = Bunny.new(url, network_recovery_interval: 0.1, **PATIENT, **bunny).start
    @channel = @connection.create_channel(nil, threads, false, 1) # Bunny 2 sometimes waits 60 s for idle threads
    @channel.prefetch(100)
    @retrier = Backhop::Bunny::Retrier.new(@channel, queue: queue, **options)
  end

  def declare(...) = @retrier.declare(...)

  def begin
    @consumer = Client.queue(@channel, @queue)
                      .subscribe(manual_ack: true, &@retrier.wrap { |message| @handler.call(message) })
  end

  # Returns the number of deliveries that no handler has yet.
  def backlog = @channel.work_pool.backlog

  def stop
    Client.finish(@consumer)
    @retrier.drain(PATIENCE)
    @connection.close
  end
end

# A BunnyClient with a pool of handler threads on one channel.
class PoolClient < BunnyClient
  def initialize(url, queue, handler, **options) = super(url, queue, handler, threads: 8, **options)
end

# A consumer that the retrier itself subscribes.
class SubscribedClient < BunnyClient
  def begin = @subscription = @retrier.subscribe(prefetch: 20) { |message| @handler.call(message) }

  def stop
    @subscription&.cancel
    @retrier.drain(PATIENCE)
    @connection.close
  end
end

# A worker of Kicks: makes the calls of Kicks 3, each in the right thread.
class KicksClient
  attr_reader :retrier, :connection, :channel

  def initialize(url, queue, handler, threads: 4, queue_options: { durable: true }, bunny: {}, **options)
    @queue = queue
    @handler = handler
    @options = { ack: true, queue_options: queue_options, backhop: options.merge(mode: :none) }
    @connection = Bunny.new(url, network_recovery_interval: 0.1, **PATIENT, **bunny).start
    @channel = @connection.create_channel(nil, 1, false, 1)
    @channel.prefetch(100)
    @jobs = Queue.new
    @pool = Array.new(threads) { Thread.new { loop { (@jobs.pop || break).call } } }
    @queue_object = Client.queue(@channel, queue)
    @kicks_handler = Backhop::Kicks::Handler.new(@channel, @queue_object, @options)
    @retrier = @kicks_handler.retrier
    @retrier.instance_variable_set(:@mode, :create) # Kicks' handler declares when it is made, this client on `declare`
  end

  def declare(...) = @retrier.declare(...)

  def begin
    @consumer = @queue_object.subscribe(block: false, manual_ack: true) do |delivery_info, metadata, payload|
      @jobs << -> { process_work(delivery_info, metadata, payload) }
    end
  end

  def backlog = @channel.work_pool.backlog + @jobs.size

  # Here the handler's result is what a worker's work gives.
  def process_work(delivery_info, metadata, payload)
    result = nil
    error = nil
    begin
      @handler.call(delivery_info[:backhop])
      result = :ack
    rescue Exception => e # rubocop:disable Lint/RescueException
      result = :error
      error = e
    ensure
      case result
      when :ack then @kicks_handler.acknowledge(delivery_info, metadata, payload)
      when :error then @kicks_handler.error(delivery_info, metadata, payload, error)
      end
    end
  end

  def stop
    Client.finish(@consumer)
    @pool.size.times { @jobs << nil }
    @pool.each { |thread| thread.join(PATIENCE) }
    @retrier.drain(PATIENCE)
    @connection.close
  end
end

CLIENTS = { "Bunny" => BunnyClient, "Bunny with a pool" => PoolClient, "Kicks" => KicksClient }.freeze

# Returns true for a carrier whose code path another one has: its examples are left to the long
# profile.
def further?(client) = client != BunnyClient && client != SubscribedClient

# Lets time pass for Backhop at once.
module Clock
  BACKHOPS = Backhop.const_get(:Times)

  # Counts from now on how often a thread of this name reads the clock.
  def control_clock(thread_name)
    @ahead_ms = @reads = 0
    allow(BACKHOPS).to(receive(:monotonic_ms).and_wrap_original do |clock|
      @reads += 1 if Thread.current.name == thread_name
      clock.call + @ahead_ms
    end)
  end

  # Returns when the thread has found, several times, that these seconds have passed.
  def pass(seconds)
    @ahead_ms += (seconds * 1000).to_i
    @reads = 0
    until_true { @reads >= 20 }
  end
end

# Runs plays at most AT_ONCE at a time, each in a thread.
class Stage
  AT_ONCE = 6

  def initialize = @plays = {}

  def add(key, play) = @plays[key] = play

  # Starts the plays of these keys.
  def start(keys)
    places = SizedQueue.new(AT_ONCE)
    @results = @plays.slice(*keys).transform_values { |play| Thread.new { play_in(places, play) } }
  end

  # Returns what a play raised, or nil; and its seconds.
  def result(key) = @results.fetch(key).value

  private

  def play_in(places, play)
    places << 1
    began = Patience.now
    play.call
    [nil, Patience.now - began]
  rescue Exception => e # rubocop:disable Lint/RescueException
    [e, Patience.now - began]
  ensure
    places.pop
  end
end

# Helpers that the examples share.
module Live
  include Patience

  def self.included(group)
    group.let(:broker) { Broker.new }
    group.let(:namespace) { "test-#{SecureRandom.hex}" }
    group.let(:proxy) { Proxy.new }
    group.let(:log) { StringIO.new }
    group.around do |example|
      before = Backhop.logger
      Backhop.logger = Logger.new(log)
      example.run
    ensure
      Backhop.logger = before
    end
    group.after do
      Live.names(namespace).then { |names| broker.delete_all(*names) }
      broker.close
    end
  end

  # Returns the queues and exchanges of a namespace.
  def self.names(namespace)
    declared = [QUICK, Backhop::Policy.new].flat_map do |policy|
      Backhop::Topology.new("any", policy: policy, namespace: namespace).declarations
    end
    own = declared.select { |each| each.name.start_with?(namespace) }
    %i[queue exchange].map { |what| own.select { |each| each.what == what }.map(&:name).uniq }
  end

  # A consumer that does not consume yet.
  def connected(client, url, queue, handler, **options)
    consumer = client.new(url, queue, handler, **options)
    begin
      yield consumer
    ensure
      consumer.stop
    end
  end

  # A consumer that has declared, and consumes.
  def consuming(client, url, queue, handler, **options)
    connected(client, url, queue, handler, **options) do |consumer|
      consumer.declare
      consumer.begin
      yield consumer
    end
  end
end
