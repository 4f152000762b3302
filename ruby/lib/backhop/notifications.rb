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
  #       error = event.payload[:exception_object] # none where the poison guard parked it
  #       about = event.payload.slice(:queue, :id, :reason)
  #       error ? Sentry.capture_exception(error, extra: about) : Sentry.capture_message("a message is parked", extra: about)
  #     end
  #
  # The exception of a failure is where Rails has it: exception (its class and message) and exception_object.
  module Notifications
    extend Bridge

    # @param event [Event]
    # @return [void]
    def self.call(event)
      name = "#{event.name}.backhop"
      return unless ActiveSupport::Notifications.notifier.listening?(name)

      payload = { event: event, **event.to_h }
      error = event.error
      payload.update(exception: [error.class.name, words(error)], exception_object: error) if error
      ActiveSupport::Notifications.instrument(name, payload)
    end

    # An exception's message, also of one that cannot be printed.
    def self.words(error)
      error.message
    rescue *Outcomes::FAILURES
      Outcomes.text(error)
    end
    private_class_method :words
  end
end
