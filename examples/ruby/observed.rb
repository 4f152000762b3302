# frozen_string_literal: true

require "backhop/bunny"

$stdout.sync = true
metrics = Backhop::Metrics.new # one for the process; it needs no gem
to_my_log = ->(event) { puts "#{event} #{event.error&.class}" if event.name == :parked }

channel = Bunny.new(ENV.fetch("AMQP_URL", "amqp://localhost").delete_suffix("/")).start.create_channel
policy = Backhop::Policy.new(initial: 0.5, max_attempts: 3)
retrier = Backhop::Bunny::Retrier.new(channel, queue: "purges", policy: policy, work_queue: :quorum,
                                               on_event: [metrics, to_my_log])

subscription = retrier.subscribe do |message|
  puts "#{message.body}, attempt #{message.attempt}"
  raise "507 queue is full"
end
subscription.wait(3)
puts metrics.text # for Prometheus
