# frozen_string_literal: true

# Retries over Bunny. Ctrl-C ends it.
#
#     ruby first.rb

# README: begin
require "backhop/bunny"

connection = Bunny.new("amqp://localhost").start
policy = Backhop::Policy.new(initial: 1, factor: 1.5, max_attempts: 6)
retrier = Backhop::Bunny::Retrier.new(connection.create_channel, queue: "pages", policy: policy, work_queue: :quorum)

subscription = retrier.subscribe(prefetch: 100, threads: 4) do |message|
  puts message.body                      # returns: ack; raises: retry
end
subscription.wait
# README: end
