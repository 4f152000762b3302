# frozen_string_literal: true

# A contender of the benchmark: does a task with the messages of the queue, and prints a JSON object.
#
#     ruby contend.rb CONTENDER TASK MESSAGES [TURNS]
#
# Contenders:
#
# - bunny: a loop of one's own, which waits for each confirm
# - adapter: Backhop::Bunny
# - worker: Backhop::Worker
# - worker-metrics: with Backhop::Metrics
# - worker-breaker, adapter-breaker: with a breaker, which stays closed
#
# Tasks:
#
# - consume: acknowledge each message
# - retry: each message fails; a copy waits, confirmed, then the original is acknowledged
# - seen, of adapter: retry, by retriers that take the TURNS, batch by batch, over and over. TURNS has commas between
#   them: silent, as if it had no events; off, without a listener; on, with Backhop::Metrics; breaker, as off, with a
#   breaker
# - decision: no broker; an adapter's decision for a message with ten headers, one of them an x-death of five records
#
# AMQP_URL names the broker; bench-broker declares the queues and publishes the messages, as bench/bench.h has them. The
# object has these numbers:
#
# - "messages"
# - "seconds": from the first message to the end of the connections
# - "cpu_seconds": this process's processor time meanwhile
# - "peak_kib": the peak memory
# - "cpu_us", for seen: the processor time a message in each batch
# - "took_us", for seen: the time that a message took in each batch
# - "microseconds", for decision: the median of one

require "json"

require "backhop"
require "backhop/bunny"

QUEUE = "backhop.bench.work" # as bench/bench.h has them
NAMESPACE = "backhop.bench"
PREFETCH = 1000
SEEN_PREFETCH = 100
SEEN_BATCH = 1000 # messages: those in hand at a batch's end count in the next one
ERROR = "507 queue is full"
POLICY = Backhop::Policy.new(initial: 600, max: 600, jitter: :none, max_retry_after: 0)

# The handler's work, and how long it took from the first message on.
class Task
  attr_reader :start, :done, :batches, :moments

  def initialize(name, messages)
    @fails = %w[retry seen].include?(name)
    @messages = messages
    @done = 0
    @batches = [] # processor time at their beginnings
    @moments = [] # what a clock showed then
    @start = nil
    @over = Queue.new
  end

  def call
    @start ||= now
    if (@done % SEEN_BATCH).zero?
      @batches << cpu_now
      @moments << now
    end
    @done += 1
    @over << true if @done == @messages
    raise ERROR if @fails
  end

  def done? = @done >= @messages

  def wait = @over.pop

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

  def cpu_now = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)
end

def connect
  connection = Bunny.new(ENV.fetch("AMQP_URL").chomp("/")).start
  channel = connection.create_channel
  channel.prefetch(PREFETCH)
  [connection, channel, channel.queue(QUEUE, no_declare: true)]
end

# Closes when the queue has the acknowledgements: a channel that ends loses the ones that it has not handed on.
def close(connection, channel)
  channel.basic_get(QUEUE)
  connection.close
end

# The loop that one writes: publish, wait for the confirm, then acknowledge.
def run_bunny(task)
  connection, channel, queue = connect
  publishing = connection.create_channel
  publishing.confirm_select
  consumer = queue.subscribe(manual_ack: true) do |delivery_info, properties, payload|
    begin
      task.call
    rescue RuntimeError => e
      headers = properties.headers.merge(
        "backhop-attempts" => properties.headers["backhop-attempts"] + 1,
        "backhop-error" => e.message,
        "BCC" => ["backhop:#{QUEUE}"]
      )
      publishing.basic_publish(payload, "#{NAMESPACE}.wait.600000", delivery_info.routing_key,
                               content_type: "text/plain", headers: headers, persistent: true, mandatory: true,
                               message_id: properties.message_id)
      raise "not confirmed" unless publishing.wait_for_confirms
    end
    channel.ack(delivery_info.delivery_tag)
  end
  task.wait
  consumer.cancel # returns when the last handler did
  close(connection, channel)
end

# As if a retrier had no events at all.
module Silent
  def emit_message(_name, _message, _error = nil, _text = nil) = nil

  def emit_plan(_name, _plan, _error, _took_us = nil) = nil
end

# Measures the time of a message, in microseconds, in batches of retriers that take turns.
def run_seen(task, turns)
  run_adapter(task, turns, SEEN_PREFETCH)
  spent, took = [task.batches, task.moments].map do |all|
    all.each_cons(2).map { |start, finish| (finish - start) / SEEN_BATCH * 1e6 }
  end
  { cpu_us: spent, took_us: took }
end

def run_adapter(task, turns = ["off"], prefetch = PREFETCH, **given)
  connection, channel, queue = connect
  channel.prefetch(prefetch)
  retriers = turns.uniq.to_h do |seen|
    options = given
    options = { on_event: Backhop::Metrics.new } if seen == "on"
    options = { breaker: closed_breaker } if seen == "breaker"
    retrier = Backhop::Bunny::Retrier.new(channel, queue: queue, policy: POLICY, namespace: NAMESPACE, **options)
    retrier.listeners.extend(Silent) if seen == "silent"
    [seen, retrier]
  end
  callbacks = retriers.transform_values { |retrier| retrier.wrap { |_delivery_info, _properties, _payload| task.call } }
  in_turn = callbacks.values_at(*turns)
  consumer = queue.subscribe(manual_ack: true) do |*delivery|
    in_turn[task.done / SEEN_BATCH % in_turn.size].call(*delivery)
  end
  task.wait
  consumer.cancel
  retriers.each_value(&:drain)
  close(connection, channel)
end

# A breaker that the failures leave closed.
def closed_breaker = Backhop::Breaker.new("bench", errors: [IOError])

def run_worker(task, **options)
  topology = Backhop::Topology.new(QUEUE, policy: POLICY, namespace: NAMESPACE, work_queue: :quorum)
  worker = Backhop::Worker.new(ENV.fetch("AMQP_URL"), topology: topology, threads: 1, prefetch: PREFETCH, mode: :none,
                                                      **options)
  worker.run do |_message|
    task.call
  ensure
    worker.stop if task.done?
  end
end

# The median time of a decision, in microseconds: Bunny's properties in, Bunny's options for the copy out.
def decide(count)
  moment = Time.at(1_767_225_600)
  deaths = (1..5).map do |i|
    { "count" => 2, "reason" => "expired", "queue" => "backhop.wait.#{1000 * i}", "time" => moment,
      "exchange" => "backhop.wait.#{1000 * i}", "routing-keys" => ["order.created", "backhop:orders"] }
  end
  headers = (0...7).to_h { |i| ["header-#{i}", "value #{i}"] }
  headers.merge!("number" => 7, "moment" => moment, "x-death" => deaths)
  properties = Bunny::MessageProperties.new(
    content_type: "text/plain", headers: headers, message_id: "42", delivery_mode: 2
  )
  decider = Backhop::Decider.new(Backhop::Topology.new("orders"))
  error = RuntimeError.new(ERROR)
  times = Array.new(count) do
    start = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)
    history = decider.read(exchange: "orders", routing_key: "order.created", properties: properties, headers: headers)
    plan = decider.plan(history, error)
    plan.copy_properties(properties).merge!(headers: plan.copy_headers(headers))
    Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond) - start
  end
  times.sort[count / 2] / 1000.0
end

# The options of a contender, by the second part of its name.
OPTIONS = {
  "metrics" => -> { { on_event: Backhop::Metrics.new } },
  "breaker" => -> { { breaker: closed_breaker } }
}.freeze
CONTENDERS = { "bunny" => :run_bunny, "adapter" => :run_adapter, "worker" => :run_worker }.freeze

contender, name, messages, turns = ARGV
contender, with = contender.split("-")
messages = Integer(messages)
Backhop.logger.level = Logger::ERROR
if name == "decision"
  puts JSON.generate(messages: messages, microseconds: decide(messages))
else
  task = Task.new(name, messages)
  if name == "seen"
    puts JSON.generate(messages: messages, **run_seen(task, turns.split(",")))
    exit
  end
  send(CONTENDERS.fetch(contender), task, **(with ? OPTIONS.fetch(with).call : {}))
  seconds = task.now - task.start
  cpu_seconds = task.cpu_now - task.batches.first
  peak_kib = File.read("/proc/self/status")[/^VmHWM:\s+(\d+)/, 1].to_i
  puts JSON.generate(messages: messages, seconds: seconds, cpu_seconds: cpu_seconds, peak_kib: peak_kib)
end
