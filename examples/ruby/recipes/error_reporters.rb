# frozen_string_literal: true

# Reports parked messages to Rails' error reporter, or to Sentry. Ctrl-C ends it.
#
#     ruby error_reporters.rb

require "active_support"
require "active_support/notifications"
require "backhop/bunny"
require "backhop/notifications"

$stdout.sync = true

# Stand in for Rails 7 and for Sentry: an application has them.
module Rails
  REPORTER = Class.new { def report(error, handled:, context:) = puts("Rails: #{error.inspect}, #{context}\n") }.new
  def self.error = REPORTER
end

module Sentry
  def self.capture_exception(error, extra:) = puts("Sentry: #{error.inspect}, #{extra}\n")
end

connection = Bunny.new("amqp://localhost").start
channel = connection.create_channel

# README: begin
ActiveSupport::Notifications.subscribe("parked.backhop") do |event|
  error = event.payload[:exception_object] || RuntimeError.new("the consumers of a message were lost")
  about = event.payload.slice(:queue, :id, :reason)
  Rails.error.report(error, handled: true, context: about)    # Rails 7 and newer
  Sentry.capture_exception(error, extra: about)               # without Rails
end

retrier = Backhop::Bunny::Retrier.new(channel, queue: "cdn-purge", on_event: Backhop::Notifications)
# README: end

retrier.subscribe { |_message| raise Backhop::Park, "no such site" }.wait
