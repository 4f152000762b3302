# frozen_string_literal: true

# The tutorial's second consumer: a message that fails goes back to its queue, and comes again at
# once.

require_relative "cdn"

api = CDN::PurgeApi.new
channel = CDN.connect.create_channel
CDN.change_pages(channel)
purged = Queue.new

consumer = channel.queue(CDN::QUEUE, passive: true).subscribe(manual_ack: true) do |delivery_info, _properties, page|
  api.purge(page)
  channel.ack(delivery_info.delivery_tag)
  purged << page
rescue StandardError
  channel.nack(delivery_info.delivery_tag, false, true)
end

19.times { purged.pop }
consumer.cancel
puts "#{api.purged.size} of #{CDN::PAGES.size} pages purged, #{api.refused} refusals"
CDN.delete(channel)
