# frozen_string_literal: true

require "backhop/bunny"

$stdout.sync = true
channel = Bunny.new(ENV.fetch("AMQP_URL", "amqp://localhost").delete_suffix("/")).start.create_channel
retrier = Backhop::Bunny::Retrier.new(channel, queue: "purges", work_queue: :quorum).declare
channel.prefetch(10)

handler = retrier.wrap do |message| # three parameters: delivery_info, properties and payload
  puts "#{message.body}, attempt #{message.attempt}"
  raise "507 queue is full" if message.attempt < 3
end
channel.queue("purges", passive: true).subscribe(manual_ack: true, &handler)
sleep
