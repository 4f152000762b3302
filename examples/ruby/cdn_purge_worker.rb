# frozen_string_literal: true

# Purges the pages of a site from its CDN with the worker, which has its own connections and hands
# messages to threads. A purge that the API refuses at its peak comes back later.
#
#     AMQP_URL=amqp://guest:guest@localhost/ ruby cdn_purge_worker.rb

require "backhop"
require_relative "cdn"

$stdout.sync = true
api = CDN::PurgeApi.new
connection = CDN.connect
channel = connection.create_channel
CDN.change_pages(channel)

policy = Backhop::Policy.new(initial: 0.5, factor: 2, max: 4, jitter: 0.2, max_attempts: 10, max_retry_after: 10)
worker = Backhop::Worker.new(CDN::AMQP_URL, queue: CDN::QUEUE, policy: policy, threads: 4, never: [CDN::NoSuchSite])

worker.run do |message|
  page = message.body
  begin
    api.purge(page)
  rescue CDN::QueueFull => e
    puts "#{page.ljust(18)} attempt #{message.attempt}: #{e.message}\n"
    raise Backhop::RetryAfter.new(e.retry_after)
  end
  puts "#{page.ljust(18)} attempt #{message.attempt}: purged\n"
  worker.stop if api.purged.size == CDN::PAGES.size - 1
end

puts "#{api.purged.size} pages purged, #{api.refused} refusals, #{CDN.clean_up(channel)} parked"
connection.close
api.stop
