# frozen_string_literal: true

require "backhop"

$stdout.sync = true
url = ENV.fetch("AMQP_URL", "amqp://localhost")
policy = Backhop::Policy.new(initial: 1, factor: 2, max_attempts: 8) # seconds
worker = Backhop::Worker.new(url, queue: "purges", policy: policy, work_queue: :quorum, threads: 8)

worker.run do |message| # until Ctrl-C or SIGTERM
  puts "#{message.body}, attempt #{message.attempt}"
  raise "507 queue is full" if message.attempt < 3 # an exception: the message is retried
end
