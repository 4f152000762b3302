# frozen_string_literal: true

require "active_support"
require "active_support/notifications"

require_relative "../backhop"

module Backhop
  # Events as those of ActiveSupport::Notifications, "<name>.backhop", whose payload has {Event#to_h} and the event:
  #
  #     require "backhop/notifications"
  #
  #     retrier = Backhop::Bunny::Retrier.new(channel, queue: "orders", policy: policy, on_event: Backhop::Notifications)
  #
  #     ActiveSupport::Notifications.subscribe("parked.backhop") do |event|
  #       Sentry.capture_exception(event.payload[:exception_object], extra: event.payload.slice(:queue, :id, :reason))
  #     end
  #
  # The exception of a failure is where Rails has it: exception (its class and message) and exception_object.
  module Notifications
    # @param event [Event]
    # @return [void]
    def self.call(event)
      name = "#{event.name}.backhop"
      return unless ActiveSupport::Notifications.notifier.listening?(name)

      payload = { event: event, **event.to_h }
      error = event.error
      payload.update(exception: [error.class.name, error.message], exception_object: error) if error
      ActiveSupport::Notifications.instrument(name, payload)
    end
  end
end
