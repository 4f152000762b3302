# frozen_string_literal: true

require "backhop/bunny"

$stdout.sync = true
url = ENV.fetch("AMQP_URL", "amqp://localhost").delete_suffix("/")
channel = Bunny.new(url).start.create_channel
policy = Backhop::Policy.new(initial: 1, factor: 2, max_attempts: 8) # seconds
retrier = Backhop::Bunny::Retrier.new(channel, queue: "purges", policy: policy, work_queue: :quorum)
retrier.declare
channel.default_exchange.publish("/index.html", routing_key: "purges", message_id: "1")

subscription = retrier.subscribe(prefetch: 10) do |message|
  puts "#{message.body}, attempt #{message.attempt}"
  raise "507 queue is full" if message.attempt < 3 # an exception: the message is retried
end
begin
  subscription.wait
rescue Interrupt # Ctrl-C
  retrier.drain(20)
end
