# frozen_string_literal: true

# The smallest worker over Bunny, as one writes it: jobs that fail are tried again, later each time,
# until Ctrl-C.
#
#     AMQP_URL=amqp://guest:guest@localhost ruby work_queue_bunny.rb

require "backhop/bunny"

$stdout.sync = true
connection = Bunny.new(ENV.fetch("AMQP_URL", "amqp://guest:guest@localhost").delete_suffix("/")).start
channel = connection.create_channel
work_queue = channel.queue("backhop-example.work_queue", durable: true, arguments: { "x-queue-type" => "quorum" })

policy = Backhop::Policy.new(initial: 1, factor: 1.5, max_attempts: 6)
retrier = Backhop::Bunny::Retrier.new(channel, queue: work_queue, policy: policy).declare

3.times { |number| work_queue.publish("job #{number}", persistent: true) }

begin
  work_queue.subscribe(manual_ack: true, block: true, &retrier.wrap { |_delivery_info, properties, payload|
    attempts = properties.headers&.fetch("backhop-attempts", 0) || 0
    puts "#{payload}, attempt #{attempts + 1}"
    raise "the disk is full" if attempts < 2 && payload != "job 0"

    puts "#{payload} is done"
  })
rescue Interrupt
  retrier.drain
  channel.queue_delete(work_queue.name)
  channel.queue_delete(retrier.topology.parked_queue)
  connection.close
end
