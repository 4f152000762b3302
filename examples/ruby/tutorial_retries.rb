# frozen_string_literal: true

# The tutorial's third consumer: a message that fails waits in the broker, longer each time.

require "backhop/bunny"
require_relative "cdn"

api = CDN::PurgeApi.new
channel = CDN.connect.create_channel
CDN.change_pages(channel)
ended = Queue.new
note = ->(event) { ended << event if %i[succeeded parked].include?(event.name) }

policy = Backhop::Policy.new(initial: 0.5, factor: 2, max: 4, max_attempts: 5) # seconds
retrier = Backhop::Bunny::Retrier.new(channel, queue: CDN::QUEUE, policy: policy, on_event: note)

subscription = retrier.subscribe(prefetch: 10) do |message|
  api.purge(message.body) # returns: acknowledged; raises: retried
end

CDN::PAGES.size.times { ended.pop }
subscription.cancel
retrier.drain(20)
puts "#{api.purged.size} of #{CDN::PAGES.size} pages purged, #{api.refused} refusals, #{CDN.clean_up(channel)} parked"
