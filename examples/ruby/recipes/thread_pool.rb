# frozen_string_literal: true

# Handlers in a thread pool of the application, over Bunny, until SIGTERM or Ctrl-C.
#
#     ruby thread_pool.rb

require "concurrent"
require "backhop/bunny"

$stdout.sync = true

def purge(page)
  raise "507 queue is full" if page == "/full"

  puts "began #{page}\n"
  sleep 0.2
  puts "ended #{page}\n"
end

connection = Bunny.new("amqp://localhost").start
channel = connection.create_channel
channel.prefetch(100)
queue = channel.queue("cdn-purge", durable: true, arguments: { "x-queue-type" => "quorum" })
policy = Backhop::Policy.new(initial: 0.5, max_attempts: 3)

# README: begin
pool = Concurrent::FixedThreadPool.new(16)
retrier = Backhop::Bunny::Retrier.new(channel, queue: queue, policy: policy).declare
consumer = queue.subscribe(manual_ack: true) do |*delivery|
  message = retrier.read(*delivery)
  pool.post do
    retrier.handling(message) { purge(message.body) }         # its duration begins here
    retrier.settle(message)
  rescue Exception => e                                       # the pool would hide it
    retrier.settle(message, e)
  end
end

begin
  sleep
rescue SignalException                   # SIGTERM, Ctrl-C
  consumer.cancel
  pool.shutdown
  pool.wait_for_termination(20)
  retrier.drain(20)
  connection.close
end
# README: end
