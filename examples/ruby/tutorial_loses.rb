# frozen_string_literal: true

# The tutorial's first consumer: RabbitMQ forgets each message when it sends it.

require_relative "cdn"

api = CDN::PurgeApi.new
channel = CDN.connect.create_channel
CDN.change_pages(channel)
handled = Queue.new

channel.queue(CDN::QUEUE, passive: true).subscribe do |_delivery_info, _properties, page|
  api.purge(page)
rescue StandardError => e
  puts "#{page.ljust(18)} #{e.message}\n"
ensure
  handled << page
end

CDN::PAGES.size.times { handled.pop }
puts "#{api.purged.size} of #{CDN::PAGES.size} pages purged"
CDN.delete(channel)
