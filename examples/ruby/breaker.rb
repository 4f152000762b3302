# frozen_string_literal: true

require "backhop"

$stdout.sync = true
api = Backhop::Breaker.new("purge API") # give it to each consumer that calls this API
url = ENV.fetch("AMQP_URL", "amqp://localhost")
worker = Backhop::Worker.new(url, queue: "purges", work_queue: :quorum, breaker: api)

worker.run do |message|
  puts "#{message.body}, attempt #{message.attempt}"
  raise "503 service unavailable" if message.attempt < 3 # ten in a row open the breaker
end
