# frozen_string_literal: true

# Rehearses each error that a handler can raise: no broker is needed, and nothing waits.

require "backhop"

class RateLimited < StandardError; end

ANSWERS = [] # rubocop:disable Style/MutableConstant

# Returns the status, and the header Retry-After.
def call_api(_body) = ANSWERS.shift || [202, nil]

# outcomes: begin
def handle(message)
  status, retry_after = call_api(message.body)
  case status
  when 429 then raise Backhop::Throttled.new(retry_after, "429") # The API is busy: waits, no attempt.
  when 503 then raise Backhop::RetryAfter.new(retry_after) # "120", a date or nil. Waits that long at least.
  when 404 then raise Backhop::Park, "no such page" # No attempt can succeed: parked now.
  when 410 then raise Backhop::Drop # Not needed any more: acknowledged.
  when 400.. then raise "HTTP #{status}" # Retried, as the policy has it.
  end
end
# outcomes: end

# choices: begin
slow = Backhop::Policy.new(initial: 600, max: 3600, max_attempts: 20)
gone = ->(error) { error.message.include?("gone") } # true, false, a delay in seconds, or a Throttled

worker = Backhop::Worker.new(
  "amqp://localhost",
  queue: "cdn-purge",
  policy: Backhop::Policy.new,
  never: [ArgumentError, gone], # parks at once
  only: [SystemCallError, RateLimited], # any other error parks at once
  policies: { RateLimited => slow } # another policy; one count of attempts for both
)
# choices: end
puts worker.topology.queue

[[429, "30"], [503, "120"], [404], [410], [500]].each do |answer|
  ANSWERS.replace([answer])
  rehearsal = Backhop::Testing.rehearse("/index.html") { |message| handle(message) }
  puts "#{answer.first}: #{rehearsal.outcome} after #{rehearsal.size}"
end
