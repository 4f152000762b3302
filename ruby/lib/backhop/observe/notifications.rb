# frozen_string_literal: true

require "active_support"
require "active_support/notifications"

require_relative "../../backhop"

module Backhop
  # A listener that instruments each event with ActiveSupport::Notifications, as "<name>.backhop".
  # The payload has {Event#to_h} and the event.
  #
  #     require "backhop/notifications"
  #
  #     retrier = Backhop::Bunny::Retrier.new(channel, queue: "orders", policy: policy,
  #                                           on_event: Backhop::Notifications)
  #
  #     ActiveSupport::Notifications.subscribe("parked.backhop") do |event|
  #       error = event.payload[:exception_object] # nil if the poison guard parked the message
  #       about = event.payload.slice(:queue, :id, :reason)
  #       if error
  #         Sentry.capture_exception(error, extra: about)
  #       else
  #         Sentry.capture_message("a message is parked", extra: about)
  #       end
  #     end
  #
  # The handler's exception has the payload's keys of Rails: exception (class and message) and
  # exception_object.
  module Notifications
    extend RetryListener

    # @param event [Event]
    # @return [void]
    def self.call(event)
      name = "#{event.name}.backhop"
      return unless ActiveSupport::Notifications.notifier.listening?(name)

      payload = { event: event, **event.to_h }
      error = event.error
      payload.update(exception: [error.class.name, message_of(error)], exception_object: error) if error
      ActiveSupport::Notifications.instrument(name, payload)
    end

    # Returns an exception's message, also if the exception cannot be printed.
    def self.message_of(error)
      error.message
    rescue *Outcomes::FAILURES
      Outcomes.text(error)
    end
    private_class_method :message_of
  end
end
